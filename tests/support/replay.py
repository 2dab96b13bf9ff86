"""A simulated T4 whose tenants' memory follows curves, and two watchdogs over it, second by second.

Ours has its runs and samples timed as in the cluster. The other is record 0000's design as its operator built it
(ViktorBarzin/infra, watchdog.py): a loop of 60 s on telemetry of 15 s, free memory as the total less the pods' sum, the
largest overshoot is deleted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from agents.kube.pods import Controller
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.device import Device
from agents.telemetry.reading import PodUse
from agents.watchdog.decide import decide
from agents.watchdog.pods import GpuPod
from agents.watchdog.types import HourlyCaps, Limits, PassInput, PassState, Recycled
from tenancy.units import MIB
from tests.support.fake_cluster import T4

TOTAL_MIB, DRIVER_MIB = 15360, 450
CRASH_SECONDS = (8, 7, 9)  # in turn, from a failed allocation to the container's next start
MINIMUM_AGE_SECONDS, COOL_DOWN_SECONDS, CAP, GRACE_SECONDS = 120, 600, 4, 30
BEGIN = datetime(2026, 6, 2, 12, 0, tzinfo=UTC)
UUID = "GPU-0"


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A Deployment of one pod. `wants` is MiB by the seconds since its container's start; `grace_seconds` pass between
    its eviction and the end of its process. Where memory is short it takes what there is; `crashes`: and fails with it
    after about 8 s, to start anew."""

    name: str
    declared_mib: int
    wants: Callable[[int], int]
    grace_seconds: int = 10
    crashes: bool = False


@dataclass
class Running:
    """A tenant's pod of now."""

    tenant: Tenant
    uid: str
    born: int
    started: int
    used_mib: int = 0
    fails: int | None = None
    ends: int | None = None


@dataclass(frozen=True)
class Sample:
    """What an exporter read: MiB by pod uid."""

    read_at: int
    used_mib: dict[str, int]


@dataclass
class World:
    """The card at `second`; `denied` counts the seconds in which a tenant within its budget asked for memory that was
    not there."""

    tenants: Sequence[Tenant]
    second: int = 0
    pods: list[Running] = field(default_factory=list)
    starts: list[tuple[int, Tenant]] = field(default_factory=list)
    made: int = 0
    denied: int = 0
    crashes: int = 0
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        for tenant in self.tenants:
            self.start(tenant, born=-3600)

    def start(self, tenant: Tenant, born: int) -> None:
        self.made += 1
        self.pods.append(Running(tenant, f"{tenant.name}-{self.made}", born, self.second))

    @property
    def free_mib(self) -> int:
        return TOTAL_MIB - DRIVER_MIB - sum(pod.used_mib for pod in self.pods)

    def step(self) -> None:
        self.second += 1
        for pod in [pod for pod in self.pods if pod.ends is not None and pod.ends <= self.second]:
            self.pods.remove(pod)
            self.starts.append((self.second + 3, pod.tenant))
        for due, tenant in [each for each in self.starts if each[0] <= self.second]:
            self.starts.remove((due, tenant))
            self.start(tenant, born=self.second)
        for pod in self.pods:
            self._grow(pod)
        if self.second % 5 == 0:
            self.samples.append(Sample(self.second, {pod.uid: pod.used_mib for pod in self.pods}))

    def _grow(self, pod: Running) -> None:
        if pod.ends is not None:
            return
        if pod.fails is not None and pod.fails <= self.second:
            self.crashes += 1
            pod.used_mib, pod.fails, pod.started = 0, None, self.second
        wanted_mib = pod.tenant.wants(self.second - pod.started)
        pod.used_mib = min(wanted_mib, pod.used_mib + self.free_mib)
        if pod.used_mib < wanted_mib:
            self.denied += wanted_mib <= pod.tenant.declared_mib
            if pod.tenant.crashes and pod.fails is None:
                pod.fails = self.second + CRASH_SECONDS[self.crashes % len(CRASH_SECONDS)]

    def end(self, uid: str, grace_seconds: int | None = None) -> None:
        """With its own grace, or with at most so much."""
        for pod in self.pods:
            if pod.uid == uid and pod.ends is None:
                own = pod.tenant.grace_seconds
                pod.ends = self.second + (own if grace_seconds is None else min(own, grace_seconds))


@dataclass
class Outcome:
    """What a watchdog did: when, to which workload, and which of it was wrong: a pod that was terminating already, one
    that still loaded its model, one of a workload recycled within ten minutes."""

    recycled: list[tuple[int, str]] = field(default_factory=list)
    wrong: int = 0
    capped: list[int] = field(default_factory=list)

    def act(self, world: World, uid: str, grace_seconds: int | None = None) -> None:
        pod = next(each for each in world.pods if each.uid == uid)
        again = any(world.second - at < COOL_DOWN_SECONDS and name == pod.tenant.name for at, name in self.recycled)
        self.wrong += pod.ends is not None or again or world.second - pod.born < MINIMUM_AGE_SECONDS
        self.recycled.append((world.second, pod.tenant.name))
        world.end(uid, grace_seconds)


class Design(Protocol):
    """A watchdog over a world, told each second."""

    outcome: Outcome

    def look(self, world: World) -> None:
        """May act."""


@dataclass
class Ours:
    """Passes at seconds 3, 8 … 43 of each minute, as a CronJob's run has them, and one more while unsettled."""

    outcome: Outcome = field(default_factory=Outcome)
    memory: PassState = field(default_factory=PassState)
    journal: list[Recycled] = field(default_factory=list)
    unsettled: bool = False

    def look(self, world: World) -> None:
        at = world.second % 60
        if at == 3:
            self.memory = PassState()
        if world.samples and at % 5 == 3 and (at <= 43 or (at == 48 and self.unsettled)):
            self._pass(world)

    def _pass(self, world: World) -> None:
        now = BEGIN + timedelta(seconds=world.second)
        snapshot = PassInput(
            at=world.second,
            local_now=now,
            readings=[_reading(world)],
            pods=[_pod(pod) for pod in world.pods],
            recycled=tuple(self.journal),
            limits=Limits(
                minimum_age_seconds=MINIMUM_AGE_SECONDS,
                cool_down_seconds=COOL_DOWN_SECONDS,
                grace_seconds=GRACE_SECONDS,
                caps=HourlyCaps(tenant=CAP, node=2 * CAP, total=6 * CAP),
                waiting_seconds=30,
                bare_pods=False,
                tenants=frozenset(tenant.name for tenant in world.tenants),
            ),
            memory=self.memory,
        )
        decision = decide(snapshot, now)
        self.memory, self.unsettled = decision.memory, decision.unsettled
        if any(verdict.capped for verdict in decision.verdicts):
            self.outcome.capped.append(world.second)
        for verdict in decision.verdicts:
            for target in verdict.recycle:
                entry = Recycled(at=now, workload=target.workload, pods=(target.first.uid,), node=verdict.node)
                self.journal.append(entry)
                self.outcome.act(world, target.first.uid, GRACE_SECONDS)


@dataclass
class Polling:
    """The polling design: each minute the largest overshoot, whatever happened before."""

    outcome: Outcome = field(default_factory=Outcome)

    def look(self, world: World) -> None:
        old = [sample for sample in world.samples if sample.read_at % 15 == 0]
        if world.second % 60 != 30 or not old:
            return
        used = old[-1].used_mib
        if TOTAL_MIB - sum(used.values()) >= T4.floor_mib:
            return
        declared = {pod.uid: pod.tenant.declared_mib for pod in world.pods}
        over = {uid: mib - declared[uid] for uid, mib in used.items() if uid in declared and mib > declared[uid]}
        if over:
            self.outcome.act(world, max(over, key=lambda uid: (over[uid], uid)))


def _reading(world: World) -> NodeTelemetry:
    sample = world.samples[-1]
    used = DRIVER_MIB + sum(sample.used_mib.values())
    age_seconds = world.second - sample.read_at + sample.read_at % 97 / 1000
    device = Device(
        gpu=0,
        uuid=UUID,
        total_bytes=TOTAL_MIB * MIB,
        used_bytes=used * MIB,
        free_bytes=(TOTAL_MIB - used) * MIB,
    )
    return NodeTelemetry(
        pool=T4,
        node="n",
        devices=(device,),
        uses=tuple(
            PodUse(uid=uid, namespace=uid.rpartition("-")[0], pod=uid, uuid=UUID, used_bytes=mib * MIB)
            for uid, mib in sample.used_mib.items()
        ),
        age_seconds=age_seconds,
        read_at=world.second - age_seconds,
    )


def _pod(pod: Running) -> GpuPod:
    return GpuPod(
        namespace=pod.tenant.name,
        name=pod.uid,
        uid=pod.uid,
        node="n",
        declared_mib=pod.tenant.declared_mib,
        started=BEGIN + timedelta(seconds=pod.born),
        workload=f"{pod.tenant.name}/Deployment/{pod.tenant.name}",
        owner=Controller(kind="ReplicaSet", name=pod.tenant.name, uid=pod.tenant.name),
        gone_by=None if pod.ends is None else BEGIN + timedelta(seconds=pod.ends),
    )


@dataclass(frozen=True)
class Told:
    """How a replay went; `recovery_seconds` from the first second under the floor to the first above it again, None
    where it never was."""

    crossed: int | None
    recovery_seconds: int | None
    denied_seconds: int
    crashes: int
    outcome: Outcome


def play(world: World, design: Design, *, seconds: int) -> Told:
    """The world under a watchdog for so long."""
    crossed = recovered = None
    for _ in _seconds(world, seconds):
        design.look(world)
        if crossed is None and world.free_mib < T4.floor_mib:
            crossed = world.second
        if crossed is not None and recovered is None and world.free_mib >= T4.floor_mib:
            recovered = world.second
    recovery = None if crossed is None or recovered is None else recovered - crossed
    return Told(crossed, recovery, world.denied, world.crashes, design.outcome)


def _seconds(world: World, seconds: int) -> Iterator[None]:
    for _ in range(seconds):
        world.step()
        yield


def steady(mib: int) -> Callable[[int], int]:
    return lambda _: mib


def growing(begin_mib: int, end_mib: int, *, after: int = 0, seconds: int) -> Callable[[int], int]:
    """From one amount to another in so many seconds, and no further."""
    return lambda age: begin_mib + round((end_mib - begin_mib) * min(max(age - after, 0), seconds) / seconds)


def _household(*others: Tenant) -> tuple[Tenant, ...]:
    return (
        Tenant(name="frigate", declared_mib=2000, wants=steady(1900)),
        Tenant(name="portal-stt", declared_mib=1500, wants=steady(1500)),
        *others,
    )


def _arena(seconds: int, after: int, grace_seconds: int = 10) -> tuple[Tenant, ...]:
    """2026-06-02: immich-ml's arena from 2 to 10.7 GB beside a household at its measured use; llama-swap, its
    neighbour, swaps a model of 4350 MiB in and out every five minutes."""
    return _household(
        Tenant(name="immich-server", declared_mib=1800, wants=steady(1200)),
        Tenant(
            name="immich-ml",
            declared_mib=3000,
            wants=growing(2000, 10_700, after=after, seconds=seconds),
            grace_seconds=grace_seconds,
        ),
        Tenant(name="llama-swap", declared_mib=5000, wants=lambda age: 4350 if age // 300 % 2 == 0 else 600),
    )


def _crash_loop() -> tuple[Tenant, ...]:
    """2026-07-07: two budgets that were wrong from the start (5000 for 6996, 1800 for 6750) do not fit the card
    together; whoever loads second fails, every 8 s."""
    return _household(
        Tenant(name="immich-ml", declared_mib=3000, wants=steady(2000)),
        Tenant(name="llama-swap", declared_mib=5000, wants=growing(0, 6996, seconds=4), crashes=True),
        Tenant(name="immich-server", declared_mib=1800, wants=growing(0, 6750, seconds=4), crashes=True),
    )


@dataclass(frozen=True)
class Replay:
    """A timeline by name."""

    name: str
    tenants: Callable[[], tuple[Tenant, ...]]
    seconds: int

    def under(self, design: Design, *, phase: int = 0) -> Told:
        """`phase`: the second of a minute at which it begins."""
        return play(World(self.tenants(), second=phase), design, seconds=self.seconds)


DRIFT = Replay("2026-06-02: the arena grows for two hours", lambda: _arena(7200, 0), 3600)
BURST = Replay("the same growth within a minute", lambda: _arena(60, 610), 1800)
SLOW_END = Replay("the same within a minute, and its pod asks for 150 s of grace", lambda: _arena(60, 610, 150), 1800)
CRASH_LOOP = Replay("2026-07-07: crash loops of about 8 s", _crash_loop, 2 * 3600)
REPLAYS = (DRIFT, BURST, SLOW_END, CRASH_LOOP)
