"""The rule on objects that make others run pods: custom kinds, charts and patches.

Admission judges the pods of all of them. The rule refuses only what it can see, or cannot see although it belongs to a
tenant: a GPU in a field that it can read, and a part of a tenant's workload that is unknown (docs/adr/0032).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeGuard

from policy.admitted import PodJudge, pods_of
from policy.finding import Finding, judge_each, unproven
from policy.graph import KUEUE, Graph, framework_in, is_built_in, is_gpumem, is_queued, runs_pods
from policy.objects import Object, text_at
from policy.rule import A_RESIDENT, MAIN, Example, an_object, rule
from policy.unknown import is_unknown
from tenancy import names, policy_names, reach
from tenancy.podsets import pod_sets
from tenancy.workload import TEMPLATES, map_at

# Charts, Argo objects and Flux objects make another program create objects. The graph contains only the values for
# the other program.
_OPAQUE = ("Release.helm.sh", "Application.argoproj.io", "ApplicationSet.argoproj.io", "HelmChart.helm.cattle.io")
_OPAQUE_GROUPS = ("helm.toolkit.fluxcd.io", "kustomize.toolkit.fluxcd.io")
# The custom kinds that run pods in their own namespace: all kinds of these groups, and these kinds of Argo.
_RUN_PODS = (
    *("apps.kruise.io", "apps.nvidia.com", "batch.volcano.sh", "flink.apache.org", "jobset.x-k8s.io", "kaito.sh"),
    *("kubeai.org", "kubeflow.org", "kubernetes.dask.org", "kubevirt.io", "leaderworkerset.x-k8s.io"),
    *("machinelearning.seldon.io", "pool.kubevirt.io", "ray.io", "serving.knative.dev", "serving.kserve.io"),
    *("sparkoperator.k8s.io", "tekton.dev", "trainer.kubeflow.org"),
)
_RUN_PODS_OF_ARGO = ("CronWorkflow", "Rollout", "Workflow", "WorkflowTemplate")
# Custom kinds declare their pods in these fields. An unknown value in one of them can hide a request.
_STRUCTURE = {"spec", "template", "containers", "initContainers", "resources", "limits", "requests"}
_PODS_FIELDS = {*_STRUCTURE, "replicas", "parallelism"} - {"spec"}
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


def _runs_pods(found: Object) -> bool:
    """Returns True for a kind whose controller runs pods in the object's own namespace, or in `default`."""
    kind = found.kind.removesuffix("Patch")
    if found.group == "argoproj.io":
        return kind in _RUN_PODS_OF_ARGO
    return found.group in _RUN_PODS or (kind == "PodTemplate" and not found.group)


def _judgeable(graph: Graph, found: Object) -> Iterator[Finding]:
    changed = found.kind.removesuffix("Patch")
    if changed != found.kind:
        yield from _patch(graph, changed, found)
    elif found.group != KUEUE and (_runs_pods(found) or not is_built_in(found)):
        yield from _custom(graph, found)


def _patch(graph: Graph, changed: str, patch: Object) -> Iterator[Finding]:
    """Judges a patch, which shows only a part of the object that it changes."""
    if _must_be_whole(graph, changed, patch):
        yield unproven(patch, f"it changes a {changed} that the graph does not hold; declare the whole object")
    elif changed in TEMPLATES and graph.ledger is not None:
        template = pods_of(replace(patch, manifest={**patch.manifest, "kind": changed}))
        yield from PodJudge(graph.ledger, patch.namespace, template).findings(patch)


def _must_be_whole(graph: Graph, changed: str, patch: Object) -> bool:
    if changed in ("ClusterQueue", "Cohort", "LocalQueue") or (changed, patch.name) == ("ConfigMap", names.LEDGER):
        return True
    if changed == "ResourceQuota":
        return graph.is_a_tenants(patch)
    runs = changed in TEMPLATES or _runs_pods(patch)
    of_a_promise = (patch.namespace, patch.name) in graph.promised
    return runs and (
        _names_gpumem(patch.manifest)
        or (of_a_promise and any(field in _PODS_FIELDS for field, _ in _fields(dict(patch.manifest))))
    )


def _custom(graph: Graph, found: Object) -> Iterator[Finding]:
    ledger, framework = graph.ledger, framework_in(graph.ledger, found)
    if ledger is not None and framework is not None and found.namespace in ledger.queue_tenants:
        queued = is_queued(ledger, found)
        for pods in pod_sets(found.manifest, framework):
            yield from PodJudge(ledger, found.namespace, pods.template, queued=queued).findings(found)
    elif _names_gpumem(found.manifest, runs=_runs_pods(found)):
        kinds = ", ".join(sorted(TEMPLATES))
        rendered = _RENDERED if _is_opaque(found) else ""
        yield unproven(found, f"it asks for gpumem in a way that is not counted; write it as one of {kinds}{rendered}")
    elif ledger is not None and any((pod := _pod_of(found.manifest)).values()) and _is_in_a_namespace(found):
        # A chart may make the Deployment that the demand gate starts, whose name its values need not tell.
        of_a_chart = (policy_names.GATED_PODS,) if _is_opaque(found) else ()
        judge = PodJudge(ledger, _lands_in(found), {"spec": pod})
        yield from judge.findings(found, lambda refusal: refusal.part in of_a_chart)


def _is_in_a_namespace(found: Object) -> bool:
    """Returns True for an object in a namespace, and False for a cluster-scoped object such as a NodePool. What runs
    pods and names no namespace is in `default`."""
    return "namespace" in map_at(found.manifest, "metadata") or _runs_pods(found) or _is_opaque(found)


def _names_gpumem(value: Any, field: str = "", *, runs: bool = True) -> bool:
    """Returns True if a map in the value has a gpumem key. If the object `runs` pods, raises UnprovenError for an
    unknown value in a field of _STRUCTURE."""
    if is_unknown(value):
        return runs and field in _STRUCTURE and bool(value)
    if isinstance(value, Mapping):
        return any(is_gpumem(key) or _names_gpumem(item, key, runs=runs) for key, item in value.items())
    return isinstance(value, list) and any(_names_gpumem(item, field, runs=runs) for item in value)


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
        if gpus := _gpus_of(field, value):
            container["resources"] = {"limits": gpus}
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


def _is_a_gpu(resource: object) -> TypeGuard[str]:
    return isinstance(resource, str) and reach.is_gpu_resource(resource, names.Names(""))


def _gpus_of(field: str, value: Any) -> Mapping[str, Any]:
    """Returns the GPU resources that a field of a custom resource asks for: by Kubernetes' own fields, by `gpu` of a
    SparkApplication, or by `gpus` and `hostDevices` of KubeVirt."""
    if field in ("limits", "requests") and isinstance(value, Mapping):
        return {k: v for k, v in value.items() if _is_a_gpu(k)}
    if field == "gpu" and isinstance(value, Mapping):
        return {each: 1 for each in (value.get("name"),) if _is_a_gpu(each)}
    if field in ("gpus", "hostDevices") and isinstance(value, list):
        devices = [each.get("deviceName") for each in value if isinstance(each, Mapping)]
        return {each: 1 for each in devices if _is_a_gpu(each)}
    return {}


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
