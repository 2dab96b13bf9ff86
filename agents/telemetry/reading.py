"""One exporter's answer, accepted only if it is complete, fresh and possible."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from agents.runtime import exposition
from agents.runtime.errors import AgentError
from agents.runtime.exposition import Sample
from agents.telemetry.device import Device
from tenancy.names import (
    METRIC_DEVICE_FREE,
    METRIC_DEVICE_TOTAL,
    METRIC_DEVICE_USED,
    METRIC_POD_USED,
    METRIC_SAMPLE_AGE,
    METRIC_UNATTRIBUTED,
    METRIC_UNKNOWN_PROCESSES,
)
from tenancy.units import MIB, TOLERANCE

# Older samples tell nothing of the memory that is free now.
FRESH_SECONDS = 30.0


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
    """What one pod has of one device; the names are empty where the exporter does not know them yet."""

    uid: str
    namespace: str
    pod: str
    uuid: str
    used_bytes: int


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The devices, by index. `uses` is who uses them; None where that is not wholly known, for `uses_problem`."""

    devices: tuple[Device, ...]
    age_seconds: float
    uses: tuple[PodUse, ...] | None = None
    uses_problem: str | None = "the exporter does not report who uses the devices"


def parse(text: str) -> Reading:
    """Raises TelemetryError, and exposition.ExpositionError for a text that breaks off."""
    samples = exposition.parse(text)
    reading = Reading(age_seconds=_age_seconds(samples), devices=_devices(samples))
    unattributed = _by_device(samples, METRIC_UNATTRIBUTED)
    if not unattributed:
        return reading
    keys = {(device.gpu, device.uuid): device for device in reading.devices}
    if unattributed.keys() != keys.keys():
        raise TelemetryError(Trouble.PARTIAL, f"{METRIC_UNATTRIBUTED} is missing for some device")
    uses = _uses(samples, keys)
    for key, device in keys.items():
        _check_sum(device, [use.used_bytes for use in uses if use.uuid == device.uuid], unattributed[key])
    unknown = sum(_by_device(samples, METRIC_UNKNOWN_PROCESSES).values())
    if unknown:
        return replace(reading, uses_problem=f"NVML does not report the memory of {unknown} processes")
    return replace(reading, uses=uses, uses_problem=None)


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
    found = tuple(
        Device(gpu=gpu, uuid=uuid, total_bytes=total, used_bytes=used[gpu, uuid], free_bytes=free[gpu, uuid])
        for (gpu, uuid), total in sorted(totals.items())
    )
    for device in found:
        accounted = device.used_bytes + device.free_bytes
        if not device.total_bytes * (1 - TOLERANCE) <= accounted <= device.total_bytes:
            much = "more" if accounted > device.total_bytes else "far less"
            raise TelemetryError(Trouble.IMPLAUSIBLE, f"gpu {device.gpu}: used and free are {much} than the device has")
    return found


def _check_sum(device: Device, used: Iterable[int], unattributed: int) -> None:
    attributed = sum(used)
    if abs(attributed + unattributed - device.used_bytes) > device.total_bytes * TOLERANCE:
        raise TelemetryError(
            Trouble.IMPLAUSIBLE,
            f"gpu {device.gpu}: pods use {attributed // MIB} MiB and {unattributed // MIB} are unattributed, "
            f"the device says {device.used_bytes // MIB}",
        )


def _uses(samples: Iterable[Sample], devices: Collection[tuple[int, str]]) -> tuple[PodUse, ...]:
    """By pod and device, its containers added up."""
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
