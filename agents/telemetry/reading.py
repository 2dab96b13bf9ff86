"""One exporter's answer, accepted only if it is fresh and possible: each device for itself."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from agents.runtime import exposition
from agents.runtime.errors import AgentError
from agents.runtime.exposition import Sample
from agents.telemetry.device import Device
from tenancy.names import (
    METRIC_CAPPED,
    METRIC_DEVICE_FREE,
    METRIC_DEVICE_TOTAL,
    METRIC_DEVICE_USED,
    METRIC_POD_DECLARED,
    METRIC_POD_USED,
    METRIC_POOL_FLOOR,
    METRIC_SAMPLE_AGE,
    METRIC_SEAT,
    METRIC_UNATTRIBUTED,
    METRIC_UNHEALTHY,
    METRIC_UNKNOWN_PROCESSES,
    METRIC_UNREADABLE,
)
from tenancy.units import MIB, TOLERANCE

# Older samples tell nothing of the memory that is free now.
FRESH_SECONDS = 30.0

# Of the ledger's seats there may be a thousand, and each exporter of the pool serves them.
_NOT_OF_DEVICES = (METRIC_SEAT,)


class Trouble(StrEnum):
    """Why nothing is known."""

    MISSING = "missing"  # no exporter, or no answer of status 200
    STALE = "stale"
    PARTIAL = "partial"
    IMPLAUSIBLE = "implausible"
    UNOWNED = "unowned"  # several pools match the node


class TelemetryError(AgentError):
    """A node's telemetry cannot be believed."""

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(message)
        self.trouble = trouble


@dataclass(frozen=True, kw_only=True)
class PodUse:
    """What one pod has of one device; the names are empty where the exporter does not know them yet. `declares` is
    False where the exporter knows that it declared none."""

    uid: str
    namespace: str
    pod: str
    uuid: str
    used_bytes: int
    declares: bool = True


@dataclass(frozen=True, kw_only=True)
class ContainerCap:
    """A container that the driver is to hold to its budget, on one device; `why_not` is "" where it does."""

    uid: str
    namespace: str
    pod: str
    container: str
    why_not: str = ""


@dataclass(frozen=True, kw_only=True)
class LostDevice:
    """A device of which nothing is known, and why; `gpu` is its index."""

    gpu: int
    trouble: Trouble
    problem: str

    def __str__(self) -> str:
        return f"gpu {self.gpu}: {self.problem}"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The devices of which something is known, and those that are `lost`, by index. `uses` is who uses which, where
    that is wholly known; `unknown_uses` are, by uuid, the devices where it is not, and why. `excluded`
    are the uuids of devices with a fault, which take no new pod. `caps` are of a pool whose driver holds budgets."""

    devices: tuple[Device, ...]
    age_seconds: float
    uses: tuple[PodUse, ...] = ()
    unknown_uses: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[LostDevice, ...] = ()
    excluded: frozenset[str] = frozenset()
    caps: tuple[ContainerCap, ...] = ()


def parse(text: str) -> Reading:
    """Raises TelemetryError, and exposition.ExpositionError for a text that breaks off."""
    samples = exposition.parse(text, _NOT_OF_DEVICES)
    age_seconds, devices = _age_seconds(samples), _devices(samples)
    lost = [*_unreadable(samples, devices), *filter(None, map(_contradiction, devices))]
    keys = {(device.gpu, device.uuid) for device in devices}
    unattributed, unknown = _by_device(samples, METRIC_UNATTRIBUTED), _by_device(samples, METRIC_UNKNOWN_PROCESSES)
    if unattributed.keys() - keys:
        raise TelemetryError(Trouble.IMPLAUSIBLE, f"{METRIC_UNATTRIBUTED} is there for a device that is not")
    uses = _uses(samples, keys)
    unknown_uses = {}
    for device in devices:
        key = (device.gpu, device.uuid)
        if key not in unattributed:
            unknown_uses[device.uuid] = "the exporter does not report who uses it"
            continue
        if doubt := _sum_doubt(device, (use.used_bytes for use in uses if use.uuid == device.uuid), unattributed[key]):
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
        excluded=frozenset(uuid for _, uuid in _by_device(samples, METRIC_UNHEALTHY)),
        caps=tuple(_caps(samples)),
        lost=tuple(sorted({each.gpu: each for each in reversed(lost)}.values(), key=lambda each: each.gpu)),
    )


def _caps(samples: Iterable[Sample]) -> Iterator[ContainerCap]:
    """Anything but a 1 is no cap."""
    for sample in samples:
        if sample.name == METRIC_CAPPED:
            labels = sample.labels
            yield ContainerCap(
                uid=labels.get("pod_uid", ""),
                namespace=labels.get("namespace", ""),
                pod=labels.get("pod", ""),
                container=labels.get("container", ""),
                why_not="" if sample.value == 1 else labels.get("reason", "") or "for a reason that is not told",
            )


def _age_seconds(samples: Iterable[Sample]) -> float:
    ages = [sample.value for sample in samples if sample.name == METRIC_SAMPLE_AGE]
    if len(ages) != 1 or not 0 <= ages[0] <= FRESH_SECONDS:
        raise TelemetryError(
            Trouble.STALE if len(ages) == 1 and ages[0] > FRESH_SECONDS else Trouble.PARTIAL,
            f"{METRIC_SAMPLE_AGE} is {ages or 'missing'}; needed is one of at most {FRESH_SECONDS:g} s",
        )
    return ages[0]


def _devices(samples: Sequence[Sample]) -> tuple[Device, ...]:
    totals, used, free = (
        _by_device(samples, name) for name in (METRIC_DEVICE_TOTAL, METRIC_DEVICE_USED, METRIC_DEVICE_FREE)
    )
    if not totals or not totals.keys() == used.keys() == free.keys():
        raise TelemetryError(Trouble.PARTIAL, "the devices' series are partial")
    for identities in ({gpu for gpu, _ in totals}, {uuid for _, uuid in totals}):
        if len(identities) != len(totals):
            raise TelemetryError(Trouble.IMPLAUSIBLE, "two devices have one index or one uuid")
    return tuple(
        Device(gpu=gpu, uuid=uuid, total_bytes=total, used_bytes=used[gpu, uuid], free_bytes=free[gpu, uuid])
        for (gpu, uuid), total in sorted(totals.items())
    )


def _unreadable(samples: Iterable[Sample], devices: Iterable[Device]) -> Iterator[LostDevice]:
    """Those that NVML could not read."""
    read = {device.gpu for device in devices}
    for sample in samples:
        if sample.name == METRIC_UNREADABLE:
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


def _sum_doubt(device: Device, used: Iterable[int], unattributed: int) -> str | None:
    attributed = sum(used)
    if abs(attributed + unattributed - device.used_bytes) <= device.total_bytes * TOLERANCE:
        return None
    return (
        f"pods use {attributed // MIB} MiB and {unattributed // MIB} are unattributed, the device says "
        f"{device.used_bytes // MIB}"
    )


def _uses(samples: Sequence[Sample], devices: Collection[tuple[int, str]]) -> tuple[PodUse, ...]:
    """By pod and device, its containers added up."""
    declaring = {sample.labels.get("pod_uid") for sample in samples if sample.name == METRIC_POD_DECLARED}
    has_ledger = any(sample.name == METRIC_POOL_FLOOR for sample in samples)
    seen = set()
    found: dict[tuple[str, str], PodUse] = {}
    for sample in samples:
        if sample.name != METRIC_POD_USED:
            continue
        device, series, uid = _device(sample), frozenset(sample.labels.items()), sample.labels.get("pod_uid", "")
        if device not in devices or device is None or not uid or not _is_amount(sample) or series in seen:
            raise _impossible(sample)
        seen.add(series)
        before = found.get((uid, device[1]))
        found[uid, device[1]] = PodUse(
            uid=uid,
            namespace=sample.labels.get("namespace", ""),
            pod=sample.labels.get("pod", ""),
            uuid=device[1],
            used_bytes=int(sample.value) + (before.used_bytes if before else 0),
            declares=uid in declaring or not has_ledger,
        )
    return tuple(found[key] for key in sorted(found))


def _by_device(samples: Iterable[Sample], name: str) -> Mapping[tuple[int, str], int]:
    found: dict[tuple[int, str], int] = {}
    for sample in samples:
        if sample.name == name:
            device = _device(sample)
            if device is None or not _is_amount(sample) or device in found:
                raise _impossible(sample)
            found[device] = int(sample.value)
    return found


def _device(sample: Sample) -> tuple[int, str] | None:
    gpu, uuid = sample.labels.get("gpu", ""), sample.labels.get("uuid", "")
    return (int(gpu), uuid) if gpu.isascii() and gpu.isdigit() and uuid else None


def _is_amount(sample: Sample) -> bool:
    return math.isfinite(sample.value) and sample.value >= 0


def _impossible(sample: Sample) -> TelemetryError:
    return TelemetryError(
        Trouble.IMPLAUSIBLE, f"{sample.name}: an impossible series: {dict(sample.labels)} {sample.value!r}"
    )
