"""Simulates the cluster of a replay, where the pods use the memory that the recorded pods used."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any
from urllib.parse import urlencode

from agents.gate.config import GateConfig
from agents.gate.probes import FreeMemory, HttpJson, PrometheusQuery
from simulation.api import Object
from simulation.cluster import Cluster
from simulation.devices import Card, Machine, machine
from simulation.history import PodLife, RecordedPods
from simulation.kubelet import RunningPod
from simulation.replay_record import DRAINS_SECONDS, LET_IN_SECONDS, WARM_SECONDS, ReplayRecord
from simulation.stack import Stack
from simulation.tenants import ON_DEMAND, RESIDENT, Workload
from tenancy.choices import Sharing
from tenancy.ledger import Pool

# A recorded pod that has ended is replaced this many seconds before the replica's next recorded pod begins.
_REPLACED_SECONDS = 12.0
_ABSENT_SECONDS = 60.0
_MEASURE_SECONDS = 1.0


@dataclass
class Replica:
    """One replica of a resident. `at` is the number of the replica's current recorded life, or -1.

    `recycled` is True if the watchdog evicted the replica's pod in the replay. `own` is True if the replica's current
    pod exists only in the replay.
    """

    lives: Sequence[PodLife]
    at: int = -1
    running: RunningPod | None = None
    recycled: bool = False
    own: bool = False

    @property
    def life(self) -> PodLife | None:
        return self.lives[max(self.at, 0)] if self.lives else None


@dataclass
class OnDemandWork:
    """The work of an on-demand workload. Each piece of work takes its recorded time.

    If `always` is True, there is always work.
    """

    lives: Sequence[PodLife]
    always: bool = False
    asked: list[PodLife] = field(default_factory=list)
    waits_since: float | None = None


class ReplayedCluster(Cluster):
    """The cluster of a replay. Recorded times are seconds since 1970. The simulation begins at the time `origin`."""

    def __init__(self, stack: Stack, found: RecordedPods, new: Collection[str], origin: float) -> None:
        self.scene = found
        self.new = new
        self.origin = origin
        self._lives: dict[str, object] = {}  # a token for the current life of each pod, by the pod's UID
        dice = Random(1)  # noqa: S311 (a simulation)
        super().__init__(stack, dice, begin=datetime.fromtimestamp(origin, UTC))
        self.replicas = {
            seat.name: [Replica(lives) for lives in self._rows(seat.name, seat.replicas)] for seat in stack.ledger.seats
        }
        self.queues = {
            gate.deployment: OnDemandWork(_in_order(found.lives.get(gate.deployment, ())), gate.deployment in new)
            for gate in self.gates.values()
        }
        self._plan()

    def _rows(self, seat: str, replicas: int) -> list[list[PodLife]]:
        rows = self.scene.lives.get(seat, [])
        return [*rows[:replicas], *([] for _ in range(replicas - len(rows)))]

    def prepare(self) -> None:
        self.record = ReplayRecord(self.world)
        self.kubelets.began = self._began
        self.scheduler.elsewhere = self.scheduler.selects
        self.tenants.refused = lambda workload: self.record.refused(workload.name)
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
                seat.pod_mib,
                seat.replicas,
                seat.devices_per_pod if seat.devices_per_pod > 1 else 0,
                drains=DRAINS_SECONDS,
                selector=self._selector(seat.pool),
            )
        for gate in self.gates.values():
            yield Workload(
                gate.deployment,
                gate.namespace,
                ON_DEMAND,
                gate.need_mib,
                drains=DRAINS_SECONDS,
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

    def _began(self, running: RunningPod) -> None:
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
            self._live(running, life, life.begin)  # the recorded pod has begun earlier
        else:
            self._set(running, self._first_mib(name, replica, running.workload.declared_mib))

    def _first_mib(self, name: str, replica: Replica, declared_mib: int) -> int:
        life = replica.life
        if name in self.new:
            return declared_mib
        if life is None or self.world.now >= WARM_SECONDS or life.begin - self.origin > WARM_SECONDS + _ABSENT_SECONDS:
            return 0
        return min(life.steps[0][1], declared_mib)

    def _replace(self, name: str, replica: Replica, number: int) -> None:
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
            return  # the pod continues until the watchdog recycles it
        replica.own = False
        self._live(running, replica.lives[number], replica.lives[number].begin)

    def _live(self, running: RunningPod, life: PodLife, since: float) -> None:
        """Makes the pod use the memory of one recorded life: from the start of a recorded pod to its end.

        The recorded life begins at `since`.
        """
        this = self._lives[running.uid] = object()

        def step(number: int) -> None:
            if self._lives[running.uid] is not this or running.uid not in self.kubelets.running:
                return
            while number + 1 < len(life.steps) and since + life.steps[number + 1][0] <= self._now():
                number += 1
            self._set(running, life.steps[number][1])
            if number + 1 < len(life.steps):
                self.world.at(since + life.steps[number + 1][0] - self.origin, lambda: step(number + 1))

        step(0)

    def _set(self, running: RunningPod, mib: int) -> None:
        running.asks_mib = mib
        self.world.stir()
        self.kubelets.settle(running)

    def _outside(self, card: Card, mib: int) -> None:
        before = card.outside_mib
        card.outside_mib = self.pools[card.node].driver_reserved_mib + mib
        self.world.stir()
        if card.outside_mib < before:
            self.hardware.freed(card)

    def _ask(self, name: str, life: PodLife) -> None:
        queue = self.queues[name]
        if not queue.asked and not self._is_in(self.gates[name]):
            queue.waits_since = self.world.now
        queue.asked.append(life)
        self.world.stir()
        for running in self.kubelets.of(self.workload(name)):
            if not running.ends and len(self.queues[name].asked) == 1:
                self._serve(running, self.queues[name])

    def _serve(self, running: RunningPod, queue: OnDemandWork) -> None:
        """Starts the first piece of work. Without work, the pod uses the memory that the on-demand workload declares as
        its need.
        """
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

    def _let_in(self, name: str, queue: OnDemandWork) -> None:
        if queue.waits_since is not None:
            self.record.lasted("pending", name, queue.waits_since, LET_IN_SECONDS)
        queue.waits_since = None

    def _wanted(self, gate: GateConfig) -> bool:
        if isinstance(gate.demand, HttpJson | PrometheusQuery):
            queue = self.queues[gate.deployment]
            return queue.always or bool(queue.asked)
        return gate.demand.answer(self.world.time_of_day(), lambda url: b"").wanted

    def _is_in(self, gate: GateConfig) -> bool:
        return self.pods_of(gate.deployment) > 0

    def fetch(self, url: str) -> bytes:
        for gate in self.gates.values():
            answer = self._probe(gate, url)
            if answer is not None:
                return json.dumps(answer).encode()
        return super().fetch(url)

    def _probe(self, gate: GateConfig, url: str) -> Any:
        demand = gate.demand
        if isinstance(demand, HttpJson) and url == demand.url:
            value: Any = 1 if self._wanted(gate) else 0
            for part in reversed(demand.field.split(".")):
                value = {part: value}
            return value
        if isinstance(demand, PrometheusQuery):
            asked = f"{demand.address.rstrip('/')}/api/v1/query?{urlencode({'query': demand.query})}"
            value = 1 if self._wanted(gate) else 0
            return {"data": {"resultType": "scalar", "result": [0, str(value)]}} if url == asked else None
        return None

    def tense(self) -> bool:
        return bool(self._amiss())

    def counting(self) -> bool:
        waiting = any(not isinstance(gate.demand, FreeMemory) or self._is_in(gate) for gate in self._amiss())
        return bool(self.record.waiting) or waiting or bool(self._low())

    def _amiss(self) -> list[GateConfig]:
        return [gate for gate in self.gates.values() if self._wanted(gate) != self._is_in(gate)]

    def _low(self) -> list[Card]:
        return [card for card in self.cards() if card.free_mib < self.pools[card.node].floor_mib]

    def _check(self, what: str, found: Object) -> None:
        """Records an agent's scaling or eviction. The server calls this method with each write of an agent."""
        if what == "scale":
            name, replicas = found["metadata"]["name"], found["spec"]["replicas"]
            self.record.add("let in" if replicas else "put out", name)
            if not replicas and self.queues[name].asked:
                self.queues[name].waits_since = self.world.now
        elif what == "evict":
            running = self.kubelets.running.get(found["metadata"]["uid"])
            if running is not None and not running.ends:
                self._recycled(running)

    def _recycled(self, running: RunningPod) -> None:
        for replica in self.replicas.get(running.workload.name, ()):
            if replica.running is running:
                replica.recycled = True
        self.record.recycled(running)

    def _hear(self, kind: str, found: Object) -> None:
        workload = self.tenants.of(found) if found.get("kind") == "Pod" else None
        if workload is None:
            return
        uid, bound = found["metadata"]["uid"], found["spec"].get("nodeName")
        if kind == "ADDED" and not bound:
            self.record.created(uid, workload.name)
        elif uid in self.record.waiting and (bound or kind == "DELETED"):
            self.record.placed(uid, is_resident=workload.name in self.replicas)

    def resume(self) -> None:
        super().resume()
        self.world.tick(0.0, self._measure)

    def _measure(self) -> None:
        self.record.measure({card.uuid for card in self._low()}, self.kubelets.running.values(), _MEASURE_SECONDS)
        self.world.tick(_MEASURE_SECONDS, self._measure)

    def close(self) -> None:
        """Ends the recording of events."""
        for name, queue in self.queues.items():
            self._let_in(name, queue)
        self.record.close(self.replicas)


def _in_order(rows: Iterable[Sequence[PodLife]]) -> list[PodLife]:
    return sorted((life for row in rows for life in row), key=lambda life: life.begin)
