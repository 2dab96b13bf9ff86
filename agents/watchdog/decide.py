"""Decides which pods to recycle. All functions are pure. Units: whole MiB of GPU memory, seconds.

The steps for each device are the functions `_measured`, `_check`, `_counted` and `_chosen`. Each step adds fields to
the DeviceVerdict of the device.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from agents.kube.events import Reference
from agents.runtime.clock import JUMP_SECONDS, Moment
from agents.runtime.items import Unjudged, judged
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device
from agents.telemetry.reading import PodUse, TelemetryError, Trouble
from agents.watchdog.pods import GpuPod
from agents.watchdog.seats import demands_by_device
from agents.watchdog.snapshot import SETTLE_SECONDS, Snapshot
from agents.watchdog.spare import reason_to_spare
from agents.watchdog.types import (
    SAMPLES,
    Decision,
    DeviceVerdict,
    DoubtfulTelemetry,
    PassState,
    RecycleTarget,
    SeatDemand,
)
from tenancy.devices.recycle import RecycleChoice, choose_offenders, overshoot_mib
from tenancy.units import MIB

# The watchdog gives a device below its floor three samples to get back the memory of pods that have just ended. If the
# device is still below its floor after three samples, other pods use this memory.
_CREDITED_SAMPLES = 3


def decide(snapshot: Snapshot) -> Decision:
    """Decides which pods to recycle.

    A recycle needs two new readings in a row with the device below its floor. Telemetry that contradicts itself or has
    a gap never causes a recycle. Recycles that were chosen for one device count as done when the next devices are
    judged.
    """
    moment = Moment(at=snapshot.at, server=snapshot.now, local=snapshot.local_now)
    problem = _clock_problem(snapshot, moment)
    if problem is not None:
        return Decision(state=PassState(moment=moment), problem=problem)
    demands = demands_by_device(snapshot)
    verdicts: list[DeviceVerdict] = []
    blind = [each for reading in snapshot.readings for each in _unknown(reading)]
    ended_since: dict[str, float] = {}
    for reading in snapshot.readings:
        for device in reading.devices:
            measured = _measured(snapshot, reading, device, demands)
            ended_since |= {uid: snapshot.ended_since(uid) for uid in measured.ended}
            found = judged(partial(_decided, snapshot, measured))
            if isinstance(found, Unjudged):
                trouble = found.error.trouble if isinstance(found.error, TelemetryError) else Trouble.UNJUDGED
                blind.append(DoubtfulTelemetry(node=reading.node, gpu=device.gpu, trouble=trouble, problem=found.why))
            else:
                verdicts.append(found)
                snapshot = snapshot.with_chosen(found.recycle)
    state = PassState(
        moment=moment,
        readings=snapshot.readings_by_node,
        samples={found.place: found.samples for found in verdicts},
        ended_since=ended_since,
    )
    return Decision(state=state, verdicts=tuple(verdicts), blind=tuple(blind))


def _clock_problem(snapshot: Snapshot, moment: Moment) -> str | None:
    """Returns the reason why the watchdog cannot compute pods' ages, the cool-down and the recycle limits, or None."""
    ahead = max(((each.at - moment.server).total_seconds() for each in snapshot.recycled), default=0)
    if (problem := moment.problem(snapshot.state.moment)) is not None:
        return problem
    return f"the journal tells of a recycle in {ahead:.0f} s: the clock went back" if ahead > JUMP_SECONDS else None


def _unknown(reading: NodeTelemetry) -> Iterator[DoubtfulTelemetry]:
    """Yields the devices of the node without known telemetry, or the node if none is known."""
    for lost in reading.lost:
        yield DoubtfulTelemetry(node=reading.node, gpu=lost.gpu, trouble=lost.trouble, problem=lost.problem)
    if reading.problem is not None and not (reading.devices or reading.lost):
        trouble = reading.trouble or Trouble.MISSING
        yield DoubtfulTelemetry(node=reading.node, trouble=trouble, problem=reading.problem)


def _measured(
    snapshot: Snapshot, reading: NodeTelemetry, device: Device, demands: Mapping[tuple[str, str], SeatDemand]
) -> DeviceVerdict:
    """Returns the verdict with the device's floor, its waiting seats, its ended pods and its pods without a budget."""
    found = DeviceVerdict(
        node=reading.node,
        device=device,
        floor_mib=reading.pool.floor_mib,
        assumed_pool=reading.pool.name if reading.pool.assumed else None,
        demand=demands.get((reading.node, device.uuid), SeatDemand(0)),
    )
    uses = _uses(snapshot, found)
    return replace(
        found,
        undeclared=tuple(_undeclared(snapshot, uses, pressed=found.pressed)),
        ended=tuple(sorted(use.uid for use in uses if snapshot.has_ended(use.uid))) if found.pressed else (),
    )


def _undeclared(snapshot: Snapshot, uses: Iterable[PodUse], *, pressed: bool) -> Iterator[Reference]:
    for use in uses:
        pod = snapshot.pods_by_uid.get(use.uid)
        declares = bool(pod.declared_mib) if pod else use.declares or not use.pod
        if not declares and (pressed or use.namespace not in snapshot.on_record):
            yield pod.reference if pod else use.reference


def _decided(snapshot: Snapshot, found: DeviceVerdict) -> DeviceVerdict:
    """Returns the verdict with the recycles. Raises TelemetryError if the telemetry of the device is doubtful."""
    _check(snapshot, found)
    return _chosen(snapshot, _counted(snapshot, found)) if found.pressed else found


def _check(snapshot: Snapshot, found: DeviceVerdict) -> None:
    """Raises TelemetryError if the device has an unknown process, or a process that contradicts the pods in the API."""
    unknown = snapshot.readings_by_node[found.node].unknown_uses.get(found.device.uuid)
    if unknown is not None:
        raise TelemetryError(Trouble.PARTIAL, unknown)
    for use in _uses(snapshot, found) if found.pressed else ():
        pod, named = snapshot.pods_by_uid.get(use.uid), f"{use.namespace}/{use.pod}"
        if pod is not None and (pod.node != found.node or (use.pod and named != str(pod))):
            problem = f"pod {use.uid} is {named} on {found.node} there, and {pod} on {pod.node} to the API"
            raise TelemetryError(Trouble.IMPLAUSIBLE, problem)
        if snapshot.has_ended(use.uid) and not snapshot.frees_soon(use.uid):
            problem = f"pod {named} ({use.uid}) uses it, and does not run there, for over {SETTLE_SECONDS} s"
            raise TelemetryError(Trouble.IMPLAUSIBLE, problem)


def _counted(snapshot: Snapshot, found: DeviceVerdict) -> DeviceVerdict:
    samples = snapshot.state.samples.get(found.place, 0) + snapshot.is_new(found.node)
    credited = found.ended if samples <= _CREDITED_SAMPLES else ()
    going = {pod.uid for pod in _users(snapshot, found) if snapshot.is_going(pod)} | {*credited}
    going_mib = sum(use.used_bytes // MIB for use in _uses(snapshot, found) if use.uid in going)
    return replace(found, samples=samples, going_mib=going_mib)


def _chosen(snapshot: Snapshot, found: DeviceVerdict) -> DeviceVerdict:
    if found.samples < SAMPLES or not snapshot.is_new(found.node) or not found.missing_mib:
        return found
    targets = _targets(snapshot, found)
    spared = {target.name: reason_to_spare(snapshot, target) for target in targets}
    offenders = [target for target in targets if spared[target.name] is None]
    allowed = _within_limit(snapshot, offenders)
    aims_mib = found.aims_mib(snapshot.limits.least_free_mib)
    choice, wanted = _first_restored(allowed, aims_mib), _first_restored(offenders, aims_mib)
    kept = sorted({target.tenant for target in offenders if target not in allowed})
    limit = f"{snapshot.limits.evictions_per_hour} recycles an hour of {', '.join(kept)}"
    return replace(
        found,
        spared=tuple(filter(None, spared.values())),
        recycle=choice.chosen,
        too_little=() if wanted.restores else tuple(offenders),
        limited=limit if choice != wanted else None,
    )


def _first_restored(offenders: Collection[RecycleTarget], aims_mib: Iterable[int]) -> RecycleChoice[RecycleTarget]:
    """Returns the offenders to recycle for the first shortage that recycles can end.

    If all shortages are too large, returns no offenders.
    """
    choices = (choose_offenders(offenders, shortfall_mib=mib) for mib in aims_mib)
    return next((choice for choice in choices if choice.restores), RecycleChoice(chosen=(), restores=False))


def _targets(snapshot: Snapshot, found: DeviceVerdict) -> list[RecycleTarget]:
    """Returns the targets: the offenders that still run.

    The pods of a queued Job are one target. A pod that already terminates is in no target.
    """
    used: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for use in snapshot.readings_by_node[found.node].uses:
        used[use.uid][use.uuid] = use.used_bytes // MIB
    groups: defaultdict[str, list[tuple[GpuPod, int]]] = defaultdict(list)
    for pod in sorted(_users(snapshot, found), key=lambda each: (each.namespace, each.name)):
        over_mib = overshoot_mib(
            used=used[pod.uid], device=found.device.uuid, declared_mib=pod.declared_mib, placed_on=pod.uuids
        )
        if over_mib and pod.declared_mib and not snapshot.is_going(pod):
            groups[pod.recycled_as].append((pod, over_mib))
    return [
        RecycleTarget(
            pods=tuple(pod for pod, _ in group),
            used_mib=sum(used[pod.uid][found.device.uuid] for pod, _ in group),
            overshoot_mib=sum(over_mib for _, over_mib in group),
            age_seconds=max((snapshot.now - pod.started).total_seconds() for pod, _ in group),
        )
        for group in groups.values()
    ]


def _within_limit(snapshot: Snapshot, targets: Iterable[RecycleTarget]) -> list[RecycleTarget]:
    recycles, found = snapshot.recycles_by_tenant, []
    for target in sorted(targets, key=lambda each: -each.overshoot_mib):
        if recycles[target.tenant] < snapshot.limits.evictions_per_hour:
            recycles[target.tenant] += 1
            found.append(target)
    return found


def _uses(snapshot: Snapshot, found: DeviceVerdict) -> list[PodUse]:
    uses = snapshot.readings_by_node[found.node].uses
    return [use for use in uses if use.uuid == found.device.uuid and use.used_bytes // MIB]


def _users(snapshot: Snapshot, found: DeviceVerdict) -> list[GpuPod]:
    return [snapshot.pods_by_uid[use.uid] for use in _uses(snapshot, found) if use.uid not in found.ended]
