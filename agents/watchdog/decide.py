"""Decides which pods to recycle. All functions are pure. Units: whole MiB of GPU memory, seconds.

The steps for each device are the functions `_measured`, `_doubt`, `_counted` and `_chosen`. Each step adds fields to
the DeviceVerdict of the device.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from agents.kube.events import Reference
from agents.runtime.clock import JUMP_SECONDS, Moment
from agents.runtime.items import Unjudged, judged
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device, Uncapped
from agents.telemetry.reading import ContainerCap, PodUse, Trouble
from agents.watchdog.pods import GpuPod
from agents.watchdog.seats import SeatDemand, demands_by_device
from agents.watchdog.spare import reason_to_spare
from agents.watchdog.types import (
    SAMPLES,
    Decision,
    DeviceVerdict,
    DoubtfulTelemetry,
    PassInput,
    PassState,
    RecycleTarget,
    UncappedPod,
)
from agents.watchdog.view import SETTLE_SECONDS, PassView
from tenancy.devices.recycle import Offender, RecycleChoice, choose_offenders, overshoot_mib
from tenancy.seconds import FRESH_SECONDS
from tenancy.units import MIB

# The watchdog gives a device below its floor three samples to get back the memory of pods that have just ended. If the
# device is still below its floor after three samples, other pods use this memory.
_CREDITED_SAMPLES = 3

T = TypeVar("T")


def decide(snapshot: PassInput, now: datetime) -> Decision:
    """Decides which pods to recycle at `now`, the API server's time.

    A recycle needs two new readings in a row with the device below its floor. Telemetry that contradicts itself or has
    a gap never causes a recycle.
    """
    moment = Moment(at=snapshot.at, server=now, local=snapshot.local_now)
    problem = _clock_problem(snapshot, moment)
    if problem is not None:
        return Decision(state=PassState(moment=moment), problem=problem)
    view = PassView(snapshot=snapshot, now=now)
    demands = demands_by_device(snapshot, now, view.frees_soon)
    still_since = {reading.node: _still_since(snapshot, reading) for reading in snapshot.readings}
    unusable = [each for reading in snapshot.readings if (each := _unusable(snapshot, reading, still_since))]
    late = [why for reading in snapshot.readings if reading.devices and (why := _late(snapshot, reading))]
    sound = [reading for reading in snapshot.readings if reading.node not in {each.node for each in unusable}]
    lost = [_blind(reading, each.gpu, each.trouble, each.problem) for reading in sound for each in reading.lost]
    devices = [
        _or_blind(reading.node, device, partial(_measured, view, reading, device, demands))
        for reading in sound
        for device in reading.devices
    ]
    measured = [found for found in devices if isinstance(found, DeviceVerdict)]
    doubts = {
        found.place: doubt
        for found in measured
        if (doubt := _or_blind(found.node, found.device, partial(_doubt, view, found)))
    }
    decided = _judged(view, [found for found in measured if found.place not in doubts])
    verdicts = tuple(found for found in decided if isinstance(found, DeviceVerdict))
    unjudged = [found for found in (*devices, *decided) if isinstance(found, DoubtfulTelemetry)]
    return Decision(
        verdicts=verdicts,
        blind=(*unusable, *lost, *doubts.values(), *unjudged),
        uncapped=tuple(each for reading in sound for each in _uncapped(reading)),
        problem=late[-1] if late else None,
        state=PassState(
            moment=moment,
            readings={reading.node: reading for reading in snapshot.readings},
            still_since=still_since,
            samples={found.place: 0 if found.recycle else found.samples for found in verdicts},
            ended_since={uid: view.ended_since(uid) for found in measured for uid in found.ended},
        ),
    )


def _clock_problem(snapshot: PassInput, moment: Moment) -> str | None:
    """Returns the reason why the watchdog cannot compute pods' ages, the cool-down and the recycle limits, or None."""
    ahead = max(((each.at - moment.server).total_seconds() for each in snapshot.recycled), default=0)
    if (problem := moment.problem(snapshot.state.moment)) is not None:
        return problem
    return f"the journal tells of a recycle in {ahead:.0f} s: the clock went back" if ahead > JUMP_SECONDS else None


def _still_since(snapshot: PassInput, reading: NodeTelemetry) -> float:
    still = reading.stands_still(snapshot.state.readings.get(reading.node))
    return snapshot.state.still_since[reading.node] if still else snapshot.at


def _unusable(
    snapshot: PassInput, reading: NodeTelemetry, still_since: Mapping[str, float]
) -> DoubtfulTelemetry | None:
    if reading.problem is not None and not (reading.devices or reading.lost):
        return _blind(reading, None, reading.trouble or Trouble.MISSING, reading.problem)
    still_seconds = snapshot.at - still_since[reading.node]
    if still_seconds > FRESH_SECONDS:
        problem = f"nothing in it has changed for {still_seconds:.0f} s, not even its age"
        return _blind(reading, None, Trouble.STALE, problem)
    late = _late(snapshot, reading)
    return _blind(reading, None, Trouble.STALE, late) if late else None


def _late(snapshot: PassInput, reading: NodeTelemetry) -> str | None:
    seconds = snapshot.at - reading.read_at
    return f"it was read {seconds:.0f} s ago: the API took so long to answer" if seconds > FRESH_SECONDS else None


def _blind(reading: NodeTelemetry, gpu: int | None, trouble: Trouble, problem: str) -> DoubtfulTelemetry:
    return DoubtfulTelemetry(node=reading.node, trouble=trouble, problem=problem, gpu=gpu)


def _or_blind(node: str, device: Device, judge: Callable[[], T]) -> T | DoubtfulTelemetry:
    """Returns the result of `judge` for one device. After an error about a device, the watchdog recycles no pod on this
    device.
    """
    found = judged(judge)
    if isinstance(found, Unjudged):
        return DoubtfulTelemetry(node=node, gpu=device.gpu, trouble=Trouble.UNJUDGED, problem=found.why)
    return found


def _uncapped(reading: NodeTelemetry) -> Iterator[UncappedPod]:
    """Yields the containers that the driver does not cap at their budgets. Skips restarting containers."""
    for cap in reading.caps:
        if cap.why_not and cap.container and cap.why_not != Uncapped.GROUPLESS:
            yield UncappedPod(pod=_reference(cap), node=reading.node, container=cap.container, why=cap.why_not)


def _measured(
    view: PassView, reading: NodeTelemetry, device: Device, demands: Mapping[tuple[str, str], SeatDemand]
) -> DeviceVerdict:
    """Returns the verdict with the device's floor, its waiting seats, its ended pods and its pods without a budget."""
    demand = demands.get((reading.node, device.uuid), SeatDemand(0, ()))
    found = DeviceVerdict(
        node=reading.node,
        device=device,
        floor_mib=reading.pool.floor_mib,
        assumed_pool=reading.pool.name if reading.pool.assumed else None,
        seats_mib=demand.mib,
        seats=demand.seats,
        fewer_seats_mib=demand.fewer_mib,
    )
    uses = _uses(view, found)
    return replace(
        found,
        undeclared=tuple(_undeclared(view, uses, pressed=found.pressed)),
        ended=tuple(sorted(use.uid for use in uses if view.has_ended(use.uid))) if found.pressed else (),
    )


def _undeclared(view: PassView, uses: Iterable[PodUse], *, pressed: bool) -> Iterator[Reference]:
    for use in uses:
        pod = view.pods.get(use.uid)
        declares = bool(pod.declared_mib) if pod else use.declares or not use.pod
        if not declares and (pressed or use.namespace not in view.snapshot.on_record):
            yield pod.reference if pod else _reference(use)


def _doubt(view: PassView, found: DeviceVerdict) -> DoubtfulTelemetry | None:
    """Returns DoubtfulTelemetry if the device has an unknown process, or a process that contradicts the pods in the
    API. Returns None if all processes are known and plausible.
    """
    reading = view.readings[found.node]
    unknown = reading.unknown_uses.get(found.device.uuid)
    if unknown is not None:
        return _blind(reading, found.device.gpu, Trouble.PARTIAL, unknown)
    for use in _uses(view, found) if found.pressed else ():
        problem = _contradiction(view, reading, use)
        if problem is not None:
            return _blind(reading, found.device.gpu, Trouble.IMPLAUSIBLE, problem)
    return None


def _contradiction(view: PassView, reading: NodeTelemetry, use: PodUse) -> str | None:
    pod, named = view.pods.get(use.uid), f"{use.namespace}/{use.pod}"
    if pod is not None and (pod.node != reading.node or (use.pod and named != str(pod))):
        return f"pod {use.uid} is {named} on {reading.node} there, and {pod} on {pod.node} to the API"
    if view.has_ended(use.uid) and view.snapshot.at - view.ended_since(use.uid) > SETTLE_SECONDS:
        return f"pod {named} ({use.uid}) uses it, and does not run there, for over {SETTLE_SECONDS} s"
    return None


def _judged(view: PassView, measured: Iterable[DeviceVerdict]) -> list[DeviceVerdict | DoubtfulTelemetry]:
    """Returns the verdicts on all devices, each with its recycles. Recycles that were chosen for one device count as
    done when the next devices are judged.
    """
    decided = []
    for found in measured:
        verdict = _or_blind(found.node, found.device, partial(_decided, view, found))
        if isinstance(verdict, DeviceVerdict) and verdict.recycle:
            chosen = (target.recycled(view.now) for target in verdict.recycle)
            view = replace(view, chosen=(*view.chosen, *chosen))
        decided.append(verdict)
    return decided


def _decided(view: PassView, found: DeviceVerdict) -> DeviceVerdict:
    return _chosen(view, _counted(view, found))


def _counted(view: PassView, found: DeviceVerdict) -> DeviceVerdict:
    if not found.pressed:
        return found
    samples = view.snapshot.state.samples.get(found.place, 0) + view.is_new(found.node)
    credited = found.ended if samples <= _CREDITED_SAMPLES else ()
    going = {pod.uid for pod in _users(view, found) if view.is_going(pod)} | {*credited}
    going_mib = sum(use.used_bytes // MIB for use in _uses(view, found) if use.uid in going)
    return replace(found, samples=samples, going_mib=going_mib)


def _chosen(view: PassView, found: DeviceVerdict) -> DeviceVerdict:
    if found.samples < SAMPLES or not view.is_new(found.node) or not found.missing_mib:
        return found
    targets = _targets(view, found)
    alone = {target.name: reason_to_spare(view, target) for target in targets}
    by_name = {target.name: target for target in targets if alone[target.name] is None}
    offenders = {name: _offender(view, target) for name, target in by_name.items()}
    allowed = _within_limit(view, by_name.values())
    aims_mib = found.aims_mib(view.snapshot.limits.least_free_mib)
    choice = _first_restored([offenders[target.name] for target in allowed], aims_mib)
    wanted = _first_restored(offenders.values(), aims_mib)
    kept = sorted({target.tenant for target in by_name.values() if target not in allowed})
    limit = f"{view.snapshot.limits.evictions_per_hour} recycles an hour of {', '.join(kept)}"
    return replace(
        found,
        spared=tuple(filter(None, alone.values())),
        recycle=tuple(by_name[offender.name] for offender in choice.chosen),
        restores=choice.restores and sum(each.overshoot_mib for each in choice.chosen) >= found.missing_mib,
        too_little=() if wanted.restores else tuple(by_name.values()),
        limited=limit if choice != wanted else None,
    )


def _first_restored(offenders: Collection[Offender], aims_mib: Iterable[int]) -> RecycleChoice:
    """Returns the offenders to recycle for the first shortage that recycles can end.

    If all shortages are too large, returns no offenders.
    """
    choices = (choose_offenders(offenders, shortfall_mib=mib) for mib in aims_mib)
    return next((choice for choice in choices if choice.restores), RecycleChoice(chosen=(), restores=False))


def _targets(view: PassView, found: DeviceVerdict) -> list[RecycleTarget]:
    """Returns the targets: the offenders that still run.

    The pods of a queued Job are one target. A pod that already terminates is in no target.
    """
    used: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for use in view.readings[found.node].uses:
        used[use.uid][use.uuid] = use.used_bytes // MIB
    groups: defaultdict[str, list[tuple[GpuPod, int]]] = defaultdict(list)
    for pod in sorted(_users(view, found), key=lambda each: (each.namespace, each.name)):
        over_mib = overshoot_mib(
            used=used[pod.uid], device=found.device.uuid, declared_mib=pod.declared_mib, placed_on=pod.uuids
        )
        if over_mib and pod.declared_mib and not view.is_going(pod):
            groups[pod.recycled_as].append((pod, over_mib))
    return [
        RecycleTarget(
            pods=tuple(pod for pod, _ in group),
            used_mib=sum(used[pod.uid][found.device.uuid] for pod, _ in group),
            overshoot_mib=sum(over_mib for _, over_mib in group),
        )
        for group in groups.values()
    ]


def _within_limit(view: PassView, targets: Iterable[RecycleTarget]) -> list[RecycleTarget]:
    recycles, found = view.recycles_by_tenant, []
    for target in sorted(targets, key=lambda each: -each.overshoot_mib):
        if recycles[target.tenant] < view.snapshot.limits.evictions_per_hour:
            recycles[target.tenant] += 1
            found.append(target)
    return found


def _offender(view: PassView, target: RecycleTarget) -> Offender:
    return Offender(
        name=target.name,
        overshoot_mib=target.overshoot_mib,
        priority=max(pod.priority for pod in target.pods),
        age_seconds=max((view.now - pod.started).total_seconds() for pod in target.pods),
    )


def _uses(view: PassView, found: DeviceVerdict) -> list[PodUse]:
    uses = view.readings[found.node].uses
    return [use for use in uses if use.uuid == found.device.uuid and use.used_bytes // MIB]


def _users(view: PassView, found: DeviceVerdict) -> list[GpuPod]:
    return [view.pods[use.uid] for use in _uses(view, found) if use.uid not in found.ended]


def _reference(use: PodUse | ContainerCap) -> Reference:
    return Reference(api_version="v1", kind="Pod", namespace=use.namespace, name=use.pod, uid=use.uid)
