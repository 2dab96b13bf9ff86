"""Finds the parts of the cluster that a stack needs and that are missing or have another version. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from agents.kube.errors import Object
from gpumem.pods import WholePod
from gpumem.preflight.declared import Declared
from gpumem.preflight.frameworks import framework_parts
from gpumem.preflight.kueue import kueue_parts
from gpumem.preflight.part import Part, State
from gpumem.preflight.pods import static_parts
from gpumem.survey import ADMISSION_SINCE, Survey
from tenancy.choices import Sharing, Source
from tenancy.host_memory.pool import Taint
from tenancy.ledger import Pool, SeveralPoolsError
from tenancy.names import (
    GPU,
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
    PROMETHEUS_OPERATOR_API,
)
from tenancy.quantity import QuantityError, parse, whole
from tenancy.reach import GPU_RESOURCES, of_device_plugin, routes
from tenancy.sharers import program_of, sharers_of_node, sharers_of_pod
from tenancy.units import MIB
from tenancy.workload import ShapeError, containers_of, map_at, maps_at, text_at

_ADMISSION_GROUP = "admissionregistration.k8s.io"
# The last version of the admission API before v1, and the flags with which the API server serves this version.
_BETA = "v1beta1"
_BETA_FLAGS = f"--feature-gates=MutatingAdmissionPolicy=true --runtime-config={_ADMISSION_GROUP}/{_BETA}=true"
_KUBE_STATE_METRICS = re.compile(r"(?:^|[/-])kube-state-metrics(?:[:@]|$)")
_NAME_LABELS = ("app.kubernetes.io/name", "k8s-app", "app")
# Matches the labels and the images of network plugins that enforce NetworkPolicies.
_ENFORCING = re.compile(
    r"calico|canal|cilium|antrea|kube-router|ovn-kube|weave-npc|azure-npm|aws-network-policy|kube-network-policies|kindnet"
)


def parts(survey: Survey, declared: Declared) -> tuple[Part, ...]:
    """Returns the parts with problems."""
    programs = {name for pod in survey.pods for name in _programs(pod)}
    return (
        *_admission(survey, declared),
        *_pools(survey, declared),
        *_memory_pools(survey, declared),
        *_quotas(survey, declared),
        *_sharers(survey, declared),
        *static_parts(survey, declared),
        *_alerts(survey, declared, programs),
        *_network(programs),
        *kueue_parts(survey, declared),
        *framework_parts(survey, declared),
    )


def _programs(pod: WholePod) -> Iterator[str]:
    """Yields the names that show a pod's program: its labels, and its images, which a mirror may rename."""
    yield from (str(pod.labels[key]) for key in _NAME_LABELS if key in pod.labels)
    yield from (text_at(container, "image") for container in containers_of(pod.spec))


def _admission(survey: Survey, declared: Declared) -> Iterator[Part]:
    if declared.ledger.admission is None:
        explained = (
            "is left out: a pod may reach a GPU without a budget, and no pod gets its class, nodes and device; budgets "
            "bind only pods that ask for gpumem"
        )
        yield Part(name="admission", state=State.MISSING, text=explained, blocks=False)
    elif declared.mutating_api == _BETA:
        if _BETA not in survey.groups.get(_ADMISSION_GROUP, ()):
            explained = (
                f"the API server does not serve {_ADMISSION_GROUP}/{_BETA}; start it with {_BETA_FLAGS}, or leave "
                "admission out"
            )
            yield Part(name="Kubernetes", state=State.MISSING, text=explained, blocks=True)
    elif survey.minor < ADMISSION_SINCE:
        needed = ".".join(map(str, ADMISSION_SINCE))
        explained = (
            f"admission needs {needed}, the API server has {survey.version}; write admission.mutating_api: {_BETA} and "
            f"start it with {_BETA_FLAGS}, leave admission out, or upgrade"
        )
        yield Part(name="Kubernetes", state=State.OTHER, text=explained, blocks=True)


def _pools(survey: Survey, declared: Declared) -> Iterator[Part]:
    by_pool: dict[str, list[Object]] = {pool.name: [] for pool in declared.ledger.pools}
    for node in survey.nodes:
        try:
            pool = declared.ledger.pool_of(map_at(node, "metadata", "labels"))
        except SeveralPoolsError as error:
            name = f"node {node['metadata']['name']}"
            yield Part(name=name, state=State.OTHER, text=str(error), blocks=True)
            continue
        if pool is not None:
            by_pool[pool.name].append(node)
    for pool in declared.ledger.pools:
        yield from _pool(pool, by_pool[pool.name])


def _pool(pool: Pool, nodes: list[Object]) -> Iterator[Part]:
    if len(nodes) not in pool.declared_nodes:
        declared = " to ".join(str(count) for count in sorted({pool.declared_nodes[0], pool.nodes}))
        yield Part(
            name=f"pool {pool.name}",
            state=State.MISSING if len(nodes) < pool.nodes else State.OTHER,
            text=f"{len(nodes)} nodes have its labels, {declared} are declared; change node_selector or nodes",
            blocks=not nodes,
        )
    unlabelled = [node for node in nodes if not _is_labelled(node)]
    if unlabelled and pool.sharing is Sharing.MEMORY and pool.source is Source.LABELS:
        yield Part(
            name="GPU feature discovery",
            state=State.MISSING,
            text=f"{_some(unlabelled)} of pool {pool.name} without {LABEL_GPU_MEMORY} and {LABEL_GPU_COUNT}; install "
            f"it, or write pools.{pool.name}.source: slices",
            blocks=True,
        )
    if without := [node for node in nodes if not _offers_gpus(node)]:
        explained = f"{_some(without)} of pool {pool.name} without allocatable {GPU}; install NVIDIA's device plugin"
        yield Part(name="device plugin", state=State.MISSING, text=explained, blocks=False)


def _some(nodes: list[Object], most: int = 3) -> str:
    names = [str(node["metadata"]["name"]) for node in nodes]
    return f"node {', '.join(names[:most])}{f' and {len(names) - most} more' if len(names) > most else ''}"


def _is_labelled(node: Object) -> bool:
    return {LABEL_GPU_MEMORY, LABEL_GPU_COUNT} <= map_at(node, "metadata", "labels").keys()


def _offers_gpus(node: Object) -> bool:
    offered: Mapping[str, object] = map_at(node, "status", "allocatable")
    try:
        return any(whole(amount) > 0 for name, amount in offered.items() if name.startswith(GPU_RESOURCES))
    except QuantityError:
        return False


def _memory_pools(survey: Survey, declared: Declared) -> Iterator[Part]:
    for pool in declared.memory_pools:
        nodes = [n for n in survey.nodes if pool.node_selector.items() <= map_at(n, "metadata", "labels").items()]
        smaller = [node for node in nodes if _offered_mib(node) < pool.allocatable_mib]
        if smaller:
            least_mib, key = min(map(_offered_mib, smaller)), f"memory_pools.{pool.name}.allocatable_mib"
            explained = (
                f"{_some(smaller)} with {least_mib} MiB of allocatable host memory, {pool.allocatable_mib} are "
                f"declared, so the pool's promises may not hold; lower {key} to {least_mib}"
            )
            yield Part(name=f"memory pool {pool.name}", state=State.OTHER, text=explained, blocks=False)
        for taint in pool.node_taints:
            lacking = [n for n in nodes if not any(_is_it(taint, t) for t in maps_at(map_at(n, "spec"), "taints"))]
            if lacking:
                first = lacking[0]["metadata"]["name"]
                explained = (
                    f"{_some(lacking)} without {taint}, so any pod may run there; kubectl taint node {first} {taint}"
                )
                yield Part(name=f"memory pool {pool.name}", state=State.MISSING, text=explained, blocks=False)


def _offered_mib(node: Object) -> int:
    return int(parse(map_at(node, "status", "allocatable").get("memory", 0)) / MIB)


def _is_it(taint: Taint, found: Object) -> bool:
    return (taint.key, taint.value, taint.effect) == (found.get("key"), found.get("value") or "", found.get("effect"))


def _sharers(survey: Survey, declared: Declared) -> Iterator[Part]:
    """Yields the other programs that hand out the GPUs of the stack's pools."""
    found: dict[str, str] = {}
    names = declared.ledger.names
    selectors = [pool.node_selector for pool in declared.ledger.pools]
    for node in survey.nodes:
        labels = map_at(node, "metadata", "labels")
        if any(selector.items() <= labels.items() for selector in selectors):
            for name, what in sharers_of_node(node):
                found.setdefault(name, f"node {node['metadata']['name']} has {what}")
    ours = {
        node["metadata"]["name"]
        for node in survey.nodes
        if any(selector.items() <= map_at(node, "metadata", "labels").items() for selector in selectors)
    }
    for pod in survey.pods:
        if pod.spec.get("nodeName") and pod.spec["nodeName"] not in ours:
            continue
        with suppress(QuantityError, ShapeError):
            if name := program_of(pod.namespace, pod.metadata, pod.spec):
                found.setdefault(name, f"pod {pod} is a part of it")
            reaches = any(routes(pod.spec, names))
            for name, what in sharers_of_pod(pod.metadata, pod.spec, names.domain):
                if reaches or not what.startswith("schedulerName "):
                    found.setdefault(name, f"pod {pod} has {what}")
    for name, evidence in sorted(found.items()):
        explained = (
            f"hands out the GPUs of this stack too ({evidence}), and neither counts what the other promised; remove it "
            "from the nodes of the pools, or leave these nodes out"
        )
        yield Part(name=name, state=State.OTHER, text=explained, blocks=True)


def _quotas(survey: Survey, declared: Declared) -> Iterator[Part]:
    """Compares what the queues hand out with what the device plugin offers, MIG devices and whole ones apart."""
    promised = Counter[tuple[str, str]]()
    for quota in declared.ledger.quotas:
        if of_device_plugin(quota.resource):
            promised[quota.pool, quota.resource] += quota.nominal
    for (name, resource), most in sorted(promised.items()):
        pool = declared.ledger.pool(name)
        nodes = [n for n in survey.nodes if pool and pool.matches(map_at(n, "metadata", "labels"))]
        offered = sum(_capacity(node, resource) for node in nodes)
        if pool and len(nodes) == pool.nodes and offered < most:
            explained = (
                f"its queues hand out {most} {resource}, and its nodes have {offered}; lower the quotas, or divide the "
                "devices in another way"
            )
            yield Part(name=f"pool {name}", state=State.OTHER, text=explained, blocks=False)


def _capacity(node: Object, resource: str) -> int:
    try:
        return whole(map_at(node, "status", "capacity").get(resource, 0))
    except QuantityError:
        return 0


def _alerts(survey: Survey, declared: Declared, programs: Iterable[str]) -> Iterator[Part]:
    if not declared.has_alerts:
        return
    group, _, version = PROMETHEUS_OPERATOR_API.partition("/")
    if declared.has_operator and version not in survey.groups.get(group, ()):
        explained = f"alerts needs {PROMETHEUS_OPERATOR_API}; install it, or write alerts.operator: false"
        yield Part(name="Prometheus Operator", state=State.MISSING, text=explained, blocks=True)
    if not any(map(_KUBE_STATE_METRICS.search, programs)):
        explained = "no pod has its label or image; alerts on Jobs and pods would never fire; install it"
        yield Part(name="kube-state-metrics", state=State.MISSING, text=explained, blocks=False)


def _network(programs: Iterable[str]) -> Iterator[Part]:
    if not any(map(_ENFORCING.search, programs)):
        explained = (
            "no known network plugin that enforces NetworkPolicies has a pod; the agents' ports may be open to all"
        )
        yield Part(name="NetworkPolicies", state=State.UNKNOWN, text=explained, blocks=False)
