"""Which pods to recycle now: the pure half of watchdog (record 0000). Units: whole MiB of GPU memory, seconds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from agents.runtime.clock import JUMP_SECONDS, Moment
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device
from agents.telemetry.reading import FRESH_SECONDS, PodUse, Trouble
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import (
    SAMPLES,
    Blind,
    Decision,
    DeviceVerdict,
    PassInput,
    PassState,
    Spared,
    Target,
    Undeclared,
)
from tenancy.devices.recycle import Offender, choose, overshoot_mib
from tenancy.units import MIB

HOUR = timedelta(hours=1)
# So long a recycled pod counts as going though nobody sees it terminate: another watchdog may just have evicted it.
SETTLE_SECONDS = 30
# So long after the end of its grace a pod still counts as going; then its node is gone, or its process hangs.
LATE_SECONDS = 60


def decide(snapshot: PassInput, now: datetime) -> Decision:
    """What to do at `now`, the API server's time. It recycles on a device only after two readings in a row under its
    floor, and on a node that it cannot believe nothing."""
    problem = _clock_problem(snapshot, now)
    if problem is not None:
        blind = [Blind(node=each.node, trouble=Trouble.IMPLAUSIBLE, problem=problem) for each in snapshot.readings]
        return Decision(verdicts=(), blind=tuple(blind), memory=PassState(moment=_moment(snapshot, now)))
    return _Pass(snapshot, now).judge()


def _clock_problem(snapshot: PassInput, now: datetime) -> str | None:
    """Ages, cool-down and cap depend on the time of day: all of them are wrong with it."""
    problem = _moment(snapshot, now).problem(snapshot.memory.moment)
    if problem is not None:
        return problem
    ahead = max(((each.at - now).total_seconds() for each in snapshot.recycled), default=0)
    if ahead > JUMP_SECONDS:
        return f"the journal tells of a recycle in {ahead:.0f} s: the clock went back"
    return None


def _moment(snapshot: PassInput, now: datetime) -> Moment:
    return Moment(at=snapshot.at, server=now, local=snapshot.local_now)


class _UnbelievableError(Exception):
    pass


class _Pass:
    """One pass over all nodes: what one device is given counts for the others."""

    def __init__(self, snapshot: PassInput, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._pods = {pod.uid: pod for pod in snapshot.pods}
        self._left = snapshot.limits.recycles_per_hour - sum(now - each.at < HOUR for each in snapshot.recycled)
        settling = [each for each in snapshot.recycled if now - each.at < timedelta(seconds=SETTLE_SECONDS)]
        self._taken = {uid for each in settling for uid in each.pods}
        self._stopped = {each.workload for each in settling}
        cool_down = timedelta(seconds=snapshot.limits.cool_down_seconds)
        self._cooling = {each.workload: each.at for each in snapshot.recycled if now - each.at < cool_down}
        self._verdicts: list[DeviceVerdict] = []
        self._blind: list[Blind] = []

    def judge(self) -> Decision:
        still_since = {reading.node: self._still_since(reading) for reading in self._snapshot.readings}
        for reading in self._snapshot.readings:
            if reading.problem is not None:
                self._lose(reading, reading.trouble or Trouble.MISSING, reading.problem)
            elif (seconds := self._snapshot.at - still_since[reading.node]) > FRESH_SECONDS:
                self._lose(reading, Trouble.STALE, f"nothing in it has changed for {seconds:.0f} s, not even its age")
            elif (seconds := self._snapshot.at - reading.read_at) > FRESH_SECONDS:
                self._lose(reading, Trouble.STALE, f"it was read {seconds:.0f} s ago: the API took so long to answer")
            elif reading.uses is None:
                self._lose(reading, Trouble.PARTIAL, reading.uses_problem or "who uses the devices is not known")
            else:
                self._node(reading, reading.uses)
        memory = PassState(
            moment=_moment(self._snapshot, self._now),
            readings={reading.node: reading for reading in self._snapshot.readings},
            still_since=still_since,
            pressed={(v.node, v.device.uuid): 0 if v.recycle else v.samples for v in self._verdicts},
        )
        return Decision(verdicts=tuple(self._verdicts), blind=tuple(self._blind), memory=memory)

    def _lose(self, reading: NodeTelemetry, trouble: Trouble, problem: str) -> None:
        self._blind.append(Blind(node=reading.node, trouble=trouble, problem=problem))

    def _still_since(self, reading: NodeTelemetry) -> float:
        before = self._snapshot.memory.readings.get(reading.node)
        still = reading.stands_still(before)
        return self._snapshot.memory.still_since[reading.node] if still else self._snapshot.at

    def _node(self, reading: NodeTelemetry, uses: Sequence[PodUse]) -> None:
        new = reading.is_new(self._snapshot.memory.readings.get(reading.node))
        used: dict[str, dict[str, int]] = {}
        for use in uses:
            used.setdefault(use.uid, {})[use.uuid] = use.used_bytes // MIB
        try:
            self._verdicts += [self._device(reading, device, used, new=new) for device in reading.devices]
        except _UnbelievableError as error:
            self._lose(reading, Trouble.IMPLAUSIBLE, str(error))

    def _device(
        self, reading: NodeTelemetry, device: Device, used: Mapping[str, Mapping[str, int]], *, new: bool
    ) -> DeviceVerdict:
        on_device = {uid: by_device for uid, by_device in used.items() if by_device.get(device.uuid)}
        found = DeviceVerdict(node=reading.node, device=device, floor_mib=reading.pool.floor_mib)
        users = [self._pods[uid] for uid in on_device if uid in self._pods]
        undeclared = tuple(
            Undeclared(pod=pod, used_mib=on_device[pod.uid][device.uuid])
            for pod in users
            if not pod.declared_mib and (found.pressed or pod.namespace not in self._snapshot.on_record)
        )
        if not found.pressed:
            return replace(found, undeclared=undeclared)
        self._check(reading, on_device)
        going_mib = sum(on_device[pod.uid][device.uuid] for pod in users if self._is_going(pod))
        samples = self._snapshot.memory.pressed.get((reading.node, device.uuid), 0) + new
        found = replace(found, undeclared=undeclared, going_mib=going_mib, samples=samples)
        if samples < SAMPLES or not new or not found.missing_mib:
            return found
        staying = [pod for pod in users if pod.declared_mib and not self._is_going(pod)]
        return self._plan(found, _targets(staying, on_device, device.uuid))

    def _check(self, reading: NodeTelemetry, on_device: Mapping[str, object]) -> None:
        """Raises _UnbelievableError where telemetry and API speak of different pods."""
        for use in reading.uses or ():
            if use.uid not in on_device:
                continue
            pod = self._pods.get(use.uid)
            if pod is None or pod.node != reading.node or pod.ended:
                raise _UnbelievableError(f"pod {use.namespace}/{use.pod} ({use.uid}) uses it, and does not run there")
            if use.pod and (use.namespace, use.pod) != (pod.namespace, pod.name):
                raise _UnbelievableError(f"pod {use.uid} is {use.namespace}/{use.pod} there, and {pod} to the API")

    def _is_going(self, pod: GpuPod) -> bool:
        if pod.uid in self._taken or (pod.queued_as and pod.workload in self._stopped):
            return True
        return pod.gone_by is not None and self._now < pod.gone_by + timedelta(seconds=LATE_SECONDS)

    def _plan(self, found: DeviceVerdict, targets: Sequence[Target]) -> DeviceVerdict:
        found = replace(found, spared=tuple(filter(None, map(self._spared, targets))))
        alone = {spared.target.name for spared in found.spared}
        by_name = {target.name: target for target in targets if target.name not in alone}
        offenders = [self._offender(target) for target in by_name.values()]
        choice = choose(offenders, shortfall_mib=found.missing_mib, at_most=self._left)
        wanted = choose(offenders, shortfall_mib=found.missing_mib, at_most=len(offenders))
        recycle = tuple(by_name[offender.name] for offender in choice.chosen)
        self._left -= len(recycle)
        self._taken.update(pod.uid for target in recycle for pod in target.pods)
        self._stopped.update(target.workload for target in recycle)
        return replace(found, recycle=recycle, restores=choice.restores, capped=choice != wanted)

    def _offender(self, target: Target) -> Offender:
        return Offender(
            name=target.name,
            overshoot_mib=target.overshoot_mib,
            priority=max(pod.priority for pod in target.pods),
            age_seconds=max(self._age_seconds(pod) for pod in target.pods),
        )

    def _age_seconds(self, pod: GpuPod) -> float:
        return (self._now - pod.started).total_seconds()

    def _spared(self, target: Target) -> Spared | None:
        why = self._never(target.first)
        if why is not None:
            return Spared(target=target, why=why, lasting=True)
        why = self._not_now(target)
        return None if why is None else Spared(target=target, why=why)

    def _never(self, pod: GpuPod) -> str | None:
        limits = self._snapshot.limits
        if pod.gone_by is not None:
            return f"it is terminating, was due to be gone by {pod.gone_by:%H:%M:%S} and still holds its memory"
        if pod.namespace not in limits.tenants:
            return f"{pod.namespace} is not a tenant with a budget, so the watchdog may not evict there"
        if pod.owner is None and not limits.bare_pods:
            return "no controller would recreate it"
        if pod.owner is not None and pod.owner.kind == "Node":
            return "it is a static pod of its node's kubelet"
        return None

    def _not_now(self, target: Target) -> str | None:
        limits = self._snapshot.limits
        youngest = min(self._age_seconds(each) for each in target.pods)
        if youngest < limits.minimum_age_seconds:
            return f"it is {youngest:.0f} s old; it is left alone for {limits.minimum_age_seconds} s"
        if target.workload in self._cooling:
            ago = (self._now - self._cooling[target.workload]).total_seconds()
            return f"it was recycled {ago:.0f} s ago; it is left alone for {limits.cool_down_seconds} s"
        return None


def _targets(pods: Iterable[GpuPod], used: Mapping[str, Mapping[str, int]], uuid: str) -> Sequence[Target]:
    """The offenders among the pods; the pods of a queued Job are one."""
    return [
        Target(
            pods=tuple(group),
            used_mib=sum(used[pod.uid][uuid] for pod in group),
            overshoot_mib=sum(_overshoot_mib(pod, used, uuid) for pod in group),
        )
        for group in _groups(pod for pod in pods if _overshoot_mib(pod, used, uuid))
    ]


def _overshoot_mib(pod: GpuPod, used: Mapping[str, Mapping[str, int]], uuid: str) -> int:
    return overshoot_mib(used=used[pod.uid], device=uuid, declared_mib=pod.declared_mib)


def _groups(pods: Iterable[GpuPod]) -> Iterator[list[GpuPod]]:
    groups: dict[str, list[GpuPod]] = {}
    for pod in sorted(pods, key=lambda each: (each.namespace, each.name)):
        groups.setdefault(pod.workload if pod.queued_as else pod.uid, []).append(pod)
    yield from groups.values()
