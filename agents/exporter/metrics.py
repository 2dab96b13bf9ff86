"""The exporter's metrics of devices, containers and the ledger, in bytes and seconds."""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from agents.exporter.attribution import CapReading, DeviceUse, NodeUse
from agents.exporter.registry import Recycle, Registry
from agents.node.cgroup import Container
from agents.node.pods import NodePod, NodePods
from agents.runtime import items
from agents.runtime.exposition import Metric, Sample
from agents.runtime.items import ItemProblems
from agents.telemetry.device import Device, Uncapped
from tenancy import names
from tenancy.choices import Sharing
from tenancy.devices.recycle import total_overshoot
from tenancy.ledger import Ledger, Pool
from tenancy.units import MIB

HOUR = timedelta(hours=1)
_DEVICE = ("gpu", "uuid")
_POD = ("namespace", "pod", "pod_uid")
METRICS: Mapping[str, Metric] = {
    **items.METRICS,
    names.METRIC_DEVICE_TOTAL: Metric(text="Memory of the device.", labels=_DEVICE),
    names.METRIC_DEVICE_USED: Metric(text="Memory in use on the device, including the driver's.", labels=_DEVICE),
    names.METRIC_DEVICE_FREE: Metric(text="Memory free on the device.", labels=_DEVICE),
    names.METRIC_UNREADABLE: Metric(
        text="Always 1; only for a device that NVML cannot read. The device has no other series.", labels=("gpu",)
    ),
    names.METRIC_UNHEALTHY: Metric(
        text="Always 1, for a device with a fault that keeps new pods off it.", labels=(*_DEVICE, "fault")
    ),
    names.METRIC_UNATTRIBUTED: Metric(
        text="Memory in use that no container's series shows, including the driver's.", labels=_DEVICE
    ),
    names.METRIC_UNKNOWN_PROCESSES: Metric(text="Processes with a use that NVML does not report.", labels=_DEVICE),
    names.METRIC_POD_USED: Metric(
        text="Device memory of a container's processes; the names are empty until the API has reported them.",
        labels=(*_POD, "container", *_DEVICE),
    ),
    names.METRIC_POD_DECLARED: Metric(text="The pod's gpumem, as the scheduler counts it.", labels=_POD),
    names.METRIC_POD_OVER: Metric(
        text="The pod's use beyond its gpumem, which is divided equally among the pod's devices.", labels=_POD
    ),
    names.METRIC_LIMIT: Metric(
        text="The cap of the container on the device, as NVML reports it.", labels=(*_POD, "container", *_DEVICE)
    ),
    names.METRIC_CAPPED: Metric(
        text="1 if the cap equals the container's part of the budget on the device, else 0 with the reason.",
        labels=(*_POD, "container", *_DEVICE, "reason"),
    ),
    names.METRIC_CAN_CAP: Metric(
        text="1 if the driver can enforce budgets of containers, as far as is known, else 0 with the reason.",
        labels=(*_DEVICE, "reason"),
    ),
    names.METRIC_POOL_ADVERTISED: Metric(text="The gpumem of all nodes of the pool, by the ledger.", labels=("pool",)),
    names.METRIC_POOL_PROMISED: Metric(
        text="All promises of the pool: the seats, and the quota of queues.", labels=("pool",)
    ),
    names.METRIC_POOL_FLOOR: Metric(
        text="Free memory of a device of the pool below which the watchdog acts.", labels=("pool",)
    ),
    names.METRIC_SEAT: Metric(text="A resident's budget, all replicas together.", labels=("pool", "tenant", "seat")),
    names.METRIC_RECYCLES: Metric(text="The watchdog's recycles within the last hour."),
    names.METRIC_TENANT_RECYCLES: Metric(
        text="The watchdog's recycles within the last hour, by tenant.", labels=("tenant",)
    ),
    names.METRIC_SAMPLE_AGE: Metric(text="Age of the NVML reading that the other metrics show."),
    names.METRIC_API_AGE: Metric(text="Age of the API server's answer with the names, the budgets and the ledger."),
    names.METRIC_BUILD_INFO: Metric(text="Always 1; the label has the version of Python.", labels=("python",)),
}


def samples(
    node: NodeUse,
    registry: Registry,
    now: datetime,
    problems: ItemProblems,
    *,
    age_seconds: float,
    api_age_seconds: float,
) -> Iterator[Sample]:
    """Yields the samples of all metrics for a scrape. An item with an error has no samples, but the samples of all
    other items are complete.
    """

    def of(kind: str, item: str, found: Iterable[Sample]) -> Iterable[Sample]:
        return problems.judge(f"samples of {kind}", item, partial(tuple, found), lambda why: None) or ()

    for gpu in sorted(node.unreadable):
        yield Sample(name=names.METRIC_UNREADABLE, labels={"gpu": str(gpu)}, value=1)
    for use in node.uses:
        yield from of("device", use.device.uuid, _device(use, registry.node_pods))
    used = _used_by_pod(node.uses, registry.node_pods)
    for pod in registry.node_pods.pods:
        yield from of("pod", f"{pod.namespace}/{pod.name}", _budget(pod, used[pod.uid]))
    if registry.caps:
        gpus = {use.device.uuid: str(use.device.gpu) for use in node.uses}
        for use in node.uses:
            yield _one_or_reason(names.METRIC_CAN_CAP, _device_labels(use.device), use.device.cannot_cap)
        for cap in node.caps:
            yield from of("container", cap.container.id, _cap(cap, gpus, registry.node_pods))
    if registry.ledger is not None and registry.pool is not None:
        yield from _ledger(registry.ledger, registry.pool)
    if registry.recycled is not None:
        yield from _recycles([each for each in registry.recycled if now - each.at < HOUR])
    yield from items.samples(problems)
    yield Sample(name=names.METRIC_SAMPLE_AGE, value=round(age_seconds, 3))
    yield Sample(name=names.METRIC_API_AGE, value=round(api_age_seconds, 3))
    yield Sample(name=names.METRIC_BUILD_INFO, labels={"python": sys.version.partition(" ")[0]}, value=1)


def _device(use: DeviceUse, node_pods: NodePods) -> Iterator[Sample]:
    labels = _device_labels(use.device)
    for name, value in (
        (names.METRIC_DEVICE_TOTAL, use.device.total_bytes),
        (names.METRIC_DEVICE_USED, use.device.used_bytes),
        (names.METRIC_DEVICE_FREE, use.device.free_bytes),
        (names.METRIC_UNATTRIBUTED, use.unattributed_bytes),
        (names.METRIC_UNKNOWN_PROCESSES, use.unknown_processes),
    ):
        yield Sample(name=name, labels=labels, value=value)
    if use.device.fault:
        yield Sample(name=names.METRIC_UNHEALTHY, labels=labels | {"fault": str(use.device.fault)}, value=1)
    for container, used_bytes in use.used_bytes.items():
        yield Sample(
            name=names.METRIC_POD_USED, labels=_container_labels(container, node_pods) | labels, value=used_bytes
        )


def _cap(cap: CapReading, gpus: Mapping[str, str], node_pods: NodePods) -> Iterator[Sample]:
    labels = _container_labels(cap.container, node_pods) | {"gpu": gpus.get(cap.uuid, ""), "uuid": cap.uuid}
    if cap.limit_bytes is not None:
        yield Sample(name=names.METRIC_LIMIT, labels=labels, value=cap.limit_bytes)
    yield _one_or_reason(names.METRIC_CAPPED, labels, cap.uncapped)


def _one_or_reason(name: str, labels: Mapping[str, str], why_not: Uncapped | None) -> Sample:
    """Returns a gauge with the value 1 if `why_not` is None. For a reason, the gauge has the value 0 and the label
    `reason`."""
    return Sample(name=name, labels={**labels, "reason": str(why_not)} if why_not else labels, value=int(not why_not))


def _used_by_pod(uses: Iterable[DeviceUse], node_pods: NodePods) -> Mapping[str, Counter[str]]:
    """Returns the bytes that each pod uses, by the pod's UID and the device's UUID."""
    used: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for use in uses:
        for container, used_bytes in use.used_bytes.items():
            used[node_pods.owner(container).pod_uid][use.device.uuid] += used_bytes
    return used


def _budget(pod: NodePod, used: Mapping[str, int]) -> Iterator[Sample]:
    if pod.declared_mib:
        declared = pod.declared_mib * MIB
        over = total_overshoot(used=used, declared=declared, placed_on=pod.uuids)
        yield Sample(name=names.METRIC_POD_DECLARED, labels=_pod_labels(pod), value=declared)
        yield Sample(name=names.METRIC_POD_OVER, labels=_pod_labels(pod), value=over)


def _recycles(recycled: Sequence[Recycle]) -> Iterator[Sample]:
    yield Sample(name=names.METRIC_RECYCLES, value=len(recycled))
    for tenant, recycles in sorted(Counter(each.tenant for each in recycled).items()):
        yield Sample(name=names.METRIC_TENANT_RECYCLES, labels={"tenant": tenant}, value=recycles)


def _ledger(ledger: Ledger, pool: Pool) -> Iterator[Sample]:
    """Yields the figures of the ledger for the node's pool. Each exporter serves only the figures of its own node's
    pool.
    """
    if pool.sharing is not Sharing.MEMORY:
        return
    for name, mib in (
        (names.METRIC_POOL_ADVERTISED, pool.advertised_mib),
        (names.METRIC_POOL_PROMISED, ledger.promised_mib(pool.name)),
        (names.METRIC_POOL_FLOOR, pool.floor_mib),
    ):
        yield Sample(name=name, labels={"pool": pool.name}, value=mib * MIB)
    for seat in ledger.seats_in(pool.name):
        labels = {"pool": pool.name, "tenant": seat.tenant, "seat": seat.name}
        yield Sample(name=names.METRIC_SEAT, labels=labels, value=seat.total_mib * MIB)


def _device_labels(device: Device) -> dict[str, str]:
    return {"gpu": str(device.gpu), "uuid": device.uuid}


def _pod_labels(pod: NodePod) -> dict[str, str]:
    return {"namespace": pod.namespace, "pod": pod.name, "pod_uid": pod.uid}


def _container_labels(container: Container, node_pods: NodePods) -> dict[str, str]:
    owner = node_pods.owner(container)
    pod = {"namespace": owner.namespace, "pod": owner.pod, "pod_uid": owner.pod_uid}
    return {**pod, "container": owner.container}
