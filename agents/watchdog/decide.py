"""Which pods to recycle now: the pure half of watchdog (record 0000). Units: whole MiB of GPU memory, seconds."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from agents.kube.events import Reference
from agents.runtime.clock import JUMP_SECONDS, Moment
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device, Uncapped
from agents.telemetry.reading import FRESH_SECONDS, ContainerCap, PodUse, Trouble
from agents.watchdog.caps import Caps
from agents.watchdog.pods import GpuPod
from agents.watchdog.seats import to_free
from agents.watchdog.types import (
    SAMPLES,
    Blind,
    Decision,
    DeviceVerdict,
    PassInput,
    PassState,
    Recycled,
    Spared,
    Target,
    UncappedPod,
    Undeclared,
)
from tenancy.devices.recycle import Offender, choose, overshoot_mib
from tenancy.units import MIB

# So long a recycled pod counts as going though nobody sees it terminate: another watchdog may just have evicted it.
SETTLE_SECONDS = 30
# Who is evicted terminates at once. Who does not after so long was never asked to: the run ended before, or its request
# was lost.
VAIN_SECONDS = 60
# So long after the end of its grace a pod still counts as going; then its node is gone, or its process hangs.
LATE_SECONDS = 60
# A workload whose recycle the API refused is left alone for so long, and the choice is made without it.
SPARED_SECONDS = 60
# In so many samples under the floor, what pods had that have just ended counts as going. After that others come where
# these went, and have it again.
_CREDITED_SAMPLES = 3


def decide(snapshot: PassInput, now: datetime) -> Decision:
    """What to do at `now`, the API server's time. It recycles on a device only after two readings in a row that call
    for it, and on a device that it cannot believe nothing."""
    problem = _clock_problem(snapshot, now)
    if problem is not None:
        return Decision(verdicts=(), blind=(), memory=PassState(moment=_moment(snapshot, now)), problem=problem)
    return _Pass(snapshot, now).judge()


def _clock_problem(snapshot: PassInput, now: datetime) -> str | None:
    """Ages, cool-down and caps depend on the time of day: all of them are wrong with it."""
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
        recycled = self._recycled()
        self._caps = Caps(snapshot.limits.caps, recycled, now)
        settling = [each for each in snapshot.recycled if now - each.at < timedelta(seconds=SETTLE_SECONDS)]
        self._taken = {uid for each in settling for uid in each.pods}
        self._stopped = {each.workload for each in settling}
        cool_down = timedelta(seconds=snapshot.limits.cool_down_seconds)
        self._cooling = {each.workload: each.at for each in recycled if now - each.at < cool_down}
        spared = timedelta(seconds=SPARED_SECONDS)
        self._refused = {each.workload: each for each in snapshot.refused if now - each.at < spared}
        self._to_free = to_free(snapshot, now, self._goes)
        self._gone: dict[str, float] = {}
        self._verdicts: list[DeviceVerdict] = []
        self._blind: list[Blind] = []
        self._problem: str | None = None
        self._capped: set[str] = set()
        self._uncapped: list[UncappedPod] = []

    def judge(self) -> Decision:
        still_since = {reading.node: self._still_since(reading) for reading in self._snapshot.readings}
        for reading in self._snapshot.readings:
            if reading.problem is not None and not (reading.devices or reading.lost):
                self._lose(reading, reading.trouble or Trouble.MISSING, reading.problem)
            elif (seconds := self._snapshot.at - still_since[reading.node]) > FRESH_SECONDS:
                self._lose(reading, Trouble.STALE, f"nothing in it has changed for {seconds:.0f} s, not even its age")
            elif (seconds := self._snapshot.at - reading.read_at) > FRESH_SECONDS:
                self._problem = f"it was read {seconds:.0f} s ago: the API took so long to answer"
                self._lose(reading, Trouble.STALE, self._problem)
            else:
                self._node(reading)
        memory = PassState(
            moment=_moment(self._snapshot, self._now),
            readings={reading.node: reading for reading in self._snapshot.readings},
            still_since=still_since,
            pressed={(v.node, v.device.uuid): 0 if v.recycle else v.samples for v in self._verdicts},
            gone=self._gone,
        )
        return Decision(
            verdicts=tuple(self._verdicts),
            blind=tuple(self._blind),
            memory=memory,
            problem=self._problem,
            uncapped=tuple(self._uncapped),
        )

    def _lose(self, reading: NodeTelemetry, trouble: Trouble, problem: str, gpu: int | None = None) -> None:
        self._blind.append(Blind(node=reading.node, trouble=trouble, problem=problem, gpu=gpu))

    def _still_since(self, reading: NodeTelemetry) -> float:
        before = self._snapshot.memory.readings.get(reading.node)
        still = reading.stands_still(before)
        return self._snapshot.memory.still_since[reading.node] if still else self._snapshot.at

    def _node(self, reading: NodeTelemetry) -> None:
        """Each device for itself: what is not known of one is no reason to leave another alone."""
        new = reading.is_new(self._snapshot.memory.readings.get(reading.node))
        used: dict[str, dict[str, int]] = {}
        for use in reading.uses:
            used.setdefault(use.uid, {})[use.uuid] = use.used_bytes // MIB
        self._read_caps(reading)
        for lost in reading.lost:
            self._lose(reading, lost.trouble, lost.problem, lost.gpu)
        for device in reading.devices:
            unknown = reading.unknown_uses.get(device.uuid)
            if unknown is not None:
                self._lose(reading, Trouble.PARTIAL, unknown, device.gpu)
                continue
            try:
                self._verdicts.append(self._device(reading, device, used, new=new))
            except _UnbelievableError as error:
                self._lose(reading, Trouble.IMPLAUSIBLE, str(error), device.gpu)

    def _read_caps(self, reading: NodeTelemetry) -> None:
        """A pod is capped where each of its containers with a budget is. While a container restarts nothing is said."""
        uncapped = {cap.uid for cap in reading.caps if cap.why_not}
        self._capped |= {cap.uid for cap in reading.caps} - uncapped
        self._uncapped += [
            UncappedPod(pod=_reference(cap), node=reading.node, container=cap.container, why=cap.why_not)
            for cap in reading.caps
            if cap.why_not and cap.container and cap.why_not != Uncapped.GROUPLESS
        ]

    def _device(
        self, reading: NodeTelemetry, device: Device, used: Mapping[str, Mapping[str, int]], *, new: bool
    ) -> DeviceVerdict:
        demand = self._to_free.get((reading.node, device.uuid))
        found = DeviceVerdict(
            node=reading.node,
            device=device,
            floor_mib=reading.pool.floor_mib,
            seats_mib=demand.mib if demand else 0,
            seats=demand.seats if demand else (),
        )
        uses = [use for use in reading.uses if use.uuid == device.uuid and use.used_bytes // MIB]
        found = replace(found, undeclared=tuple(self._undeclared(uses, pressed=found.pressed)))
        if not found.pressed:
            return found
        ended = self._ended(reading, uses)
        samples = self._snapshot.memory.pressed.get((reading.node, device.uuid), 0) + new
        users = [self._pods[use.uid] for use in uses if use.uid in self._pods and use.uid not in ended]
        going = {pod.uid for pod in users if self._is_going(pod)}
        credited = going | ended if samples <= _CREDITED_SAMPLES else going
        going_mib = sum(used[uid][device.uuid] for uid in credited)
        found = replace(found, going_mib=going_mib, ended=tuple(sorted(ended)), samples=samples)
        if samples < SAMPLES or not new or not found.missing_mib:
            return found
        staying = [pod for pod in users if pod.declared_mib and pod.uid not in going]
        return self._plan(found, _targets(staying, used, device.uuid))

    def _undeclared(self, uses: Iterable[PodUse], *, pressed: bool) -> Iterator[Undeclared]:
        for use in uses:
            pod = self._pods.get(use.uid)
            declares = bool(pod.declared_mib) if pod else use.declares or not use.pod
            if not declares and (pressed or use.namespace not in self._snapshot.on_record):
                yield Undeclared(pod=pod.reference if pod else _reference(use), used_mib=use.used_bytes // MIB)

    def _ended(self, reading: NodeTelemetry, uses: Iterable[PodUse]) -> frozenset[str]:
        """The uids that ended between the reading and the list of pods. Raises _UnbelievableError where telemetry and
        API speak of different pods."""
        ended = set()
        for use in uses:
            pod = self._pods.get(use.uid)
            if pod is not None and (
                pod.node != reading.node or (use.pod and (use.namespace, use.pod) != (pod.namespace, pod.name))
            ):
                raise _UnbelievableError(
                    f"pod {use.uid} is {use.namespace}/{use.pod} on {reading.node} there, and {pod} on {pod.node} to "
                    "the API"
                )
            if pod is None or pod.ended:
                since = self._snapshot.memory.gone.get(use.uid, self._snapshot.at)
                self._gone[use.uid] = since
                ended.add(use.uid)
                if self._snapshot.at - since > SETTLE_SECONDS:
                    raise _UnbelievableError(
                        f"pod {use.namespace}/{use.pod} ({use.uid}) uses it, and does not run there, for over "
                        f"{SETTLE_SECONDS} s"
                    )
        return frozenset(ended)

    def _goes(self, uid: str) -> bool:
        """Whether a pod is going, or has just ended."""
        pod = self._pods.get(uid)
        if pod is not None and not pod.ended:
            return self._is_going(pod)
        since = self._snapshot.memory.gone.get(uid, self._snapshot.at)
        return self._snapshot.at - since <= SETTLE_SECONDS

    def _is_going(self, pod: GpuPod) -> bool:
        if pod.uid in self._taken or (pod.queued_as and pod.workload in self._stopped):
            return True
        due = self._due(pod)
        return due is not None and self._now < due + timedelta(seconds=LATE_SECONDS)

    def _due(self, pod: GpuPod) -> datetime | None:
        """When a pod that terminates is to be gone: nobody's grace counts for longer than a recycle would give."""
        if pod.gone_by is None:
            return None
        began = pod.gone_by - timedelta(seconds=pod.going_seconds)
        return min(pod.gone_by, began + timedelta(seconds=self._snapshot.limits.grace_seconds))

    def _plan(self, found: DeviceVerdict, targets: Sequence[Target]) -> DeviceVerdict:
        found = replace(found, spared=tuple(filter(None, map(self._spared, targets))))
        alone = {spared.target.name for spared in found.spared}
        by_name = {target.name: target for target in targets if target.name not in alone}
        offenders = {name: self._offender(target) for name, target in by_name.items()}
        allowed = self._caps.allowed(found.node, sorted(by_name.values(), key=lambda each: -each.overshoot_mib))
        choice = choose(
            [offenders[target.name] for target in allowed],
            shortfall_mib=found.missing_mib,
            at_most=self._caps.left(found.node),
        )
        wanted = choose(offenders.values(), shortfall_mib=found.missing_mib, at_most=len(offenders))
        recycle = tuple(by_name[offender.name] for offender in choice.chosen)
        for target in recycle:
            self._caps.take(found.node, target)
        capped = self._caps.reached(found.node, by_name.values()) if choice != wanted else None
        self._taken.update(pod.uid for target in recycle for pod in target.pods)
        self._stopped.update(target.workload for target in recycle)
        return replace(found, recycle=recycle, restores=choice.restores, capped=capped)

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
        if pod.gone_by is not None and self._now >= pod.gone_by + timedelta(seconds=LATE_SECONDS):
            return f"it is terminating, was due to be gone by {pod.gone_by:%H:%M:%S} and still holds its memory"
        if pod.namespace not in limits.tenants:
            return f"{pod.namespace} is not a tenant with a budget, so the watchdog may not evict there"
        if pod.uid in self._capped:
            return (
                "the driver holds it to its budget, so that it took the rest by a way that is not counted, such as "
                "managed memory"
            )
        if pod.owner is None and not limits.bare_pods:
            return "no controller would recreate it"
        if pod.static:
            return "it is a static pod of its node's kubelet"
        return None

    def _recycled(self) -> Collection[Recycled]:
        """A pod ends once: what came to nothing is no recycle, and what was tried again is one."""
        done = [each for each in self._snapshot.recycled if not self._was_in_vain(each)]
        return {(each.workload, each.pods): each for each in sorted(done, key=lambda each: each.at)}.values()

    def _was_in_vain(self, entry: Recycled) -> bool:
        """Whether a pod of it lives on. A queued Job's may, as long as Kueue takes."""
        if self._now - entry.at < timedelta(seconds=VAIN_SECONDS):
            return False
        left = [self._pods[uid] for uid in entry.pods if uid in self._pods]
        return any(pod.gone_by is None and not pod.stops_with_its_job for pod in left)

    def _not_now(self, target: Target) -> str | None:
        limits = self._snapshot.limits
        oldest = max(self._age_seconds(each) for each in target.pods)
        if oldest < limits.minimum_age_seconds:
            return f"it is {oldest:.0f} s old; it is left alone for {limits.minimum_age_seconds} s"
        # One that terminates takes longer than it may: to shorten that is no second recycle of its workload.
        if target.workload in self._cooling and target.first.gone_by is None:
            ago = (self._now - self._cooling[target.workload]).total_seconds()
            return f"it was recycled {ago:.0f} s ago; it is left alone for {limits.cool_down_seconds} s"
        if refused := self._refused.get(target.workload):
            ago = (self._now - refused.at).total_seconds()
            return f"its recycle was refused {ago:.0f} s ago; it is tried again after {SPARED_SECONDS} s: {refused.why}"
        return None


def _reference(use: PodUse | ContainerCap) -> Reference:
    return Reference(api_version="v1", kind="Pod", namespace=use.namespace, name=use.pod, uid=use.uid)


def _targets(pods: Iterable[GpuPod], used: Mapping[str, Mapping[str, int]], uuid: str) -> Sequence[Target]:
    """The offenders among the pods; the pods of a queued Job are one, but for those that terminate already."""
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
        groups.setdefault(pod.recycled_as, []).append(pod)
    yield from groups.values()
