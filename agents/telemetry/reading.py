"""Reads the metrics of an exporter. A device is known only if its figures are fresh and plausible."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from agents.kube.events import Reference
from agents.runtime import exposition
from agents.runtime.errors import AgentError
from agents.runtime.exposition import Sample
from agents.telemetry.device import Device
from tenancy import names
from tenancy.seconds import FRESH_SECONDS
from tenancy.units import MIB, TOLERANCE

# The reader skips these metrics, which each exporter serves for all seats of its pool. A pool can have hundreds of
# seats.
_NOT_OF_DEVICES = (names.METRIC_SEAT,)


class Trouble(StrEnum):
    """The kind of problem that makes the telemetry of a node or a device unknown."""

    MISSING = "missing"  # the exporter is missing, or its status differs from 200
    STALE = "stale"
    PARTIAL = "partial"
    IMPLAUSIBLE = "implausible"
    UNOWNED = "unowned"  # the node matches several pools
    UNJUDGED = "unjudged"  # an error of the device or of a pod on the device


class TelemetryError(AgentError):
    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


@dataclass(frozen=True, kw_only=True)
class OfPod:
    """What the exporter shows of a pod. The names of the pod are empty if the exporter does not know the pod yet."""

    uid: str
    namespace: str
    pod: str

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.pod, uid=self.uid)


@dataclass(frozen=True, kw_only=True)
class PodUse(OfPod):
    """A pod's use of one device.

    `declares` is False only if the exporter knows the pod and the pod requests no gpumem.
    """

    uuid: str
    used_bytes: int
    declares: bool = True


@dataclass(frozen=True, kw_only=True)
class ContainerCap(OfPod):
    """A container with a budget, on one device. `why_not` is "" if the driver caps the container at its budget, and
    else the reason.
    """

    container: str
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class LostDevice:
    """A device without known telemetry, and the reason. `gpu` is the index of the device."""

    gpu: int
    trouble: Trouble
    problem: str

    def __str__(self) -> str:
        return f"gpu {self.gpu}: {self.problem}"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The devices of a node that have known telemetry. `lost` has the devices that have no known telemetry.

    `uses` has the use of each pod on each device without unknown processes. `unknown_uses` maps the UUID of each device
    with unknown processes to the reason. `excluded` has the UUIDs of devices with a fault, which take no new pod. If
    the node's pool has `enforce: driver`, `caps` has the containers with a budget.
    """

    devices: tuple[Device, ...]
    age_seconds: float
    uses: tuple[PodUse, ...] = ()
    unknown_uses: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[LostDevice, ...] = ()
    excluded: frozenset[str] = frozenset()
    caps: tuple[ContainerCap, ...] = ()


_Samples = Mapping[str, Sequence[Sample]]  # The samples, by the name of the metric.
_Key = tuple[int, str]  # The index and the UUID of a device.


def parse(text: str) -> Reading:
    """Reads an exporter's metrics. Raises TelemetryError. Raises ExpositionError for an invalid or incomplete text."""
    samples = _samples(text)
    age_seconds, devices = _age_seconds(samples), _devices(samples)
    lost = [*_unreadable(samples, devices), *filter(None, map(_contradiction, devices))]
    keys = {(device.gpu, device.uuid) for device in devices}
    unattributed = _by_device(samples, names.METRIC_UNATTRIBUTED)
    unknown = _by_device(samples, names.METRIC_UNKNOWN_PROCESSES)
    if unattributed.keys() - keys:
        raise TelemetryError(Trouble.IMPLAUSIBLE, f"{names.METRIC_UNATTRIBUTED} is there for a device that is not")
    uses = _uses(samples, keys)
    unknown_uses = {}
    for device in devices:
        key = (device.gpu, device.uuid)
        if key not in unattributed:
            unknown_uses[device.uuid] = "the exporter does not report who uses it"
            continue
        used_bytes = sum(use.used_bytes for use in uses if use.uuid == device.uuid)
        if doubt := _sum_doubt(device, used_bytes, unattributed[key]):
            lost.append(LostDevice(gpu=device.gpu, trouble=Trouble.IMPLAUSIBLE, problem=doubt))
        if unknown.get(key):
            unknown_uses[device.uuid] = f"NVML does not report the memory of {unknown[key]} processes"
    gone = {each.gpu for each in lost}
    known = tuple(device for device in devices if device.gpu not in gone)
    whole = {device.uuid for device in known} - unknown_uses.keys()
    return Reading(
        devices=known,
        age_seconds=age_seconds,
        uses=tuple(use for use in uses if use.uuid in whole),
        unknown_uses=unknown_uses,
        excluded=frozenset(uuid for _, uuid in _by_device(samples, names.METRIC_UNHEALTHY)),
        caps=tuple(map(_cap, samples[names.METRIC_CAPPED])),
        lost=tuple(sorted({each.gpu: each for each in reversed(lost)}.values(), key=lambda each: each.gpu)),
    )


def _samples(text: str) -> _Samples:
    samples: dict[str, list[Sample]] = defaultdict(list)
    for sample in exposition.parse(text, _NOT_OF_DEVICES):
        samples[sample.name].append(sample)
    return samples


def _cap(sample: Sample) -> ContainerCap:
    """Reads a container's cap. A value other than 1 means that the driver does not cap the container."""
    uid, namespace, pod, container = map(_label(sample), ("pod_uid", "namespace", "pod", "container"))
    why_not = "" if sample.value == 1 else _label(sample)("reason") or "no reason is reported"
    return ContainerCap(uid=uid, namespace=namespace, pod=pod, container=container, why_not=why_not)


def _age_seconds(samples: _Samples) -> float:
    ages = [sample.value for sample in samples[names.METRIC_SAMPLE_AGE]]
    if len(ages) != 1 or not 0 <= ages[0] <= FRESH_SECONDS:
        raise TelemetryError(
            Trouble.STALE if len(ages) == 1 and ages[0] > FRESH_SECONDS else Trouble.PARTIAL,
            f"{names.METRIC_SAMPLE_AGE} is {ages or 'missing'}; needed is one of at most {FRESH_SECONDS:g} s",
        )
    return ages[0]


def _devices(samples: _Samples) -> tuple[Device, ...]:
    wanted = (names.METRIC_DEVICE_TOTAL, names.METRIC_DEVICE_USED, names.METRIC_DEVICE_FREE)
    totals, used, free = (_by_device(samples, name) for name in wanted)
    if not totals or not totals.keys() == used.keys() == free.keys():
        raise TelemetryError(Trouble.PARTIAL, "the devices' series are partial")
    for identities in ({gpu for gpu, _ in totals}, {uuid for _, uuid in totals}):
        if len(identities) != len(totals):
            raise TelemetryError(Trouble.IMPLAUSIBLE, "two devices have one index or one uuid")
    return tuple(
        Device(gpu=gpu, uuid=uuid, total_bytes=total, used_bytes=used[gpu, uuid], free_bytes=free[gpu, uuid])
        for (gpu, uuid), total in sorted(totals.items())
    )


def _unreadable(samples: _Samples, devices: Iterable[Device]) -> Iterator[LostDevice]:
    read = {device.gpu for device in devices}
    for sample in samples[names.METRIC_UNREADABLE]:
        gpu = sample.labels.get("gpu", "")
        if not (gpu.isascii() and gpu.isdigit()) or int(gpu) in read:
            raise _impossible(sample)
        yield LostDevice(gpu=int(gpu), trouble=Trouble.MISSING, problem="its exporter cannot read it")


def _contradiction(device: Device) -> LostDevice | None:
    accounted = device.used_bytes + device.free_bytes
    if device.total_bytes * (1 - TOLERANCE) <= accounted <= device.total_bytes:
        return None
    much = "more" if accounted > device.total_bytes else "far less"
    problem = f"used and free are {much} than the device has"
    return LostDevice(gpu=device.gpu, trouble=Trouble.IMPLAUSIBLE, problem=problem)


def _sum_doubt(device: Device, used_bytes: int, unattributed: int) -> str | None:
    if abs(used_bytes + unattributed - device.used_bytes) <= device.total_bytes * TOLERANCE:
        return None
    return (
        f"pods use {used_bytes // MIB} MiB and {unattributed // MIB} are unattributed, the device says "
        f"{device.used_bytes // MIB}"
    )


def _uses(samples: _Samples, devices: Collection[_Key]) -> tuple[PodUse, ...]:
    declaring = {sample.labels.get("pod_uid") for sample in samples[names.METRIC_POD_DECLARED]}
    has_ledger = bool(samples[names.METRIC_POOL_FLOOR])
    seen = set()
    found: dict[tuple[str, str], PodUse] = {}
    for sample in samples[names.METRIC_POD_USED]:
        uid, namespace, pod = map(_label(sample), ("pod_uid", "namespace", "pod"))
        device, series = _device(sample), frozenset(sample.labels.items())
        if device not in devices or device is None or not uid or not _is_amount(sample) or series in seen:
            raise _impossible(sample)
        seen.add(series)
        before = found.get((uid, device[1]))
        found[uid, device[1]] = PodUse(
            uid=uid,
            namespace=namespace,
            pod=pod,
            uuid=device[1],
            used_bytes=int(sample.value) + (before.used_bytes if before else 0),
            declares=uid in declaring or not has_ledger,
        )
    return tuple(found[key] for key in sorted(found))


def _by_device(samples: _Samples, name: str) -> Mapping[_Key, int]:
    found: dict[_Key, int] = {}
    for sample in samples[name]:
        device = _device(sample)
        if device is None or not _is_amount(sample) or device in found:
            raise _impossible(sample)
        found[device] = int(sample.value)
    return found


def _device(sample: Sample) -> _Key | None:
    gpu, uuid = map(_label(sample), ("gpu", "uuid"))
    return (int(gpu), uuid) if gpu.isascii() and gpu.isdigit() and uuid else None


def _label(sample: Sample) -> Callable[[str], str]:
    return lambda name: sample.labels.get(name, "")


def _is_amount(sample: Sample) -> bool:
    return math.isfinite(sample.value) and sample.value >= 0


def _impossible(sample: Sample) -> TelemetryError:
    return TelemetryError(
        Trouble.IMPLAUSIBLE, f"{sample.name}: an impossible series: {dict(sample.labels)} {sample.value!r}"
    )
