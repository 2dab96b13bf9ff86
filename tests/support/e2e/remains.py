"""The objects that a `destroy` may not leave."""

from tests.support.e2e.rollout import GPU_COUNT, GPUMEM, Rollout

_OF_NO_NAMESPACE = {
    "admissionregistration.k8s.io/v1": (
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ),
    "apiextensions.k8s.io/v1": ("customresourcedefinitions",),
    "apiregistration.k8s.io/v1": ("apiservices",),
    "rbac.authorization.k8s.io/v1": ("clusterroles", "clusterrolebindings"),
    "scheduling.k8s.io/v1": ("priorityclasses",),
}
# A namespace of one test, which no `up` creates or deletes.
SOMEBODYS = "somebodys"
# The throw-away cluster's, and every cluster's.
_CLUSTERS_OWN = {
    "mutatingadmissionpolicies gpu-tenancy-real-pods",
    "mutatingadmissionpolicybindings gpu-tenancy-real-pods",
    *(f"namespace {name}" for name in ("default", "kube-node-lease", "kube-public", "kube-system", SOMEBODYS)),
}


def left_behind(rollout: Rollout) -> set[str]:
    """Returns prod's namespaces, capacity keys and cluster-wide objects that are left after a `destroy`."""
    objects = {
        f"{kind} {name}"
        for group, kinds in _OF_NO_NAMESPACE.items()
        for kind in kinds
        for item in rollout.items(f"/apis/{group}/{kind}")
        if any(word in (name := item["metadata"]["name"]) for word in ("gpu", "kueue", "homelab"))
    }
    namespaces = {f"namespace {item['metadata']['name']}" for item in rollout.items("/api/v1/namespaces")}
    keys = {
        f"{key} on {node['metadata']['name']}"
        for node in rollout.items("/api/v1/nodes")
        for key in {GPUMEM, GPU_COUNT} & set(node["status"]["capacity"])
    }
    return objects - _CLUSTERS_OWN | namespaces - _CLUSTERS_OWN | keys
