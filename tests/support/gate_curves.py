"""A device over time and the gates before it, without a cluster: what a policy of opening and closing makes of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from agents.gate.config import GateConfig
from agents.gate.decide import decide, entry_after
from agents.gate.deployments import Deployment
from agents.gate.headroom import used_mib
from agents.gate.ownership import JournalEntry, standing
from agents.gate.pods import BoundPod, Seating
from agents.gate.probes import HttpJson, ProbeResult
from agents.gate.types import Action, GateState, Streak
from agents.telemetry.client import NodeTelemetry
from agents.telemetry.reading import PodUse
from tenancy.ledger import Seat
from tenancy.units import MIB
from tests.support.fake_cluster import T4
from tests.support.gating import device, waiting

TOTAL_MIB = 15360
NODE = "n"
GRACE_SECONDS = 10  # until a pod that was told to go has given its memory back
RUN_SECONDS = 60  # then another run of the gate takes over, which knows the journal alone
INTERVAL_SECONDS = 5  # between its samples

Curve = Callable[[int], int]


def steady(mib: int) -> Curve:
    return lambda second: mib


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """`queue` is what waits for it at a second, None where the probe fails; it loads `peak_mib` in so many seconds."""

    gate: GateConfig
    queue: Callable[[int], int | None]
    peak_mib: int
    load_seconds: int = 60


@dataclass(frozen=True, kw_only=True)
class Resident:
    """A seat. Its pod is `away` from one second up to another, and loads what it `uses` within its budget in so many
    seconds."""

    seat: Seat
    uses: Curve
    away: tuple[tuple[int, int], ...] = ()
    load_seconds: int = 30


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`residents` is what those use whose pods are not of interest; `seen` tells whether the exporter measures at a
    second."""

    name: str
    tenants: tuple[Tenant, ...]
    residents: Curve
    seconds: int
    seats: tuple[Resident, ...] = ()
    seen: Callable[[int], bool] = lambda second: True


@dataclass
class Life:
    """A tenant's Deployment and what its pods hold. Times are seconds of the scenario."""

    tenant: Tenant
    replicas: int = 0
    generation: int = 1
    opened_at: int = 0
    closed_at: int | None = None
    left_mib: int = 0  # held when it was closed

    def held_mib(self, second: int) -> int:
        if self.replicas:
            loaded = min(1.0, (second - self.opened_at) / self.tenant.load_seconds)
            return int(self.tenant.peak_mib * loaded)
        going = self.closed_at is not None and second < self.closed_at + GRACE_SECONDS
        return self.left_mib if going else 0

    def to_come_mib(self, second: int) -> int:
        return self.tenant.peak_mib - self.held_mib(second) if self.replicas else 0

    def scale(self, replicas: int, second: int) -> None:
        if replicas:
            self.opened_at = second
        else:
            self.left_mib, self.closed_at = self.held_mib(second), second
        self.replicas = replicas
        self.generation += 1


@dataclass
class Seated:
    """A resident's pod: `created_at` None while it is away, `bound_at` None while it waits."""

    resident: Resident
    created_at: int | None = -3600
    bound_at: int | None = -3600
    longest_wait: int = 0

    @property
    def name(self) -> str:
        return self.resident.seat.name

    @property
    def waits(self) -> bool:
        return self.created_at is not None and self.bound_at is None

    def held_mib(self, second: int) -> int:
        if self.bound_at is None:
            return 0
        loaded = min(1.0, (second - self.bound_at) / self.resident.load_seconds)
        return int(self.resident.uses(second) * loaded)

    def come_and_go(self, second: int) -> None:
        for begin, end in self.resident.away:
            if second == begin:
                self.created_at = self.bound_at = None
            if second == end:
                self.created_at = second

    def place(self, free_mib: int, second: int) -> None:
        """As the extender does while reclaim works: where it fits as measured."""
        if self.created_at is None or self.bound_at is not None:
            return
        self.longest_wait = max(self.longest_wait, second - self.created_at)
        if free_mib - T4.floor_mib >= self.resident.seat.gpumem_mib:
            self.bound_at = second


@dataclass
class World:
    """A device, who is on it, and who may come."""

    scenario: Scenario
    lives: Sequence[Life]
    seated: Sequence[Seated] = ()

    def free_mib(self, second: int) -> int:
        held = sum(life.held_mib(second) for life in self.lives) + sum(each.held_mib(second) for each in self.seated)
        return TOTAL_MIB - self.scenario.residents(second) - held

    def to_come_mib(self, second: int) -> int:
        return sum(life.to_come_mib(second) for life in self.lives)

    def telemetry(self, second: int) -> NodeTelemetry:
        """What the exporter shows: an exporter that sees nothing says so."""
        if not self.scenario.seen(second):
            return NodeTelemetry(pool=T4, node=NODE, problem="HTTP 503")
        held = {life.tenant.gate.name: life.held_mib(second) for life in self.lives}
        held |= {each.name: each.held_mib(second) for each in self.seated}
        uses = tuple(
            PodUse(uid=uid, namespace="", pod="", uuid="GPU-0", used_bytes=mib * MIB)
            for uid, mib in held.items()
            if mib
        )
        return NodeTelemetry(pool=T4, node=NODE, devices=(device(self.free_mib(second)),), uses=uses)

    def seating(self, second: int) -> Seating:
        """What the API shows. A pod that was told to go is there until it has given its memory back."""
        gated = [
            BoundPod(
                uid=life.tenant.gate.name,
                namespace=life.tenant.gate.namespace,
                node=NODE,
                going_since=None if life.replicas else life.closed_at,
                grace_seconds=GRACE_SECONDS,
            )
            for life in self.lives
            if life.replicas or life.held_mib(second)
        ]
        residents = [
            BoundPod(
                uid=each.name,
                namespace=each.resident.seat.tenant,
                node=NODE,
                declared_mib=each.resident.seat.gpumem_mib,
                uuids=("GPU-0",),
                running_since=each.bound_at,
            )
            for each in self.seated
            if each.bound_at is not None
        ]
        return Seating(
            seats=tuple(each.resident.seat for each in self.seated),
            pods=(*gated, *residents),
            waiting=tuple(waiting(each.name, each.resident.seat.gpumem_mib) for each in self.seated if each.waits),
        )


@dataclass
class Outcome:
    """What came of it. `no_room`: openings of which the end is a device under its floor. `longest_wait`: of a seat, in
    seconds from its pod's creation to its being placed."""

    openings: int = 0
    no_room: int = 0
    by_tenant: dict[str, int] = field(default_factory=dict)
    under_floor_seconds: int = 0
    least_free_mib: int = TOTAL_MIB
    wanted_seconds: int = 0
    served_seconds: int = 0
    longest_wait: int = 0


class Policy(Protocol):
    """Opens and closes by calling `scale` of a life."""

    def step(self, world: World, second: int) -> None: ...


def play(scenario: Scenario, policy: Policy) -> Outcome:
    """The scenario second by second."""
    lives = [Life(tenant) for tenant in scenario.tenants]
    world = World(scenario, lives, [Seated(resident) for resident in scenario.seats])
    outcome = Outcome()
    for second in range(scenario.seconds):
        for each in world.seated:
            each.come_and_go(second)
            each.place(world.free_mib(second), second)
        before = [life.replicas for life in lives]
        policy.step(world, second)
        for life, was in zip(lives, before, strict=True):
            if life.replicas > was:
                _count_opening(outcome, world, life, second)
        free = world.free_mib(second)
        outcome.least_free_mib = min(outcome.least_free_mib, free)
        outcome.under_floor_seconds += free < T4.floor_mib
        outcome.wanted_seconds += sum(bool(life.tenant.queue(second)) for life in lives)
        outcome.served_seconds += sum(bool(life.tenant.queue(second)) and life.replicas for life in lives)
    outcome.longest_wait = max((each.longest_wait for each in world.seated), default=0)
    return outcome


def _count_opening(outcome: Outcome, world: World, life: Life, second: int) -> None:
    name = life.tenant.gate.name
    outcome.openings += 1
    outcome.by_tenant[name] = outcome.by_tenant.get(name, 0) + 1
    outcome.no_room += world.free_mib(second) - world.to_come_mib(second) < T4.floor_mib


@dataclass
class Ours:
    """The gate as it runs: samples in a minute's run, which forgets at its end all but the journal."""

    journal: dict[str, JournalEntry] = field(default_factory=dict)
    agreed: dict[str, Streak] = field(default_factory=dict)

    def step(self, world: World, second: int) -> None:
        if second % RUN_SECONDS == 0:
            self.agreed = {}
        if second % INTERVAL_SECONDS:
            return
        readings = [world.telemetry(second)]
        found = [self._found(life, readings, second) for life in world.lives]
        for life, intent in zip(world.lives, decide(found, readings, world.seating(second), second), strict=True):
            self.agreed[intent.gate.name] = intent.agreed
            entry = entry_after(intent, second, acts=True)
            if entry is not None:
                self.journal[intent.gate.name] = entry
            if intent.act is not Action.KEEP:
                life.scale(1 if intent.act is Action.OPEN else 0, second)

    def _found(self, life: Life, readings: Sequence[NodeTelemetry], second: int) -> GateState:
        gate = life.tenant.gate
        found = Deployment(
            namespace=gate.namespace,
            name=gate.deployment,
            uid=gate.name,
            generation=life.generation,
            replicas=life.replicas,
        )
        waits = life.tenant.queue(second)
        return GateState(
            gate=gate,
            deployment=found,
            standing=standing(found, self.journal.get(gate.name), None, second),
            answer=None if waits is None else ProbeResult(waits > 0, f"pending is {waits}"),
            used_mib=used_mib(readings, {gate.name} if life.replicas else ()),
            nodes=frozenset({NODE} if life.replicas else ()),
            agreed=self.agreed.get(gate.name),
        )


@dataclass(frozen=True, kw_only=True)
class CronJobs:
    """The gate that record 0000's cluster ran: a CronJob every 3 minutes lets each tenant in by its own script, one
    every 5 minutes closes it under one and the same floor. What the exporter does not see counts as free.

    Source: stacks/tts of ViktorBarzin/infra at 0cd4afb. It adds up what the exporter attributes, of 16 GiB.
    """

    floor_mib: int

    def step(self, world: World, second: int) -> None:
        free = 16384 - (TOTAL_MIB - world.free_mib(second) if world.scenario.seen(second) else 0)
        for life in world.lives:
            waits = life.tenant.queue(second)
            if second % 300 == 0 and life.replicas and free < self.floor_mib:
                life.scale(0, second)
            if second % 180 == 0 and waits is not None:
                if waits and not life.replicas and free >= self.floor_mib:
                    life.scale(1, second)
                elif not waits and life.replicas:
                    life.scale(0, second)


def tenant(name: str, need_mib: int, queue: Callable[[int], int | None], **fields: int) -> Tenant:
    """A tenant behind an HTTP probe that loads what it needs, on prod's terms."""
    gate = GateConfig(
        name=name,
        namespace=name,
        deployment=name,
        pool="t4",
        need_mib=need_mib,
        margin_mib=256,
        samples=3,
        idle_seconds=300,
        cool_down_seconds=300,
        demand=HttpJson(url="http://queue/status", field="pending"),
    )
    return replace(Tenant(gate=gate, queue=queue, peak_mib=need_mib), **fields)
