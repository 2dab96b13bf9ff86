"""Reads a folder of manifests as if it were a cluster, for `init --from-git`: plain, Kustomize, Flux and Argo CD.

A folder names workloads, and neither nodes nor cards. So each node selector of the GPU workloads stands for one node
with one card, of the product that the selector names. Charts are not rendered. A chart's values show a GPU by their
resources, as most charts have them, by the controllers of bjw-s' app-template, or by `gpu.enabled` of Ollama's chart.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any

from agents.kube.errors import ApiError, Object
from agents.kube.nodes import NODES
from agents.kube.pods import PODS
from agents.runtime.errors import AgentError
from gpumem import survey
from gpumem.init.evidence import LABEL_PRODUCT
from gpumem.init.propose import DOMAIN, StackProposal
from gpumem.init.sourced import assumed
from tenancy import reach
from tenancy.names import GPU, LABEL_GPU_REPLICAS, LABEL_HOSTNAME, Names
from tenancy.quantity import QuantityError
from tenancy.workload import ShapeError

_ASSUMED_VERSION = "v1.36"
_NODE = "not-in-this-folder"
_PRESENT = {f"{GPU}.present": "true"}
_TEMPLATED = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Rollout", "Job")
# Parts of the charts that install NVIDIA's programs, which are no workloads.
_NVIDIAS = ("nvidia-device-plugin", "gpu-operator", "gpu-feature-discovery", "dcgm-exporter")
_POD_FIELDS = ("runtimeClassName", "nodeSelector", "tolerations", "priorityClassName", "affinity", "schedulerName")
_LISTS = {
    survey.NAMESPACES: "Namespace",
    survey.PRIORITIES: "PriorityClass",
    survey.RUNTIME_CLASSES: "RuntimeClass",
    survey.QUOTAS: "ResourceQuota",
    survey.DEPLOYMENTS: "Deployment",
    survey.AUTOSCALERS: "HorizontalPodAutoscaler",
    survey.SCALED_OBJECTS: "ScaledObject",
}


class FolderError(AgentError):
    """Raised if the folder cannot be read, or if no workload in it reaches a GPU."""


@dataclass
class Folder:
    """The objects of a folder, with the namespaces in which they would be. It answers as the API server does."""

    path: Path
    objects: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    nodes: dict[str, Object] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    def get(self, path: str) -> Object:
        """Returns the version, which is assumed, and no API group."""
        if path == survey.VERSION:
            return {"gitVersion": _ASSUMED_VERSION}
        if path == survey.GROUPS:
            return {"groups": [{"name": "keda.sh", "versions": [{"version": "v1alpha1"}]}]}
        raise ApiError(f"GET {path}", 404, "NotFound", "a folder has none")

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        """Yields the objects of a list."""
        if path == NODES:
            yield from self.nodes.values()
        elif path == PODS:
            yield from self.pods
        else:
            yield from (each for each in self.objects if each["kind"] == _LISTS.get(path))
        if path == survey.NAMESPACES:
            declared = {each["metadata"]["name"] for each in self.objects if each["kind"] == "Namespace"}
            used = {pod["metadata"]["namespace"] for pod in self.pods}
            yield from ({"metadata": {"name": name}} for name in sorted(used - declared))


def read(path: Path) -> Folder:
    """Reads the YAML files of a folder. Raises FolderError."""
    if not path.is_dir():
        raise FolderError(f"--from-git {path}: is no folder")
    found = Folder(path)
    placed = [*_documents(found)]
    spaces = _namespaces(placed)
    shares = max((_shares(each) for _, each in placed), default=1)
    wanted = []
    for at, item in placed:
        namespace = _namespace(at, item, spaces)
        found.objects.append({**item, "metadata": {**item["metadata"], "namespace": namespace}})
        for kind, name, template, replicas in _workloads(at, item):
            pod = _pod(kind, name, namespace, template)
            if replicas and _reaches(pod):
                wanted.append((pod, replicas))
    # A pod without a selector may run on the node of another one, so the others come first.
    for pod, replicas in sorted(wanted, key=lambda each: not each[0]["spec"].get("nodeSelector")):
        node = _node(found, pod, shares)
        found.pods += [_numbered(pod, number, node) for number in range(replicas)]
    if not found.pods:
        raise FolderError(
            f"no workload in {path} reaches a GPU ({len(found.objects)} objects, {len(found.unread)} files unread)"
        )
    return found


def guessed(proposal: StackProposal, folder: Folder) -> StackProposal:
    """Returns the proposal with the numbers of its nodes and cards marked, because the folder shows neither."""
    reason = "the folder names no node; write how many cards each has"
    selectors = {
        pool.name: folder.nodes[pool.nodes[0]]["metadata"]["annotations"] or _PRESENT for pool in proposal.pools
    }
    if not all(_apart(one, other) for one, other in combinations(selectors.values(), 2)):
        selectors = {pool.name: {LABEL_HOSTNAME: pool.nodes[0]} for pool in proposal.pools}
    pools = tuple(
        replace(
            pool,
            selector=selectors[pool.name],
            device_count=assumed(pool.device_count.value, reason),
        )
        for pool in proposal.pools
    )
    unread = [f"{len(folder.unread)} files are no plain YAML, such as {folder.unread[0]}"] if folder.unread else []
    unknown = ["nodes, cards and versions of the cluster: one node with one card is assumed for each node selector"]
    named = []
    for pool in proposal.pools:
        if LABEL_HOSTNAME in selectors[pool.name]:
            chosen = _common([folder.nodes[node] for node in pool.nodes])
            named.append(f"pool {pool.name} stands for nodes with {' '.join(f'{k}={v}' for k, v in chosen.items())}")
    return replace(proposal, pools=pools, unknown=(*unknown, *named, *unread, *proposal.unknown))


def _common(nodes: Sequence[Object]) -> Mapping[str, str]:
    """Returns the labels that the selectors of all these nodes have in common."""
    first, *others = [node["metadata"]["annotations"] for node in nodes]
    return {key: value for key, value in first.items() if all(each.get(key) == value for each in others)} or _PRESENT


def _apart(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return any(other.get(key, value) != value for key, value in one.items())


def _documents(found: Folder) -> Iterator[tuple[PurePosixPath, Object]]:
    try:
        import yaml  # noqa: PLC0415 (the plugin has none)
    except ImportError:
        raise FolderError("--from-git needs PyYAML: pip install the wheel of gpu-tenancy") from None

    class Loader(yaml.SafeLoader):
        """A loader that reads a value with an unknown tag as null."""

    Loader.add_multi_constructor("", lambda loader, suffix, node: None)
    files = [*found.path.rglob("*.yaml"), *found.path.rglob("*.yml")]
    for file in sorted(files):
        at = PurePosixPath(file.relative_to(found.path).as_posix())
        if any(part.startswith(".") for part in at.parts):
            continue
        try:
            documents = [*yaml.load_all(file.read_text(encoding="utf-8"), Loader)]
        except (yaml.YAMLError, OSError, ValueError):
            found.unread.append(str(at))
            continue
        for each in documents:
            yield from ((at, item) for item in _items(at, each))


def _items(at: PurePosixPath, document: object) -> Iterator[Object]:
    if not isinstance(document, Mapping):
        return
    item = dict(document)
    if at.name in ("values.yaml", "values.yml") and "kind" not in item:
        yield {"kind": "HelmValues", "metadata": {"name": at.parent.name or "release"}, "spec": {"values": item}}
    elif at.stem == "kustomization" or isinstance(item.get("metadata"), Mapping):
        metadata = item.get("metadata") or {"name": at.parent.name}
        if isinstance(metadata.get("name"), str) and _is_plain(item):
            yield {**item, "kind": str(item.get("kind") or "Kustomization"), "metadata": dict(metadata)}
    if item.get("kind") == "List" or str(item.get("kind")).endswith("List"):
        for each in _listed(item.get("items")):
            yield from _items(at, each)


def _is_plain(item: Object) -> bool:
    """Returns False for an object of a template, such as one with `spec: "{{ toYaml .Values.spec }}"`."""
    metadata = _map(item.get("metadata"))
    maps = (item.get("spec"), metadata.get("labels"), metadata.get("annotations"))
    texts = (item.get("handler"), metadata.get("namespace"))
    return all(each is None or isinstance(each, Mapping) for each in maps) and all(
        each is None or (isinstance(each, str) and "{{" not in each) for each in texts
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _namespaces(placed: Sequence[tuple[PurePosixPath, Object]]) -> dict[PurePosixPath, tuple[str, bool]]:
    """Returns the namespace that Kustomize, Flux or Argo CD gives to a folder, and whether it replaces another."""
    found: dict[PurePosixPath, tuple[str, bool]] = {}
    for at, item in placed:
        spec = _map(item.get("spec"))
        if item["kind"] == "Kustomization" and at.stem == "kustomization" and isinstance(item.get("namespace"), str):
            found[at.parent] = (item["namespace"], True)
        elif item["kind"] == "Kustomization" and isinstance(spec.get("targetNamespace"), str):
            found.setdefault(
                PurePosixPath(str(spec.get("path") or ".").removeprefix("./")), (spec["targetNamespace"], True)
            )
        elif item["kind"] == "Application":
            namespace = _map(spec.get("destination")).get("namespace")
            for source in _sources(spec):
                if isinstance(namespace, str) and isinstance(source.get("path"), str):
                    found.setdefault(PurePosixPath(source["path"]), (namespace, False))
    return found


def _namespace(at: PurePosixPath, item: Object, spaces: Mapping[PurePosixPath, tuple[str, bool]]) -> str:
    spec, own = _map(item.get("spec")), item["metadata"].get("namespace")
    if item["kind"] == "Application":
        return str(_map(spec.get("destination")).get("namespace") or "default")
    given, replaces = next((spaces[each] for each in at.parents if each in spaces), ("", False))
    target = spec.get("targetNamespace") if item["kind"] == "HelmRelease" else None
    return str(target or (given if replaces else None) or own or given or "default")


def _workloads(at: PurePosixPath, item: Object) -> Iterator[tuple[str, str, Object, int]]:
    """Yields the kind, the name, the pod template and the replicas of each workload that an object makes."""
    kind, name, spec = item["kind"], str(item["metadata"]["name"]), _map(item.get("spec"))
    if kind == "Pod":
        yield kind, name, {"metadata": item["metadata"], "spec": spec}, 1
    elif kind == "CronJob":
        yield kind, name, _map(_map(_map(spec.get("jobTemplate")).get("spec")).get("template")), 1
    elif kind in _TEMPLATED:
        yield kind, name, _map(spec.get("template")), _count(spec.get("replicas", spec.get("parallelism", 1)))
    elif kind == "HelmRelease":
        chart = str(
            _map(_map(spec.get("chart")).get("spec")).get("chart") or _map(spec.get("chartRef")).get("name") or ""
        )
        yield from _of_chart(name, chart, _map(spec.get("values")))
    elif kind == "HelmValues":
        yield from _of_chart(name, name, _map(spec.get("values")))
    elif kind == "Application":
        for source in _sources(spec):
            helm = _map(source.get("helm"))
            values = _map(helm.get("valuesObject")) or _map(_parsed(helm.get("values")))
            yield from _of_chart(str(helm.get("releaseName") or name), str(source.get("chart") or name), values)
    elif kind == "Kustomization":
        for given in map(_map, _listed(item.get("helmCharts"))):
            named = str(given.get("name") or "")
            yield from _of_chart(str(given.get("releaseName") or named), named, _map(given.get("valuesInline")))


def _sources(spec: Object) -> list[Object]:
    return [_map(each) for each in [spec.get("source"), *_listed(spec.get("sources"))] if each]


def _of_chart(release: str, chart: str, values: Object) -> Iterator[tuple[str, str, Object, int]]:
    if any(part in f"{chart} {release}" for part in _NVIDIAS):
        return
    controllers = _map(values.get("controllers"))
    if controllers:
        common = _map(values.get("defaultPodOptions"))
        for key, controller in controllers.items():
            each = _map(controller)
            spec = {**common, **_map(each.get("pod"))}
            spec["containers"] = [
                {**_map(value), "name": name, "env": _env(_map(value).get("env"))}
                for name, value in _map(each.get("containers")).items()
            ]
            name = release if len(controllers) == 1 or key in ("main", release) else f"{release}-{key}"
            kind = {"statefulset": "StatefulSet", "daemonset": "DaemonSet", "cronjob": "CronJob"}.get(
                str(each.get("type", "")).lower(), "Deployment"
            )
            yield kind, name, {"spec": spec}, _count(each.get("replicas", 1))
        return
    containers = [*_containers(values, "main")]
    spec = {key: value for key in _POD_FIELDS if (value := next(_values_of(values, key), None))}
    replicas = values.get("replicaCount", values.get("replicas", 1))
    yield "Deployment", release, {"spec": {**spec, "containers": containers}}, _count(replicas)


def _containers(values: Object, name: str) -> Iterator[Object]:
    """Yields a container for each part of a chart's values that has resources, or a GPU switched on."""
    gpu = _map(values.get("gpu"))
    if gpu.get("enabled") and gpu.get("type", "nvidia") == "nvidia":
        resource = str(gpu.get("nvidiaResource") or GPU)
        yield {"name": name, "resources": {"limits": {resource: _count(gpu.get("number", 1))}}}
    elif values.get("resources"):
        env = values.get("env") or values.get("extraEnv") or values.get("extraEnvVars")
        yield {"name": name, "resources": _map(values["resources"]), "env": _env(env)}
    for key, value in values.items():
        if isinstance(value, Mapping) and key != "resources":
            yield from _containers(dict(value), str(key))


def _env(given: object) -> list[Object]:
    if isinstance(given, Mapping):
        return [
            {"name": str(key), "value": str(value)} for key, value in given.items() if not isinstance(value, Mapping)
        ]
    return [dict(each) for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []


def _values_of(values: Object, wanted: str) -> Iterator[object]:
    if wanted in values:
        yield values[wanted]
    for value in values.values():
        if isinstance(value, Mapping):
            yield from _values_of(dict(value), wanted)


def _shares(item: object) -> int:
    """Returns the replicas by which a device plugin's configuration shares each card, or 1."""
    if isinstance(item, str):
        shared = "replicas:" in item and ("timeSlicing:" in item or "mps:" in item)
        parsed = _parsed(item) if shared else None
        return _shares(parsed) if isinstance(parsed, Mapping) else 1
    if isinstance(item, list):
        return max(map(_shares, item), default=1)
    if not isinstance(item, Mapping):
        return 1
    found = [_map(item.get(way)) for way in ("timeSlicing", "mps")]
    listed = [_map(each) for way in found for each in _listed(way.get("resources"))]
    replicas = [_count(each.get("replicas", 1)) for each in listed]
    return max([1, *replicas, *(_shares(value) for value in item.values())])


def _pod(kind: str, name: str, namespace: str, template: Object) -> Object:
    metadata, spec = _map(template.get("metadata")), copy.deepcopy(_map(template.get("spec")))
    owner = [{"apiVersion": "v1", "kind": kind, "name": name, "uid": name, "controller": True}]
    kept = {key: _map(metadata.get(key)) for key in ("labels", "annotations")}
    owners = {"ownerReferences": owner} if kind != "Pod" else {}
    return {"metadata": {"name": name, "namespace": namespace, **kept, **owners}, "spec": spec, "status": {}}


def _numbered(pod: Object, number: int, node: str) -> Object:
    metadata = pod["metadata"]
    uid = f"{metadata['namespace']}/{metadata['name']}-{number}"
    return {**pod, "metadata": {**metadata, "uid": uid}, "spec": {**pod["spec"], "nodeName": node}}


def _reaches(pod: Object) -> bool:
    try:
        return any(reach.routes(pod["spec"], Names(DOMAIN)))
    except (QuantityError, ShapeError):
        return False


def _node(found: Folder, pod: Object, shares: int) -> str:
    """Returns the name of the node that stands for the pod's node selector, and adds it. Its annotations have the
    selector, because the folder shows no other label of the node."""
    selector = {str(key): str(value) for key, value in sorted(_map(pod["spec"].get("nodeSelector")).items())}
    own = (name for name, node in found.nodes.items() if node["metadata"]["annotations"] == selector or not selector)
    name = next(own, None)
    if name is None:
        name = f"{_NODE}-{len(found.nodes) + 1}" if found.nodes else _NODE
        shared = {LABEL_GPU_REPLICAS: str(shares), f"{GPU}.sharing-strategy": "time-slicing"} if shares > 1 else {}
        labels = {LABEL_PRODUCT: name.replace(_NODE, "gpu"), **_PRESENT, **selector, **shared}
        units = {GPU: str(shares)}
        found.nodes[name] = {
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": selector},
            "spec": {},
            "status": {"capacity": units, "allocatable": units},
        }
    return name


def _parsed(text: object) -> object:
    import yaml  # noqa: PLC0415

    try:
        return yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError:
        return None


def _map(value: object) -> dict[str, Any]:
    return {str(key): each for key, each in value.items()} if isinstance(value, Mapping) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 1
