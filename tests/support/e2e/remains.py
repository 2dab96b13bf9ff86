"""Lists the objects that `destroy` must delete, and the namespaces from which it must take its labels."""

from tenancy import names
from tests.support.e2e.rollout import GPU_COUNT, GPUMEM, Object, Rollout

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
# Objects that belong to the local cluster or exist in every cluster.
_CLUSTERS_OWN = {
    "mutatingadmissionpolicies gpu-tenancy-real-pods",
    "mutatingadmissionpolicybindings gpu-tenancy-real-pods",
}


_OF_TENANTS = {
    "v1": ("resourcequotas",),
    "rbac.authorization.k8s.io/v1": ("rolebindings",),
    "kueue.x-k8s.io/v1beta2": ("localqueues",),
}


def _is_labelled(namespace: Object) -> bool:
    metadata = namespace["metadata"]
    ours = {names.EXEMPT, names.LABEL_PART_OF, names.POD_SECURITY_ENFORCE} & metadata["labels"].keys()
    return bool(ours) or names.FIELD_MANAGER in metadata.get("annotations", {})


def left_behind(rollout: Rollout) -> set[str]:
    objects = {
        f"{kind} {name}"
        for group, kinds in _OF_NO_NAMESPACE.items()
        for kind in kinds
        for item in rollout.items(f"/apis/{group}/{kind}")
        if any(word in (name := item["metadata"]["name"]) for word in ("gpu", "kueue", "homelab"))
    }
    everywhere = rollout.items("/api/v1/namespaces")
    namespaces = {f"namespace {item['metadata']['name']}" for item in everywhere if _is_labelled(item)}
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
    return objects - _CLUSTERS_OWN | namespaces | within | keys
