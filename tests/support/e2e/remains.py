"""Lists the objects that `destroy` must delete, and the namespaces that it must keep."""

from tenancy import names
from tests.support.e2e.rollout import GPU_COUNT, GPUMEM, Object, Rollout
from tests.support.prod import raw

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
# A namespace that a test creates and deletes itself.
SOMEBODYS = "somebodys"
# Objects that belong to the local cluster or exist in every cluster.
_CLUSTERS_OWN = {
    "mutatingadmissionpolicies gpu-tenancy-real-pods",
    "mutatingadmissionpolicybindings gpu-tenancy-real-pods",
    *(f"namespace {name}" for name in ("default", "kube-node-lease", "kube-public", "kube-system", SOMEBODYS)),
}


_OF_TENANTS = {
    "v1": ("resourcequotas",),
    "rbac.authorization.k8s.io/v1": ("rolebindings",),
    "kueue.x-k8s.io/v1beta2": ("localqueues",),
}


def kept(rollout: Rollout) -> set[str]:
    found = rollout.items("/api/v1/namespaces")
    return {each["metadata"]["name"] for each in found if _is_a_tenants(each)}


def _is_a_tenants(namespace: Object) -> bool:
    metadata = namespace["metadata"]
    is_ours = names.STACK in metadata.get("annotations", {})
    return is_ours and metadata["labels"].get(names.LABEL_COMPONENT) == "tenant"


def _may_stay(namespace: Object) -> bool:
    is_exempt = namespace["metadata"]["name"] in raw()["admission"]["exempt_namespaces"]
    return _is_a_tenants(namespace) or (is_exempt and names.EXEMPT not in namespace["metadata"]["labels"])


def left_behind(rollout: Rollout) -> set[str]:
    objects = {
        f"{kind} {name}"
        for group, kinds in _OF_NO_NAMESPACE.items()
        for kind in kinds
        for item in rollout.items(f"/apis/{group}/{kind}")
        if any(word in (name := item["metadata"]["name"]) for word in ("gpu", "kueue", "homelab"))
    }
    everywhere = rollout.items("/api/v1/namespaces")
    namespaces = {f"namespace {item['metadata']['name']}" for item in everywhere if not _may_stay(item)}
    within = {
        f"{kind} {item['metadata']['namespace']}/{item['metadata']['name']}"
        for group, kinds in _OF_TENANTS.items()
        for kind in kinds
        for item in rollout.items(f"/{'api' if group == 'v1' else 'apis'}/{group}/{kind}")
        if item["metadata"].get("labels", {}).get(names.LABEL_PART_OF) == names.PROJECT
    }
    keys = {
        f"{key} on {node['metadata']['name']}"
        for node in rollout.items("/api/v1/nodes")
        for key in {GPUMEM, GPU_COUNT} & set(node["status"]["capacity"])
    }
    return objects - _CLUSTERS_OWN | namespaces - _CLUSTERS_OWN | within | keys
