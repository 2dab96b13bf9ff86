"""A history of use under a stack: what its agents would have done. Their own code over the simulated cluster.

What a pod asked for is the history's; what it gets, who is recycled, let in or put out, and who waits are the replay's.
A recycled pod begins its life over; where the history has its next pod, that is what it asks for from then on. A pod of
the history that ended over its budget is taken to have been recycled: here it goes on until it is.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any
from urllib.parse import urlencode

from agents.gate.config import GateConfig, declared
from agents.gate.probes import FreeMemory, HttpJson, PrometheusQuery
from simulation.agents import wired
from simulation.api import Object
from simulation.cluster import Cluster
from simulation.devices import Card, Machine, machine
from simulation.history import Life, Owner, PodHistory, Scene, owners, scene
from simulation.kubelet import Running
from simulation.stack import Stack
from simulation.tenants import ON_DEMAND, RESIDENT, Workload
from tenancy.ledger import Pool, Sharing
from tenancy.names import GATE

# Before the history begins everybody is placed, and holds what it will hold then but no more than its budget.
WARM_SECONDS = 600.0
# A pod that the history ends is replaced so long before its next one begins there.
_REPLACED_SECONDS = 12.0
_ABSENT_SECONDS = 60.0
# Who waits for less is not said to wait.
PENDING_SECONDS = 10.0
LET_IN_SECONDS = 60.0  # likewise of work on demand, which a gate lets in by samples
DRAINS_SECONDS = 10.0  # a process takes so long to end, where its grace allows
_TICK_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Happened:
    """`what`: recycled, let in, put out, pending, refused. `seconds` is how long, of the latter two; `used_mib` and
    `declared_mib` are of a recycled pod."""

    at: datetime
    what: str
    workload: str
    seconds: int = 0
    used_mib: int = 0
    declared_mib: int = 0
    device: str = ""


@dataclass(frozen=True, kw_only=True)
class Floor:
    """So long a device was under its floor."""

    at: datetime
    device: str
    seconds: int


@dataclass(frozen=True, kw_only=True)
class Played:
    """What would have happened. `short_seconds` is by workload how long a process within its budget lacked memory."""

    begin: datetime
    end: datetime
    happened: tuple[Happened, ...]
    floors: tuple[Floor, ...]
    short_seconds: dict[str, int]
    notes: tuple[str, ...]


def gates_of(stack: Stack) -> tuple[GateConfig, ...]:
    """The gates as the stack declares them; none where it has no gate agent."""
    return declared(stack.environ.get(GATE, {}).get("GATES", "[]"))


def owners_of(stack: Stack) -> list[Owner]:
    """Its seats, and the workloads behind its gates."""
    return owners(stack.ledger, gates_of(stack))


def play(
    pods: Sequence[PodHistory],
    stack: Stack,
    *,
    before: Stack | None = None,
    drains_seconds: float = DRAINS_SECONDS,
) -> Played:
    """The history, of at least one pod, under the stack; `before` is the stack under which it was made, if another.

    Who has no history used nothing, but for whom `before` lacks: that one takes all that it is given.
    """
    others = owners_of(before) if before else []
    new = {owner.name for owner in owners_of(stack)} - {owner.name for owner in others} if before else set()
    first = min(pod.samples[0][0] for pod in pods)
    last = max(pod.samples[-1][0] for pod in pods)
    found = scene(pods, stack.ledger, gates_of(stack), others)
    begin = first - first % 60 - WARM_SECONDS
    seen = {name for name, rows in found.lives.items() if rows}
    new -= seen
    there = _with_gates(stack, seen | new)
    with _replayed(there, found, new, begin, drains_seconds) as cluster:
        cluster.run(last - begin)
        return cluster.told(first, last)


def _with_gates(stack: Stack, names: Collection[str]) -> Stack:
    """Of its gates those that let these in."""
    if GATE not in stack.environ:
        return stack
    variables = stack.environ[GATE]
    kept = [gate for gate in json.loads(variables["GATES"]) if gate["deployment"] in names]
    return replace(stack, environ={**stack.environ, GATE: {**variables, "GATES": json.dumps(kept)}})


@dataclass
class Replica:
    """One pod of a resident. `at` is the history's life of now, or -1; `recycled`: its pod goes by the watchdog's will,
    `own`: it lives its own life since, not the history's."""

    lives: Sequence[Life]
    at: int = -1
    running: Running | None = None
    recycled: bool = False
    own: bool = False

    @property
    def life(self) -> Life | None:
        return self.lives[max(self.at, 0)] if self.lives else None


@dataclass
class Queue:
    """The work of an on-demand workload, in order; each piece takes as long as it did. `always`: it has no end."""

    lives: Sequence[Life]
    always: bool = False
    asked: list[Life] = field(default_factory=list)
    waits_since: float | None = None


class Replayed(Cluster):
    """Within `wired` only. Times are the history's; the world's begin is `origin`."""

    def __init__(self, stack: Stack, found: Scene, new: Collection[str], origin: float, drains_seconds: float) -> None:
        self.scene = found
        self.new = new
        self.origin = origin
        self.drains_seconds = drains_seconds
        self.happened: list[Happened] = []
        self.floors: list[Floor] = []
        self.short: dict[str, int] = {}
        self._waits: dict[str, tuple[float, str]] = {}  # by the pod's uid: since when, and whose
        self._refused: dict[str, tuple[float, float]] = {}  # by workload: first and last
        self._under: dict[str, float] = {}
        self._turns: dict[str, object] = {}  # by the pod's uid: of the life that it lives
        self._generation = 0
        dice = Random(1)  # noqa: S311 (a simulation)
        super().__init__(stack, dice, begin=datetime.fromtimestamp(origin, UTC))
        self.replicas = {
            seat.name: [Replica(lives) for lives in self._rows(seat.name, seat.replicas)] for seat in stack.ledger.seats
        }
        self.queues = {
            gate.deployment: Queue(_in_order(found.lives.get(gate.deployment, ())), gate.deployment in new)
            for gate in self.gates.values()
        }
        self.world.tense = lambda: any(self._wanted(gate) != self._is_in(gate) for gate in self.gates.values())
        self.world.counting = self._counting
        self._plan()

    def _rows(self, seat: str, replicas: int) -> list[list[Life]]:
        rows = self.scene.lives.get(seat, [])
        return [*rows[:replicas], *([] for _ in range(replicas - len(rows)))]

    # What there is

    def prepare(self) -> None:
        self.kubelets.began = self._began
        self.scheduler.elsewhere = self.scheduler.selects
        self.tenants.refused = self._quota
        self.server.checks.append(self._check)
        self.server.hears.append(self._hear)

    def machines(self) -> Iterator[tuple[Machine, Pool]]:
        for pool in self.stack.ledger.pools:
            if pool.sharing is Sharing.MEMORY:
                for number in range(1, pool.nodes + 1):
                    outside = pool.driver_reserved_mib
                    labels = pool.node_selector
                    made = machine(f"{pool.name}-{number}", pool.device_count, labels, outside, pool.memory_mib)
                    yield made, pool

    def workloads(self) -> Iterator[Workload]:
        for seat in self.stack.ledger.seats:
            yield Workload(
                seat.name,
                seat.tenant,
                RESIDENT,
                0,
                seat.gpumem_mib,
                seat.replicas,
                drains=self.drains_seconds,
                selector=self._selector(seat.pool),
            )
        for gate in self.gates.values():
            yield Workload(
                gate.deployment,
                gate.namespace,
                ON_DEMAND,
                gate.need_mib,
                drains=self.drains_seconds,
                priority=600_000,
                selector=self._selector(gate.pool),
            )

    def _selector(self, pool: str) -> Mapping[str, str]:
        found = self.stack.ledger.pool(pool)
        return dict(found.node_selector) if found else {}

    def _plan(self) -> None:
        for name, replicas in self.replicas.items():
            for replica in replicas:
                for number, life in enumerate(replica.lives):
                    self._later(life.begin - _REPLACED_SECONDS, partial(self._replace, name, replica, number))
                    self._later(life.begin, partial(self._follow, replica, number))
        for name, queue in self.queues.items():
            for life in queue.lives:
                self._later(life.begin, partial(self._ask, name, life))
        cards = {
            (pool, number): card
            for pool in {pool.name for pool in self.pools.values()}
            for number, card in enumerate(self._cards_of(pool))
        }
        for place, steps in self.scene.outside.items():
            for at, mib in steps:
                if place in cards:
                    self._later(at, partial(self._outside, cards[place], mib))

    def _cards_of(self, pool: str) -> list[Card]:
        return [card for card in self.cards() if self.pools[card.node].name == pool]

    def _later(self, at: float, act: Callable[[], object]) -> None:
        self.world.at(max(at - self.origin, WARM_SECONDS), act)

    def _now(self) -> float:
        return self.origin + self.world.now

    # What pods ask for

    def _began(self, running: Running) -> None:
        """A pod starts."""
        running.asks_mib = 0
        name = running.workload.name
        if name in self.queues:
            self._serve(running, self.queues[name])
            return
        for replica in self.replicas[name]:
            if replica.running is None or replica.running.uid not in self.kubelets.running:
                replica.running = running
                break
        else:
            return
        replica.own, replica.recycled = replica.recycled, False
        life = replica.life
        if replica.own and life is not None:
            self._live(running, life, self._now())
        elif life is not None and life.begin <= self._now() < life.end and replica.at >= 0:
            self._live(running, life, life.begin)  # the history's was there before it
        else:
            self._set(running, self._first_mib(name, replica, running.workload.declared_mib))

    def _first_mib(self, name: str, replica: Replica, declared_mib: int) -> int:
        """Until the history says more: before it begins what it begins with, within the budget."""
        life = replica.life
        if name in self.new:
            return declared_mib
        if life is None or self.world.now >= WARM_SECONDS or life.begin - self.origin > WARM_SECONDS + _ABSENT_SECONDS:
            return 0
        return min(life.steps[0][1], declared_mib)

    def _replace(self, name: str, replica: Replica, number: int) -> None:
        """The history has another pod soon: the one of before ends, unless the watchdog ended it, there or here."""
        if number == 0 or replica.own or replica.recycled or replica.lives[number - 1].over:
            return
        running = replica.running
        pod = self.server.pods.get(running.key) if running else None
        if pod is not None:
            self.server.delete_pod(pod)

    def _follow(self, replica: Replica, number: int) -> None:
        before, replica.at = replica.at, number
        running = replica.running
        if running is None or running.uid not in self.kubelets.running:
            return
        if before >= 0 and replica.lives[before].over and not replica.own:
            return  # here it goes on
        replica.own = False
        self._live(running, replica.lives[number], replica.lives[number].begin)

    def _live(self, running: Running, life: Life, since: float) -> None:
        """From now on it asks for what that life asked for, which begins at `since`."""
        turn = self._turns[running.uid] = object()

        def step(number: int) -> None:
            if self._turns[running.uid] is not turn or running.uid not in self.kubelets.running:
                return
            while number + 1 < len(life.steps) and since + life.steps[number + 1][0] <= self._now():
                number += 1
            self._set(running, life.steps[number][1])
            if number + 1 < len(life.steps):
                self.world.at(since + life.steps[number + 1][0] - self.origin, lambda: step(number + 1))

        step(0)

    def _set(self, running: Running, mib: int) -> None:
        running.asks_mib = mib
        self.world.stir()
        self.kubelets.settle(running)

    def _outside(self, card: Card, mib: int) -> None:
        before = card.outside_mib
        card.outside_mib = self.pools[card.node].driver_reserved_mib + mib
        self.world.stir()
        if card.outside_mib < before:
            self.hardware.freed(card)

    # On demand

    def _ask(self, name: str, life: Life) -> None:
        queue = self.queues[name]
        if not queue.asked and not self._is_in(self.gates[name]):
            queue.waits_since = self.world.now
        queue.asked.append(life)
        self.world.stir()
        for running in self.kubelets.of(self.workload(name)):
            if not running.ends and len(self.queues[name].asked) == 1:
                self._serve(running, self.queues[name])

    def _serve(self, running: Running, queue: Queue) -> None:
        """It takes up the first piece of work; where there is none known, it takes what its gate says it needs."""
        if not queue.asked:
            self._set(running, running.workload.declared_mib or self.gates[running.workload.name].need_mib)
            return
        self._let_in(running.workload.name, queue)
        life = queue.asked[0]
        self._live(running, life, self._now())

        def served() -> None:
            if running.uid in self.kubelets.running and queue.asked and queue.asked[0] is life:
                queue.asked.pop(0)
                self.world.stir()
                if queue.asked:
                    self._serve(running, queue)

        self.world.after(max(life.seconds, 1.0), served)

    def _let_in(self, name: str, queue: Queue) -> None:
        if queue.waits_since is not None and self.world.now - queue.waits_since >= LET_IN_SECONDS:
            self._tell("pending", name, seconds=round(self.world.now - queue.waits_since))
        queue.waits_since = None

    def _wanted(self, gate: GateConfig) -> bool:
        if isinstance(gate.demand, HttpJson | PrometheusQuery):
            queue = self.queues[gate.deployment]
            return queue.always or bool(queue.asked)
        return gate.demand.answer(self.world.time_of_day(), lambda url: b"").wanted

    def _is_in(self, gate: GateConfig) -> bool:
        return self.pods_of(gate.deployment) > 0

    def get(self, url: str) -> tuple[int, str]:
        for gate in self.gates.values():
            answer = self._probe(gate, url)
            if answer is not None:
                return 200, json.dumps(answer)
        return super().get(url)

    def _probe(self, gate: GateConfig, url: str) -> Any:
        """What its probe finds at that URL; None where it is not its own."""
        demand = gate.demand
        if isinstance(demand, HttpJson) and url == demand.url:
            value: Any = demand.at_least if self._wanted(gate) else demand.at_least - 1
            for part in reversed(demand.field.split(".")):
                value = {part: value}
            return value
        if isinstance(demand, PrometheusQuery):
            asked = f"{demand.address.rstrip('/')}/api/v1/query?{urlencode({'query': demand.query})}"
            value = demand.at_least if self._wanted(gate) else demand.at_least - 1
            return {"data": {"resultType": "scalar", "result": [0, str(value)]}} if url == asked else None
        return None

    # What happens

    def _counting(self) -> bool:
        """Whether something is not as it should be, so that no time may be left out."""
        waiting = any(not isinstance(gate.demand, FreeMemory) or self._is_in(gate) for gate in self._amiss())
        return bool(self._waits) or waiting or bool(self._low())

    def _amiss(self) -> list[GateConfig]:
        return [gate for gate in self.gates.values() if self._wanted(gate) != self._is_in(gate)]

    def _low(self) -> list[Card]:
        return [card for card in self.cards() if card.free_mib < self.pools[card.node].floor_mib]

    def _is_told(self) -> bool:
        return self.world.now >= WARM_SECONDS

    def _tell(self, what: str, workload: str, **given: Any) -> None:
        if self._is_told():
            self.happened.append(Happened(at=self.server.time(), what=what, workload=workload, **given))

    def _check(self, what: str, found: Object) -> None:
        """Called with what an agent writes."""
        if what == "scale":
            name, replicas = found["metadata"]["name"], found["spec"]["replicas"]
            self._tell("let in" if replicas else "put out", name)
            if not replicas and self.queues[name].asked:
                self.queues[name].waits_since = self.world.now
        elif what == "evict":
            running = self.kubelets.running.get(found["metadata"]["uid"])
            if running is not None and not running.ends:
                self._recycled(running)

    def _recycled(self, running: Running) -> None:
        for replica in self.replicas.get(running.workload.name, ()):
            if replica.running is running:
                replica.recycled = True
        self._tell(
            "recycled",
            running.workload.name,
            used_mib=running.used_mib,
            declared_mib=running.workload.declared_mib,
            device=running.card.uuid,
        )

    def _hear(self, kind: str, found: Object) -> None:
        workload = self.tenants.of(found) if found.get("kind") == "Pod" else None
        if workload is None:
            return
        uid, bound = found["metadata"]["uid"], found["spec"].get("nodeName")
        if kind == "ADDED" and not bound:
            self._waits[uid] = (self.world.now, workload.name)
            refused = self._refused.pop(workload.name, None)
            if refused is not None:
                self._was_refused(workload.name, refused[0])
        elif uid in self._waits and (bound or kind == "DELETED"):
            self._waited(*self._waits.pop(uid))

    def _waited(self, since: float, name: str) -> None:
        seconds = self.world.now - max(since, WARM_SECONDS)
        if seconds >= PENDING_SECONDS and name not in self.queues:
            self._tell("pending", name, seconds=round(seconds))

    def _quota(self, workload: Workload) -> None:
        """A quota refuses its pod: for as long as none is made."""
        first = self._refused.get(workload.name, (self.world.now, 0.0))[0]
        self._refused[workload.name] = (first, self.world.now)

    def _was_refused(self, name: str, since: float) -> None:
        """The pod that it replaces counts until it has ended, which is no refusal worth a word."""
        seconds = self.world.now - max(since, WARM_SECONDS)
        if seconds >= self.drains_seconds + PENDING_SECONDS + 30:
            self._tell("refused", name, seconds=round(seconds))

    # Each second in which something may change

    def resume(self) -> None:
        super().resume()
        self._generation += 1
        generation = self._generation
        self.world.tick(0.0, lambda: self._tick(generation))

    def _tick(self, generation: int) -> None:
        if generation != self._generation:
            return
        if self._is_told():
            self._measure()
        self.world.tick(_TICK_SECONDS, lambda: self._tick(generation))

    def _measure(self) -> None:
        low = {card.uuid for card in self._low()}
        for uuid in low - self._under.keys():
            self._under[uuid] = self.world.now
        for uuid in self._under.keys() - low:
            self._rose(uuid)
        for running in self.kubelets.running.values():
            within = min(running.wanted_mib, running.workload.declared_mib)
            if running.used_mib < within and not running.ends:
                name = running.workload.name
                self.short[name] = self.short.get(name, 0) + round(_TICK_SECONDS)

    def _rose(self, uuid: str) -> None:
        since = self._under.pop(uuid)
        at = datetime.fromtimestamp(self.origin + since, UTC).replace(microsecond=0)
        self.floors.append(Floor(at=at, device=uuid, seconds=round(self.world.now - since)))

    def told(self, first: float, last: float) -> Played:
        """All of it, at the end."""
        for since, name in self._waits.values():
            self._waited(since, name)
        for name, queue in self.queues.items():
            self._let_in(name, queue)
        for name, (since, _) in self._refused.items():
            self._was_refused(name, since)
        for uuid in [*self._under]:
            self._rose(uuid)
        refused = [
            Happened(
                at=datetime.fromtimestamp(min(life.begin for life in lives), UTC),
                what="refused",
                workload=name,
                seconds=round(sum(life.seconds for life in lives)),
            )
            for name, lives in self.scene.refused.items()
        ]
        return Played(
            begin=datetime.fromtimestamp(first, UTC),
            end=datetime.fromtimestamp(last, UTC),
            happened=tuple(sorted([*self.happened, *refused], key=lambda each: each.at)),
            floors=tuple(self.floors),
            short_seconds=dict(sorted(self.short.items())),
            notes=tuple(self.scene.notes),
        )


def _in_order(rows: Iterable[Sequence[Life]]) -> list[Life]:
    return sorted((life for row in rows for life in row), key=lambda life: life.begin)


@contextmanager
def _replayed(
    stack: Stack, found: Scene, new: Collection[str], origin: float, drains_seconds: float
) -> Iterator[Replayed]:
    hold: list[Replayed] = []

    def get(url: str) -> tuple[int, str]:
        return hold[0].get(url)

    with wired(get):
        hold.append(Replayed(stack, found, new, origin, drains_seconds))
        try:
            yield hold[0]
        finally:
            hold[0].world.end()
