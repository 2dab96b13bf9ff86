"""Gives a tenant's user the rights of the role `edit` on an API server.

Kubernetes' controller aggregates the role `edit` from two other roles. No controller runs here, so this module binds
those two roles.
"""

from tests.support.e2e.server import ApiServer

TENANT = "tenant"
_GROUP = "rbac.authorization.k8s.io"
_ROLES = ("system:aggregate-to-edit", "system:aggregate-to-view")


def let_edit(server: ApiServer, namespace: str) -> None:
    """Binds the two roles to the user TENANT in the namespace."""
    for role in _ROLES:
        server.create(
            f"/apis/{_GROUP}/v1/namespaces/{namespace}/rolebindings",
            {
                "apiVersion": f"{_GROUP}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"tenant-{role.rpartition(':')[2]}", "namespace": namespace},
                "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": TENANT}],
            },
        )


def may_write(server: ApiServer, user: str, resources: list[str], group: str) -> None:
    """Gives a user the right to read and write these resources in every namespace."""
    name = user.replace(":", "-")
    rule = {"apiGroups": [group], "resources": resources, "verbs": ["create", "get", "update", "patch", "delete"]}
    role = {"apiVersion": f"{_GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]}
    bound = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }
    server.apply(role, "clusterroles")
    server.apply(bound, "clusterrolebindings")
