"""The exporter's metrics: the measurements, and the ledger next to them. Bytes and seconds."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from agents.exporter.attribution import CapReading, DeviceUse
from agents.exporter.pod_names import Recycle, Registry
from agents.node.cgroup import Container
from agents.node.pods import NodePod, Roster
from agents.runtime.exposition import Sample
from agents.telemetry.device import Device, Uncapped
from tenancy.ledger import Ledger, Pool, Sharing
from tenancy.names import (
    METRIC_API_AGE,
    METRIC_BUILD_INFO,
    METRIC_CAN_CAP,
    METRIC_CAPPED,
    METRIC_DEVICE_FREE,
    METRIC_DEVICE_TOTAL,
    METRIC_DEVICE_USED,
    METRIC_LIMIT,
    METRIC_POD_DECLARED,
    METRIC_POD_OVER,
    METRIC_POD_USED,
    METRIC_POOL_ADVERTISED,
    METRIC_POOL_FLOOR,
    METRIC_POOL_PROMISED,
    METRIC_RECYCLES,
    METRIC_SAMPLE_AGE,
    METRIC_SEAT,
    METRIC_TENANT_RECYCLES,
    METRIC_UNATTRIBUTED,
    METRIC_UNHEALTHY,
    METRIC_UNKNOWN_PROCESSES,
    METRIC_UNREADABLE,
)
from tenancy.units import MIB

HOUR = timedelta(hours=1)
HELP: Mapping[str, str] = {
    METRIC_DEVICE_TOTAL: "Memory of the device.",
    METRIC_DEVICE_USED: "Memory in use on the device, the driver's own included.",
    METRIC_DEVICE_FREE: "Memory free on the device.",
    METRIC_UNREADABLE: "Always 1, for a device that NVML cannot read; nothing else is served of it.",
    METRIC_UNHEALTHY: "Always 1, for a device with a fault that keeps new pods off it.",
    METRIC_UNATTRIBUTED: "Memory in use that no container's series shows, the driver's own included.",
    METRIC_UNKNOWN_PROCESSES: "Processes whose memory NVML does not report; their containers have no series.",
    METRIC_POD_USED: "Device memory of a container's processes; names are empty until the API reported them.",
    METRIC_POD_DECLARED: "What the pod requests of gpumem, as the scheduler counts it.",
    METRIC_POD_OVER: "What the pod uses beyond what it declared, on all devices together.",
    METRIC_LIMIT: "What NVML says that the driver holds the container to on the device.",
    METRIC_CAPPED: "1 where that is the container's budget there, else 0 with the reason.",
    METRIC_CAN_CAP: "1 where the driver can hold containers to budgets, as far as is known, else 0 with the reason.",
    METRIC_POOL_ADVERTISED: "What the nodes of the pool advertise together, by the ledger.",
    METRIC_POOL_PROMISED: "Every promise on the pool: seats and queues' quota.",
    METRIC_POOL_FLOOR: "Free memory of a device of the pool under which the watchdog acts.",
    METRIC_SEAT: "A resident's budget, all replicas together.",
    METRIC_RECYCLES: "What the watchdog recycled within the last hour, as its cap counts.",
    METRIC_TENANT_RECYCLES: "Of these, what was a tenant's that had one.",
    METRIC_SAMPLE_AGE: "Age of the NVML reading behind these samples.",
    METRIC_API_AGE: "Age of the API's answer behind names, budgets and ledger.",
    METRIC_BUILD_INFO: "Always 1; the labels tell what runs.",
}


def samples(
    uses: Iterable[DeviceUse],
    unreadable: Iterable[int],
    registry: Registry,
    now: datetime,
    *,
    age_seconds: float,
    api_age_seconds: float,
    caps: Iterable[CapReading] = (),
) -> Iterator[Sample]:
    """Every sample of a scrape at `now`; `unreadable` are the devices that NVML cannot read, by index."""
    uses = tuple(uses)
    for gpu in unreadable:
        yield Sample(name=METRIC_UNREADABLE, labels={"gpu": str(gpu)}, value=1)
    for use in uses:
        yield from _device(use, registry.roster)
    yield from _budgets(uses, registry.roster)
    if registry.pool is not None and registry.pool.caps:
        yield from _caps(caps, uses, registry.roster)
    if registry.ledger is not None and registry.pool is not None:
        yield from _ledger(registry.ledger, registry.pool)
    if registry.recycled is not None:
        yield from _recycles([each for each in registry.recycled if now - each.at < HOUR])
    yield Sample(name=METRIC_SAMPLE_AGE, value=round(age_seconds, 3))
    yield Sample(name=METRIC_API_AGE, value=round(api_age_seconds, 3))
    yield Sample(name=METRIC_BUILD_INFO, labels={"python": sys.version.partition(" ")[0]}, value=1)


def _device(use: DeviceUse, roster: Roster) -> Iterator[Sample]:
    labels = _device_labels(use.device)
    for name, value in (
        (METRIC_DEVICE_TOTAL, use.device.total_bytes),
        (METRIC_DEVICE_USED, use.device.used_bytes),
        (METRIC_DEVICE_FREE, use.device.free_bytes),
        (METRIC_UNATTRIBUTED, use.unattributed_bytes),
        (METRIC_UNKNOWN_PROCESSES, use.unknown_processes),
    ):
        yield Sample(name=name, labels=labels, value=value)
    if use.device.fault:
        yield Sample(name=METRIC_UNHEALTHY, labels=labels | {"fault": str(use.device.fault)}, value=1)
    for container, used_bytes in use.used_bytes.items():
        yield Sample(name=METRIC_POD_USED, labels=_container_labels(container, roster) | labels, value=used_bytes)


def _caps(caps: Iterable[CapReading], uses: Iterable[DeviceUse], roster: Roster) -> Iterator[Sample]:
    gpus = {}
    for use in uses:
        gpus[use.device.uuid], labels = str(use.device.gpu), _device_labels(use.device)
        yield _said(METRIC_CAN_CAP, labels, use.device.cannot_cap)
    for cap in caps:
        labels = _container_labels(cap.container, roster) | {"gpu": gpus.get(cap.uuid, ""), "uuid": cap.uuid}
        if cap.limit_bytes is not None:
            yield Sample(name=METRIC_LIMIT, labels=labels, value=cap.limit_bytes)
        yield _said(METRIC_CAPPED, labels, cap.uncapped)


def _said(name: str, labels: Mapping[str, str], why_not: Uncapped | None) -> Sample:
    """1, or 0 with the reason."""
    return Sample(name=name, labels={**labels, "reason": str(why_not)} if why_not else labels, value=int(not why_not))


def _budgets(uses: Iterable[DeviceUse], roster: Roster) -> Iterator[Sample]:
    used: dict[str, int] = {}
    for use in uses:
        for container, used_bytes in use.used_bytes.items():
            uid = roster.owner(container).pod_uid
            used[uid] = used.get(uid, 0) + used_bytes
    for pod in roster.pods:
        if pod.declared_mib:
            declared = pod.declared_mib * MIB
            over = max(used.get(pod.uid, 0) - declared, 0)
            yield Sample(name=METRIC_POD_DECLARED, labels=_pod_labels(pod), value=declared)
            yield Sample(name=METRIC_POD_OVER, labels=_pod_labels(pod), value=over)


def _recycles(recycled: Sequence[Recycle]) -> Iterator[Sample]:
    yield Sample(name=METRIC_RECYCLES, value=len(recycled))
    for tenant, recycles in sorted(Counter(each.tenant for each in recycled).items()):
        yield Sample(name=METRIC_TENANT_RECYCLES, labels={"tenant": tenant}, value=recycles)


def _ledger(ledger: Ledger, pool: Pool) -> Iterator[Sample]:
    """Of the node's own pool: every node would say the same of the others."""
    if pool.sharing is not Sharing.MEMORY:
        return
    for name, mib in (
        (METRIC_POOL_ADVERTISED, pool.advertised_mib),
        (METRIC_POOL_PROMISED, ledger.promised_mib(pool.name)),
        (METRIC_POOL_FLOOR, pool.floor_mib),
    ):
        yield Sample(name=name, labels={"pool": pool.name}, value=mib * MIB)
    for seat in ledger.seats_in(pool.name):
        labels = {"pool": pool.name, "tenant": seat.tenant, "seat": seat.name}
        yield Sample(name=METRIC_SEAT, labels=labels, value=seat.total_mib * MIB)


def _device_labels(device: Device) -> dict[str, str]:
    return {"gpu": str(device.gpu), "uuid": device.uuid}


def _pod_labels(pod: NodePod) -> dict[str, str]:
    return {"namespace": pod.namespace, "pod": pod.name, "pod_uid": pod.uid}


def _container_labels(container: Container, roster: Roster) -> dict[str, str]:
    owner = roster.owner(container)
    return {
        "namespace": owner.namespace,
        "pod": owner.pod,
        "pod_uid": owner.pod_uid,
        "container": owner.container,
    }
