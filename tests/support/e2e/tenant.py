"""Gives the user of a tenant the rights of the role `edit`. The module binds two roles, because no controller
aggregates `edit` here.
"""

from tests.support.e2e.access import await_right
from tests.support.e2e.server import ApiServer

TENANT = "tenant"
_GROUP = "rbac.authorization.k8s.io"
_ROLES = ("system:aggregate-to-edit", "system:aggregate-to-view")


def let_edit(server: ApiServer, namespace: str) -> None:
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
    await_right(server.api, TENANT, "list", "pods", namespace=namespace)


def may_write(server: ApiServer, user: str, resources: list[str], group: str) -> None:
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
    await_right(server.api, user, "create", resources[0], group=group)
