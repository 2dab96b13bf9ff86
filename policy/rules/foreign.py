"""Rules on custom kinds, charts and patches. The rules count the requests of custom kinds, charts and patches, and
refuse an object with requests that cannot be counted. The rules do not search in the text inside custom kinds and
charts (docs/adr/0032)."""

from collections.abc import Iterator, Mapping
from typing import Any

from policy.finding import Finding, judge_each, unproven
from policy.graph import KUEUE, Graph, framework_in, is_gpumem, is_queued, runs_pods
from policy.objects import Object, text_at
from policy.queued import moved_label
from policy.rule import A_RESIDENT, MAIN, Example, an_object, rule
from policy.rules.pods import judges_images
from policy.rules.writers import own_namespaces
from policy.unknown import is_unknown, unknown, unknowns
from tenancy import names, policy_names, reach
from tenancy.admitted import PodJudge
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.podsets import pod_sets
from tenancy.workload import TEMPLATES, map_at, pod_template

# Components that render other objects. While the input of a rendering component is unknown, its objects are not in the
# graph.
_RENDERERS = {"ConfigFile", "ConfigGroup", "Chart", "Directory"}
# Kubernetes' own API groups with a dot in their name. No kind of Kubernetes' own API groups with a dot runs pods.
_BUILT_IN = {
    *("admissionregistration", "apiextensions", "authentication", "authorization", "certificates", "coordination"),
    *("discovery", "events", "flowcontrol.apiserver", "internal.apiserver", "networking", "node"),
    *("rbac.authorization", "resource", "scheduling", "storage", "storagemigration"),
}
# For these kinds, the rules need the whole object, but a Patch shows only a part.
_ROLES = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_READ_WHOLE = {*TEMPLATES, "ResourceQuota", "ClusterQueue", "Cohort", *_ROLES}
# The fields that the rule `images` and the rules on host memory read in workloads outside of tenants' namespaces.
_READ_FOR_IMAGES = {"image"}
_READ_FOR_HOST_MEMORY = {"resources", "limits", "requests", "nodeSelector", "affinity"}
# Charts, Argo objects and Flux objects make another program create objects. The graph contains only the values for
# the other program.
_OPAQUE = ("Release.helm.sh", "Application.argoproj.io", "ApplicationSet.argoproj.io", "HelmChart.helm.cattle.io")
_OPAQUE_GROUPS = ("helm.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io")
# Custom kinds declare their pods in the fields of _STRUCTURE. An unknown value in a field of _STRUCTURE can hide a
# request.
_STRUCTURE = {"spec", "template", "containers", "initContainers", "resources", "limits", "requests", "values"}
_PODS_FIELDS = {*_STRUCTURE, "replicas", "parallelism"} - {"spec"}
_GPUS = (reach.GPU_RESOURCES, reach.CLAIMED_RESOURCES)
_ITS_INPUT = "its input"
_RENDERED = (
    ", or declare what `helm template` and `kustomize build` write, with kubernetes.yaml.ConfigGroup or helm.v3.Chart, "
    "which need no cluster"
)


_POD = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"viktorbarzin.me/gpumem": 1000}}}]}}


@rule(
    "counted",
    Example(
        f"{MAIN}.resources.limits",
        {"viktorbarzin.me/gpumem": "5000MB"},
        {"viktorbarzin.me/gpumem": "5000"},
        of=A_RESIDENT,
    ),
    Example(
        of=an_object("argoproj.io/v1alpha1", "Rollout", "x", "immich", spec={"template": _POD}),
        instead="Declare a Deployment, because the pack can count its requests.",
    ),
)
def judgeable(graph: Graph) -> Iterator[Finding]:
    """Every object requests gpumem only in fields that the policy pack can count."""
    yield from graph.unread_requests
    yield from judge_each((o for o in graph.objects if not runs_pods(o)), lambda found: _judgeable(graph, found))


def opaque(graph: Graph) -> list[Object]:
    """Returns the objects that create pods outside of the graph, except the platform's release of Kueue. Only admission
    can judge the pods of objects that create pods outside of the graph."""
    known = names.KUEUE if graph.ledger_objects else None
    unseen = (o for o in graph.objects if _is_opaque(o))
    return [o for o in unseen if is_unknown(name := o.manifest.get("name")) or name != known or known is None]


def _is_opaque(found: Object) -> bool:
    return found.qualified_kind in _OPAQUE or found.group in _OPAQUE_GROUPS


def _judgeable(graph: Graph, found: Object) -> Iterator[Finding]:
    changed = found.kind.removesuffix("Patch")
    if changed != found.kind and _must_be_whole(graph, changed, found):
        yield unproven(found, f"it changes a {changed} that the graph does not hold; declare the whole object")
    elif changed != found.kind and changed in TEMPLATES and graph.ledger is not None:
        template = pod_template({**found.manifest, "kind": changed}) or {}
        yield from _refused(found, PodJudge(graph.ledger, found.namespace, template))
    elif found.kind in _RENDERERS and _is_unrendered(found):
        yield unproven(found, f"the objects it declares are not in the graph while {unknown(_input(found))}")
    elif found.kind.endswith("List") and is_unknown(found.manifest.get("items")):
        yield unproven(found, unknown("items"))
    elif _may_run_pods(found):
        yield from _custom(graph, found)


def _is_unrendered(found: Object) -> bool:
    """Returns True if the component's input is unknown. The output `resources` does not count as input, because it is
    always partly unknown until the update."""
    return is_unknown(found.manifest.get("resources")) or _input(found) != _ITS_INPUT


def _input(found: Object) -> str:
    given = {key: value for key, value in found.manifest.items() if key != "resources"}
    return next(unknowns(given), _ITS_INPUT)


def _must_be_whole(graph: Graph, changed: str, patch: Object) -> bool:
    ledger = graph.ledger
    if changed in TEMPLATES and ledger is not None and not _is_a_tenants(ledger, patch):
        images = _READ_FOR_IMAGES if judges_images(graph) else set()
        read = images | (_READ_FOR_HOST_MEMORY if graph.host_memory else set())
        manifest = dict(patch.manifest)
        is_ours = patch.namespace in own_namespaces(graph)
        return is_ours or _names_gpumem(manifest) or any(field in read for field, _ in _fields(manifest))
    if changed in _READ_WHOLE or (changed == "ConfigMap" and patch.name == names.LEDGER):
        return True
    if _is_built_in(patch) or not _is_a_tenants(ledger, patch):
        return False
    return patch.group == KUEUE or any(field in _PODS_FIELDS for field, _ in _fields(dict(patch.manifest)))


def _custom(graph: Graph, found: Object) -> Iterator[Finding]:
    ledger, framework = graph.ledger, framework_in(graph.ledger, found)
    if ledger is not None and framework is not None and found.namespace in ledger.queue_tenants:
        queued = is_queued(ledger, found)
        for pods in pod_sets(found.manifest, framework):
            judge = PodJudge(ledger, found.namespace, pods.template, queued=queued)
            yield from _refused(found, judge, "" if queued else moved_label(found))
    elif _names_gpumem(found.manifest):
        kinds = ", ".join(sorted(TEMPLATES))
        rendered = _RENDERED if _is_opaque(found) else ""
        yield unproven(found, f"it asks for gpumem in a way that is not counted; write it as one of {kinds}{rendered}")
    elif runs := _runs_another(graph, found):
        yield unproven(
            found, f"it runs the pods of {runs} (workloadRef), which are not counted; declare a Deployment instead"
        )
    elif graph.ledger is not None and any((pod := _pod_of(found.manifest)).values()) and _is_in_a_namespace(found):
        yield from _refused(found, PodJudge(graph.ledger, _lands_in(found), {"spec": pod}))


def _refused(found: Object, judge: PodJudge, moved: str = "") -> Iterator[Finding]:
    for refusal in judge.refusals():
        also = f"; {moved}" if moved and refusal.part == policy_names.QUEUED_PODS else ""
        yield Finding(f"{found}: {refusal.message}{also}", found.urn)


def _is_in_a_namespace(found: Object) -> bool:
    """Returns True for an object in a namespace, and False for a cluster-scoped object such as a NodePool. A Helm
    release without a namespace is in `default`."""
    return "namespace" in map_at(found.manifest, "metadata") or found.qualified_kind == "Release.helm.sh"


def _may_run_pods(found: Object) -> bool:
    """Returns True for custom kinds, Helm releases and PodTemplate. Kueue's kinds and the other built-in kinds run no
    pods."""
    return found.kind == "PodTemplate" if _is_built_in(found) else found.group != KUEUE


def _is_built_in(found: Object) -> bool:
    return "." not in found.group or found.group.removesuffix(".k8s.io") in _BUILT_IN


def _is_a_tenants(ledger: Ledger | None, found: Object) -> bool:
    return ledger is not None and (found.namespace in ledger.tenants_by_name or found.group == KUEUE)


def _names_gpumem(value: Any, field: str = "") -> bool:
    """Returns True if a map in the value has a gpumem key. Raises UnprovenError for an unknown value in a field of
    _STRUCTURE."""
    if is_unknown(value):
        return field in _STRUCTURE and bool(value)
    if isinstance(value, dict):
        return any(is_gpumem(key) or _names_gpumem(item, key) for key, item in value.items())
    return isinstance(value, list) and any(_names_gpumem(item, field) for item in value)


def _runs_another(graph: Graph, found: Object) -> str | None:
    spec = found.manifest.get("spec")
    if is_unknown(spec) or not isinstance(spec, Mapping) or spec.get("workloadRef") is None:
        return None
    ref = map_at(found.manifest, "spec", "workloadRef")
    kind, name = text_at(ref, "kind"), text_at(ref, "name")
    named = f"{kind} {found.namespace}/{name}"
    for workload in graph.workloads:
        if (workload.kind, workload.name, workload.namespace) == (kind, name, found.namespace):
            pods = map_at(workload.manifest, "spec", "template", "spec")
            domain = graph.ledger.names if graph.ledger else Names("")
            return named if any(reach.routes(pods, domain)) else None
    return named if _is_a_tenants(graph.ledger, found) else None


def _lands_in(found: Object) -> Any:
    """Returns the namespace in which the custom resource's controller creates its objects."""
    if found.qualified_kind == "Release.helm.sh":
        return text_at(found.manifest, "namespace") or "default"
    spec = found.manifest.get("spec")
    if not _is_opaque(found) or not isinstance(spec, Mapping):
        return found.namespace
    return text_at(spec, "targetNamespace") or text_at(map_at(spec, "destination"), "namespace") or found.namespace


def _pod_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the spec of one pod with all GPU requests that the manifest of a custom resource contains."""
    pod: dict[str, Any] = {"containers": [], "volumes": []}
    for field, value in _fields(dict(manifest)):
        container: dict[str, Any] = {"name": "of its pods"}
        if field in ("limits", "requests") and isinstance(value, Mapping):
            container["resources"] = {"limits": {k: v for k, v in value.items() if k.startswith(_GPUS)}}
        elif field == "env" and isinstance(value, list | Mapping):
            listed = value if isinstance(value, list) else [{"name": k, "value": v} for k, v in value.items()]
            container["env"] = [v for v in listed if isinstance(v, Mapping) and v.get("name") == names.VISIBLE_DEVICES]
        elif field == "privileged" and value is True:
            container["securityContext"] = {"privileged": True}
        elif field == "hostPath" and isinstance(value, Mapping) and isinstance(value.get("path"), str):
            pod["volumes"].append({"name": "of its pods", "hostPath": dict(value)})
        elif field in ("runtimeClassName", "hostPID", "hostNetwork", "hostIPC") and value:
            pod[field] = value
        if len(container) > 1:
            pod["containers"].append(container)
    return pod


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if not is_unknown(item):
                yield key, item
                yield from _fields(item)
    elif isinstance(value, list):
        for item in value:
            if not is_unknown(item):
                yield from _fields(item)
