"""Rules over what is not a built-in workload: custom kinds, charts and values as text, patches. Each is counted, or
refused where it cannot be."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from policy.finding import Finding, each, unproven
from policy.graph import KUEUE, Graph, is_gpumem, runs_pods
from policy.objects import Object, all_from_yaml, text
from policy.rules.subjects import own_namespaces
from policy.unknown import is_unknown, unknown, unknowns
from tenancy import names, reach
from tenancy.admitted import PodJudge
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.workload import TEMPLATES, ShapeError, at, pod_template

# Components that declare objects of what they read; while that is unknown their objects are not in the graph.
_RENDERERS = {"ConfigFile", "ConfigGroup", "Chart", "Directory"}
# The API's own groups with a dot in them, beside Kueue's: none of their kinds has pods but those that are counted.
_BUILT_IN = {
    *("admissionregistration", "apiextensions", "authentication", "authorization", "certificates", "coordination"),
    *("discovery", "events", "flowcontrol.apiserver", "internal.apiserver", "networking", "node"),
    *("rbac.authorization", "resource", "scheduling", "storage", "storagemigration"),
}
# Kinds of which rules read the whole; a Patch shows a part.
_ROLES = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_READ_WHOLE = {*TEMPLATES, "ResourceQuota", "ClusterQueue", "Cohort", *_ROLES}
# Of a workload that is no tenant's: fields of which a rule reads more than a patch shows, and those where the memory of
# nodes is proven.
_READ_OF_ANY = {"image"}
_READ_FOR_HOST_MEMORY = {"resources", "limits", "requests", "nodeSelector", "affinity"}
# Kinds that have another program make the objects: what the graph holds of these is their values alone.
_OPAQUE = ("Release.helm.sh", "Application.argoproj.io", "ApplicationSet.argoproj.io", "HelmChart.helm.cattle.io")
_OPAQUE_GROUPS = ("helm.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io")
# Fields under which a foreign kind keeps its pods; unknown, they may hide a request.
_STRUCTURE = {"spec", "template", "containers", "initContainers", "resources", "limits", "requests", "values"}
_PODS_FIELDS = {*_STRUCTURE, "replicas", "parallelism"} - {"spec"}
_IN_TEXT = ("/gpumem", reach.GPU_RESOURCES, reach.CLAIMED_RESOURCES, names.VISIBLE_DEVICES)
# A resource in text that is no YAML (a template), or in the name of a value: resources.limits.nvidia\.com/gpu.
_NAME = r"((?:[a-z0-9-]+\\?\.)+[a-z]+/[A-Za-z0-9._-]+)"
_RESOURCE = re.compile(rf"(?:limits|requests)\.{_NAME}|^\s*[\"']?{_NAME}[\"']?\s*:", re.M)
_ITS_INPUT = "its input"
_HOW = (
    "declare these, or what `helm template` and `kustomize build` write, with kubernetes.yaml.ConfigGroup or "
    "helm.v3.Chart, which need no cluster"
)


def judgeable(graph: Graph) -> Iterator[Finding]:
    """What may ask for gpumem is in the graph in a form that can be counted."""
    yield from graph.unread_claims
    yield from each((o for o in graph.objects if not runs_pods(o)), lambda found: _judgeable(graph, found))


def opaque(graph: Graph) -> list[Object]:
    """What runs pods that no rule sees: only admission judges them. The platform's own Kueue is pinned here."""
    known = names.KUEUE if graph.ledger_objects else None
    unseen = (o for o in graph.objects if o.qualified_kind in _OPAQUE or o.group in _OPAQUE_GROUPS)
    return [o for o in unseen if is_unknown(name := o.manifest.get("name")) or name != known or known is None]


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
    """Of what it rendered, `resources`, the parts are unknown until the update, as of any new object."""
    return is_unknown(found.manifest.get("resources")) or _input(found) != _ITS_INPUT


def _input(found: Object) -> str:
    """The key of its input that is unknown, as far as the graph shows it."""
    given = {key: value for key, value in found.manifest.items() if key != "resources"}
    return next(unknowns(given), _ITS_INPUT)


def _must_be_whole(graph: Graph, changed: str, patch: Object) -> bool:
    """Whether rules read the whole of what a patch changes a part of: of a tenant's every custom resource."""
    ledger = graph.ledger
    if changed in TEMPLATES and ledger is not None and not _is_a_tenants(ledger, patch):
        read = _READ_OF_ANY | (_READ_FOR_HOST_MEMORY if graph.host_memory else set())
        manifest = dict(patch.manifest)
        is_ours = patch.namespace in own_namespaces(graph)
        return is_ours or _names_gpumem(manifest) or any(field in read for field, _ in _fields(manifest))
    if changed in _READ_WHOLE or (changed == "ConfigMap" and patch.name == names.LEDGER):
        return True
    if _is_built_in(patch) or not _is_a_tenants(ledger, patch):
        return False
    return patch.group == KUEUE or any(field in _PODS_FIELDS for field, _ in _fields(dict(patch.manifest)))


def _custom(graph: Graph, found: Object) -> Iterator[Finding]:
    if _names_gpumem(found.manifest):
        kinds = ", ".join(sorted(TEMPLATES))
        yield unproven(found, f"it asks for gpumem in a way that is not counted; only {kinds} are: {_HOW}")
    elif runs := _runs_another(graph, found):
        yield unproven(found, f"it runs the pods of {runs} (workloadRef), which are not counted; {_HOW}")
    elif graph.ledger is not None and any((pod := _pod_of(found.manifest)).values()) and _is_in_a_namespace(found):
        yield from _refused(found, PodJudge(graph.ledger, _lands_in(found), {"spec": pod}))


def _refused(found: Object, judge: PodJudge) -> Iterator[Finding]:
    return (Finding(f"{found}: {refusal.message}", found.urn) for refusal in judge.refusals())


def _is_in_a_namespace(found: Object) -> bool:
    """What names none is the cluster's, such as a NodePool, but for a release, which is in `default` then."""
    return "namespace" in at(found.manifest, "metadata") or found.qualified_kind == "Release.helm.sh"


def _may_run_pods(found: Object) -> bool:
    """A custom kind or a Helm release may, Kueue's do not; of the built-in ones those that are counted, and their
    PodTemplate."""
    return found.kind == "PodTemplate" if _is_built_in(found) else found.group != KUEUE


def _is_built_in(found: Object) -> bool:
    return "." not in found.group or found.group.removesuffix(".k8s.io") in _BUILT_IN


def _is_a_tenants(ledger: Ledger | None, found: Object) -> bool:
    return ledger is not None and (found.namespace in ledger.tenants_by_name or found.group == KUEUE)


def _names_gpumem(value: Any, field: str = "") -> bool:
    """Whether a map within, or text in it, asks for gpumem. Raises UnprovenError where the unknown may hide it."""
    if is_unknown(value):
        return field in _STRUCTURE and bool(value)
    if isinstance(value, dict):
        return any(is_gpumem(key) or _names_gpumem(item, key) for key, item in value.items())
    if isinstance(value, str) and "/gpumem" in value:
        return _names_gpumem(_of_text(value))
    return isinstance(value, list) and any(_names_gpumem(item, field) for item in value)


def _of_text(text: str) -> Any:
    """The maps that text holds, as YAML or by their lines; text within text is not looked at."""
    try:
        held = [found for found in all_from_yaml(text) if isinstance(found, dict | list)]
    except ShapeError:
        held = []
    lines = {"limits": {"".join(found).replace("\\", ""): 1 for found in _RESOURCE.findall(text)}}
    return _without_text(held) if held else lines


def _without_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_text(item) for item in value]
    return value if not isinstance(value, str) or "\n" not in value else ""


def _runs_another(graph: Graph, found: Object) -> str | None:
    """The workload whose pods a Rollout runs by reference, where they reach a GPU or are not in the graph."""
    spec = found.manifest.get("spec")
    if is_unknown(spec) or not isinstance(spec, Mapping) or spec.get("workloadRef") is None:
        return None
    ref = at(found.manifest, "spec", "workloadRef")
    kind, name = text(ref, "kind"), text(ref, "name")
    named = f"{kind} {found.namespace}/{name}"
    for workload in graph.workloads:
        if (workload.kind, workload.name, workload.namespace) == (kind, name, found.namespace):
            pods = at(workload.manifest, "spec", "template", "spec")
            domain = graph.ledger.names if graph.ledger else Names("")
            return named if any(reach.routes(pods, domain)) else None
    return named if _is_a_tenants(graph.ledger, found) else None


def _lands_in(found: Object) -> Any:
    """The namespace of what it makes."""
    if found.qualified_kind == "Release.helm.sh":
        return text(found.manifest, "namespace") or "default"
    spec = found.manifest.get("spec")
    if (found.qualified_kind not in _OPAQUE and found.group not in _OPAQUE_GROUPS) or not isinstance(spec, Mapping):
        return found.namespace
    return text(spec, "targetNamespace") or text(at(spec, "destination"), "namespace") or found.namespace


def _pod_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """All that is asked for in a custom resource, wherever it stands, as one pod."""
    pod: dict[str, Any] = {"containers": [], "volumes": []}
    for field, value in _fields(dict(manifest)):
        container: dict[str, Any] = {"name": "of its pods"}
        if field in ("limits", "requests") and isinstance(value, Mapping):
            container["resources"] = {"limits": {k: v for k, v in value.items() if k.startswith(_IN_TEXT[1:3])}}
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
    """Every field of every map within, and of the maps that text in it holds."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not is_unknown(item):
                yield key, item
                yield from _fields(item)
    elif isinstance(value, list):
        for item in value:
            if not is_unknown(item):
                yield from _fields(item)
    elif isinstance(value, str) and any(token in value for token in _IN_TEXT):
        yield from _fields(_of_text(value))
