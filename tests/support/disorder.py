"""Simulates random events on a few GPU nodes, and checks each decision of the watchdog."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations
from random import Random
from typing import TypeVar

from agents.kube.pods import Controller
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device
from agents.telemetry.reading import PodUse, Trouble
from agents.watchdog.decide import decide
from agents.watchdog.pods import GpuPod
from agents.watchdog.seats import WAITING_SECONDS
from agents.watchdog.types import Decision, DeviceVerdict, Limits, PassInput, PassState, Recycled, RecycleTarget
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Pool, Seat
from tenancy.units import MIB

T = TypeVar("T")
TENANTS = ("immich", "frigate", "team-a")
START = datetime(2026, 6, 2, 12, 0, tzinfo=UTC)
TOTAL_MIB, FLOOR_MIB, LEAST_FREE_MIB = 1000, 100, 30
PER_HOUR = 2
LIMITS = Limits(
    minimum_age_seconds=60,
    cool_down_seconds=300,
    grace_seconds=30,
    evictions_per_hour=PER_HOUR,
    least_free_mib=LEAST_FREE_MIB,
    tenants=TENANTS[:2],
)


def below(dice: Random, count: int) -> int:
    return int(dice.random() * count)


def pick(dice: Random, options: Sequence[T]) -> T:
    return options[below(dice, len(options))]


@dataclass
class Disorder:
    dice: Random
    nodes: int
    devices: int
    seconds: float = 1000.0
    skew_seconds: float = 0.0
    made: int = 0
    pods: list[GpuPod] = field(default_factory=list)
    # maps the pod's UID and the device's UUID to the MiB in use
    used: dict[tuple[str, str], int] = field(default_factory=dict)
    journal: list[Recycled] = field(default_factory=list)
    state: PassState = field(default_factory=PassState)
    last: tuple[NodeTelemetry, ...] = ()

    @classmethod
    def begin(cls, dice: Random) -> "Disorder":
        world = cls(dice, nodes=dice.randint(1, 2), devices=dice.randint(1, 2))
        for _ in range(dice.randint(2, 6)):
            world.add()
        return world

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds + self.skew_seconds)

    def add(self) -> None:
        self.made += 1
        dice, kind = self.dice, below(self.dice, 10)
        node = f"n{below(dice, self.nodes)}"
        namespace, app = pick(dice, TENANTS), dice.randint(1, 4)
        queued_as = f"job-{app}" if kind == 0 else None
        owner = (
            None
            if kind == 1 or (queued_as and app % 2)
            else Controller(kind="ReplicaSet", name=f"app-{app}", uid=f"o{app}")
        )
        pod = GpuPod(
            namespace=namespace,
            name=f"p{self.made}",
            uid=f"u{self.made}",
            node=node,
            declared_mib=0 if kind == 2 else dice.randint(50, 400),
            started=self.now - timedelta(seconds=dice.randint(0, 200)),
            workload=f"{namespace}/Workload/{queued_as}" if queued_as else f"{namespace}/Deployment/app-{app}",
            priority=dice.randint(0, 2),
            owner=owner,
            queued_as=queued_as,
        )
        self.pods.append(pod)
        for device in range(self.devices):
            if dice.random() < 0.7:
                self.grow(pod, device)

    def grow(self, pod: GpuPod, device: int) -> None:
        key = pod.uid, f"{pod.node}-{device}"
        free = TOTAL_MIB - sum(mib for (_, uuid), mib in self.used.items() if uuid == key[1])
        self.used[key] = max(self.used.get(key, 0) + min(below(self.dice, 651) - 150, free), 0)

    def turn(self) -> tuple[PassInput, datetime, Decision]:
        self.happen()
        readings = self.readings()
        snapshot = PassInput(
            at=self.seconds,
            local_now=self.now,
            readings=readings,
            pods=tuple(self.pods),
            recycled=tuple(self.journal),
            seats=self.waiting(),
            limits=LIMITS,
            state=self.state,
        )
        now = self.now + timedelta(seconds=pick(self.dice, (0, 0, 0, 0, 0, 1, 40)))
        decision = decide(snapshot, now)
        self.state = decision.state if self.dice.random() < 0.9 else PassState()
        self.last = readings
        return snapshot, now, decision

    def happen(self) -> None:
        dice = self.dice
        self.seconds += pick(dice, (0.5, 5, 5, 5, 5, 20, 400))
        if dice.random() < 0.02:
            self.skew_seconds += pick(dice, (-7200, -20, 20, 7200))
        for _ in range(below(dice, 4)):
            if self.pods:
                self.grow(pick(dice, self.pods), below(dice, self.devices))
        if dice.random() < 0.1:
            self.add()
        for index, pod in enumerate(self.pods):
            if pod.gone_by is None and dice.random() < 0.03:
                self.pods[index] = self.ended(pod, self.now, pick(dice, (-300, 0, 30, 3600)))
        if self.pods and dice.random() < 0.05:
            self.pods.pop(below(dice, len(self.pods)))
        if dice.random() < 0.5:
            alive = {pod.uid for pod in self.pods}
            self.used = {key: mib for key, mib in self.used.items() if key[0] in alive}
        if self.pods and dice.random() < 0.05:
            pod = pick(dice, self.pods)
            self.journal.append(Recycled(at=self.now, workload=pod.workload, pods=(pod.uid,), node=pod.node))

    def waiting(self) -> tuple[WaitingSeat, ...]:
        if self.dice.random() < 0.7:
            return ()
        mib = self.dice.randint(50, 400)
        seat = Seat(name="seat", tenant="voice", pool="t4", gpumem_mib=mib)
        created = self.now - timedelta(seconds=self.dice.randint(0, 90))
        return (
            WaitingSeat(
                uid="w",
                namespace="voice",
                name="w",
                request=MemoryRequest(mib),
                seats=(seat,),
                priority=0,
                created=created,
            ),
        )

    def ended(self, pod: GpuPod, now: datetime, seconds: int) -> GpuPod:
        return replace(pod, gone_by=now + timedelta(seconds=seconds), going_seconds=max(seconds, 0))

    def readings(self) -> tuple[NodeTelemetry, ...]:
        frozen = self.dice.random() < 0.1
        found = []
        for index in range(self.nodes):
            before = self.last[index] if self.last else None
            if frozen and before is not None and before.problem is None:
                found.append(replace(before, read_at=self.seconds - before.age_seconds))
            else:
                found.append(self.reading(index))
        return tuple(found)

    def reading(self, index: int) -> NodeTelemetry:
        node, dice = f"n{index}", self.dice
        pool = Pool(
            name="t4",
            node_selector={},
            nodes=1,
            device_count=self.devices,
            memory_mib=TOTAL_MIB,
            floor_mib=FLOOR_MIB,
        )
        if dice.random() < 0.03:
            return NodeTelemetry(pool=pool, node=node, trouble=Trouble.MISSING, problem="HTTP 503")
        uses = tuple(
            PodUse(uid=uid, namespace="", pod="", uuid=uuid, used_bytes=mib * MIB)
            for (uid, uuid), mib in sorted(self.used.items())
            if uuid.startswith(f"{node}-") and mib
        )
        devices = tuple(
            self.device(gpu, f"{node}-{gpu}", sum(use.used_bytes for use in uses if use.uuid == f"{node}-{gpu}"))
            for gpu in range(self.devices)
        )
        known = dice.random() > 0.03
        age_seconds = below(dice, 30_000) / 1000
        return NodeTelemetry(
            pool=pool,
            node=node,
            devices=devices,
            uses=uses if known else (),
            unknown_uses={} if known else {device.uuid: "2 processes" for device in devices},
            age_seconds=age_seconds,
            read_at=self.seconds - age_seconds,
        )

    def device(self, gpu: int, uuid: str, used_bytes: int) -> Device:
        total = TOTAL_MIB * MIB
        return Device(
            gpu=gpu, uuid=uuid, total_bytes=total, used_bytes=used_bytes, free_bytes=max(total - used_bytes, 0)
        )

    def obey(self, decision: Decision, now: datetime) -> None:
        if self.dice.random() < 0.2:
            return
        for target in _recycled(decision):
            uids = tuple(pod.uid for pod in target.pods)
            self.journal.append(Recycled(at=now, workload=target.workload, pods=uids, node=target.first.node))
            for index, pod in enumerate(self.pods):
                if pod.uid in uids and self.dice.random() < 0.7:
                    self.pods[index] = self.ended(pod, now, 30)
        self.journal.sort(key=lambda each: each.at)


def check(snapshot: PassInput, now: datetime, decision: Decision) -> int:
    hour = _ends(snapshot, now)
    targets = _recycled(decision)
    if targets:
        _check_caps([each.tenant for each in hour], [each.tenant for each in targets])
        assert abs((now - snapshot.local_now).total_seconds()) <= 30, "by a clock that is wrong"
        assert all(each.at - now <= timedelta(seconds=5) for each in snapshot.recycled), "by a clock that went back"
    uids = [pod.uid for target in targets for pod in target.pods]
    assert len(uids) == len(set(uids)), "twice"
    readings = {reading.node: reading for reading in snapshot.readings}
    earlier: tuple[RecycleTarget, ...] = ()
    for verdict in decision.verdicts:
        if verdict.recycle:
            _check_device(snapshot, now, readings[verdict.node], verdict, earlier)
        earlier += verdict.recycle
    return len(targets)


def _ends(snapshot: PassInput, now: datetime) -> Collection[Recycled]:
    alive = {pod.uid for pod in snapshot.pods if pod.gone_by is None}
    since, minute = now - timedelta(hours=1), timedelta(minutes=1)
    done = [each for each in snapshot.recycled if each.at + minute > now or alive.isdisjoint(each.pods)]
    return {each.pods: each for each in sorted(done, key=lambda each: each.at) if each.at > since}.values()


def _check_caps(hour: Sequence[str], now: Sequence[str]) -> None:
    for tenant in now:
        assert (*hour, *now).count(tenant) <= PER_HOUR, "beyond the tenant's cap"


def _recycled(decision: Decision) -> list[RecycleTarget]:
    return [target for verdict in decision.verdicts for target in verdict.recycle]


def _check_device(
    snapshot: PassInput,
    now: datetime,
    reading: NodeTelemetry,
    verdict: DeviceVerdict,
    earlier: tuple[RecycleTarget, ...],
) -> None:
    before = snapshot.state.readings.get(reading.node)
    assert reading.problem is None, "without telemetry"
    assert not reading.unknown_uses, "by partial telemetry"
    assert before is not None, "after one sample"
    assert before.read_at < reading.read_at, "twice the same sample"
    waited = [seat for seat in snapshot.seats if (now - seat.created).total_seconds() >= WAITING_SECONDS]
    (device,) = (each for each in reading.devices if each.uuid == verdict.device.uuid)
    wanted_mib = FLOOR_MIB + max((seat.request.mib for seat in waited), default=0)
    assert device.free_bytes < wanted_mib * MIB, "above the floor, and of what a seat needs"
    assert verdict.seats_mib == 0 or verdict.seats_mib == wanted_mib - device.free_bytes // MIB
    used: dict[str, dict[str, int]] = {}
    for use in reading.uses:
        used.setdefault(use.uid, {})[use.uuid] = use.used_bytes // MIB
    for target in verdict.recycle:
        for pod in target.pods:
            _check_pod(snapshot, now, pod, used[pod.uid])
        oldest = min(pod.started for pod in target.pods)
        assert (now - oldest).total_seconds() >= LIMITS.minimum_age_seconds, "too young"
    just_now = [Recycled(at=now, workload=t.workload, pods=tuple(pod.uid for pod in t.pods)) for t in earlier]
    _check_smallest(replace(snapshot, recycled=(*snapshot.recycled, *just_now)), now, verdict, used)


def _check_pod(snapshot: PassInput, now: datetime, pod: GpuPod, used: dict[str, int]) -> None:
    assert 0 < pod.declared_mib < sum(used.values()), "within its budget"
    assert not _is_ending(now, pod), "that is going"
    assert pod.gone_by is None or now < pod.gone_by + timedelta(seconds=60), "that hangs in its end"
    assert pod.owner is not None or pod.queued_as, "that nothing brings back"
    assert pod.namespace in LIMITS.tenants, "of nobody's tenant"
    cool_down = timedelta(seconds=LIMITS.cool_down_seconds)
    cooling = {each.workload for each in _ends(snapshot, now) if now - each.at < cool_down}
    assert pod.gone_by or pod.workload not in cooling, "again, too soon"


def _is_ending(now: datetime, pod: GpuPod) -> bool:
    if pod.gone_by is None:
        return False
    began = pod.gone_by - timedelta(seconds=pod.going_seconds)
    return now < began + timedelta(seconds=min(pod.going_seconds, LIMITS.grace_seconds) + 60)


def _goes(snapshot: PassInput, now: datetime, pod: GpuPod) -> bool:
    if _is_ending(now, pod):
        return True
    return any(
        (now - each.at).total_seconds() < 30
        and (pod.uid in each.pods or (pod.queued_as is not None and pod.workload == each.workload))
        for each in snapshot.recycled
    )


def _check_smallest(
    snapshot: PassInput, now: datetime, verdict: DeviceVerdict, used: dict[str, dict[str, int]]
) -> None:
    amounts = [target.overshoot_mib for target in verdict.recycle]
    assert all(amount > 0 for amount in amounts)
    there = {pod.uid for pod in snapshot.pods}
    ended = {uid for uid in used if uid not in there and verdict.samples <= 3}
    going = ended | {pod.uid for pod in snapshot.pods if _goes(snapshot, now, pod)}
    freed = sum(used.get(uid, {}).get(verdict.device.uuid, 0) for uid in going)
    missing = max(FLOOR_MIB - verdict.free_mib, verdict.seats_mib) - freed
    assert missing > 0, "though enough is going"
    assert verdict.restores is (sum(amounts) >= missing)
    most = max(sum(fewer) for fewer in combinations(amounts, len(amounts) - 1))
    levels = (missing, FLOOR_MIB - verdict.free_mib - freed, LEAST_FREE_MIB - verdict.free_mib - freed)
    seats = tuple(mib - freed for mib in verdict.fewer_seats_mib)
    assert any(most < mib <= sum(amounts) for mib in (*levels, *seats)), "restores nothing, or is more than needed"


def live(dice: Random, passes: int) -> int:
    world, recycles = Disorder.begin(dice), 0
    for _ in range(passes):
        snapshot, now, decision = world.turn()
        recycles += check(snapshot, now, decision)
        world.obey(decision, now)
    return recycles
