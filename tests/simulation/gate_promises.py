"""Checks that the gate never gives the same memory to two workloads, and stops a workload only for a good reason."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from agents.gate.config import GateConfig
from agents.gate.probes import FreeMemory
from components.agents.gate import GateSpec
from tenancy.ledger import Pool, Seat
from tenancy.names import GATE
from tests.simulation.model.api import Object
from tests.simulation.model.devices import Card
from tests.simulation.model.kubelet import RunningPod
from tests.simulation.model.tenants import QUEUED, RESIDENT

if TYPE_CHECKING:
    from tests.simulation.system import System

LAG_SECONDS = 75.0
IDLE_SECONDS = 150.0
CLOSED_SECONDS = 1e9


def hangs(running: RunningPod) -> bool:
    return min(running.workload.drains, running.workload.grace) > 90.0


class GatePromises:
    def __init__(self, system: "System") -> None:
        self.system = system
        self.world = system.world
        self.violations = system.violations
        self._free: list[tuple[float, dict[str, int]]] = []
        self._wanted: dict[str, float] = {}  # Maps each gate to the last time with demand.
        self._closed: dict[str, float] = {}  # Maps each gate to the time of its last stop of the workload.

    def remember(self) -> None:
        now = self.world.now
        self._free = [each for each in self._free if now - each[0] <= LAG_SECONDS]
        self._free.append((now, {card.uuid: card.free_mib for card in self.system.cards()}))

    def start_over(self) -> None:
        self._closed.clear()

    def look(self) -> None:
        for name, gate in self.system.gates.items():
            is_open = self.system.pods_of(name) > 0
            hidden = self.violations.is_hidden(gate.namespace)
            if self.system.is_unreadable(gate) or name in self.system.foreign or hidden:
                self.violations.held("gate forgets", name, False, 0.0, "")
                self.violations.held("gate refuses", name, False, 0.0, "")
                continue
            wanted = self.system.demanded(gate)
            if wanted:
                self._wanted[name] = self.world.now
            idle = is_open and not wanted and self.violations.up()
            text = f"{name} is open without demand"
            self.violations.held("gate forgets", name, idle, gate.longest_idle_seconds + IDLE_SECONDS, text)
            if is_open or not wanted or self._is_guest(gate):
                self.violations.held("gate refuses", name, False, 0.0, "")
                continue
            pool = self.system.pool_of(gate)
            room = min((card.free_mib for card in self.system.cards_of(pool)), default=0)
            needed = gate.need_mib + gate.margin_mib + pool.floor_mib + self._absent_mib(pool)
            others = sum(g.need_mib for n, g in self._beside(gate) if self.system.pods_of(n))
            starved = room >= needed + others and self._all_up()
            self.violations.held(
                "gate refuses", name, starved, gate.cool_down_seconds + 120.0, f"{name} is kept out of {room}"
            )

    def _is_guest(self, gate: GateConfig) -> bool:
        return isinstance(gate.demand, FreeMemory)

    def _all_up(self) -> bool:
        return all(self.violations.up(name) for name in self.system.hardware.machines)

    def _beside(self, gate: GateConfig) -> Iterator[tuple[str, GateConfig]]:
        others = self.system.gates.items()
        yield from ((name, other) for name, other in others if other is not gate and other.pool == gate.pool)

    def _absent_mib(self, pool: Pool) -> int:
        used: dict[str, int] = {}
        for each in self.system.kubelets.running.values():
            mib = min(each.used_mib, each.workload.each_mib) * len(each.cards)
            used[each.workload.name] = used.get(each.workload.name, 0) + mib
        return sum(max(seat.total_mib - used.get(seat.name, 0), 0) for seat in self._seats(pool))

    def _absent_seats_mib(self, pool: Pool, card: Card | None = None) -> int:
        there = self._to_begin_beside(card) if card else {}
        for each in self.system.kubelets.running.values():
            elsewhere = card is not None and card not in each.cards
            if (elsewhere or (each.up and each.loaded and each.short_since is None)) and not each.ends:
                there[each.workload.name] = there.get(each.workload.name, 0) + each.workload.declared_mib
        seats = sum(max(seat.total_mib - there.get(seat.name, 0), 0) for seat in self._seats(pool))
        mine = self.system.kueue.flavor == pool.node_selector
        jobs = (job for job in self.system.kueue.jobs.values() if mine and job.holds_quota)
        parts = [part for job in jobs for part in job.parts]
        return seats + sum(max(part.declared_mib * part.replicas - there.get(part.name, 0), 0) for part in parts)

    def _to_begin_beside(self, card: Card) -> dict[str, int]:
        there: dict[str, int] = {}
        for pod in self.system.server.pods.values():
            uuid = (pod["metadata"].get("annotations") or {}).get(self.system.stack.ledger.names.device_uuid, card.uuid)
            workload = self.system.tenants.of(pod)
            begun = pod["metadata"]["uid"] in self.system.kubelets.running
            if workload is not None and uuid != card.uuid and not begun and "deletionTimestamp" not in pod["metadata"]:
                there[workload.name] = there.get(workload.name, 0) + workload.declared_mib
        return there

    def _still_loading_mib(self, pool: Pool) -> int:
        running = (each for each in self.system.kubelets.running.values() if self._is_in(each, pool))
        recent = (
            each for each in running if each.loaded and self.world.now - each.up_since < GateSpec().starting_seconds
        )
        return sum(max(each.workload.each_mib - each.used_mib, 0) for each in recent)

    def _is_in(self, running: RunningPod, pool: Pool) -> bool:
        return self.system.pools[running.machine.name] is pool

    def scaled(self, found: Object) -> None:
        name = found["metadata"]["name"]
        gate = self.system.gates[name]
        pool = self.system.pool_of(gate)
        cards = self.system.cards_of(pool)
        self.world.timers.append(self.world.now + gate.cool_down_seconds)
        if name in self.system.foreign:
            self.violations.add("scaled against somebody", f"somebody else scales {name}, and the gate scales it")
        self.remember()
        if found["spec"]["replicas"]:
            self.world.see("action: gate opened")
            self.world.say("api", f"opens {name}")
            ago = self.world.now - self._closed.get(name, -CLOSED_SECONDS)
            if ago < gate.cool_down_seconds - 10:
                self.violations.add("gate opened too soon", f"{name} is opened {ago:.0f} s after its close", name)
            floor = pool.floor_mib
            outstanding = sum(
                max(g.need_mib - self._used(n), 0) for n, g in self._beside(gate) if self.system.pods_of(n)
            )
            most = min((max(seen[card.uuid] for _, seen in self._free) for card in cards), default=0)
            for card in cards if self._has_one_node(pool) and self.violations.up() else ():
                free, absent = max(seen[card.uuid] for _, seen in self._free), self._absent_seats_mib(pool, card)
                if absent and free - floor - absent < gate.need_mib:
                    text = f"{name} needs {gate.need_mib} of {free} less {floor}; seats that are away declare {absent}"
                    self.violations.add("an absent seat's memory lent", text, name)
            if most - floor - outstanding < gate.need_mib:
                text = f"{name} needs {gate.need_mib} of {most} less {floor}, others may still take {outstanding}"
                self.violations.add("two in one slack", text)
            return
        self.world.see("action: gate closed")
        self.world.say("api", f"closes {name}")
        self._closed[name] = self.world.now
        idle_seconds = self.world.now - self._wanted.get(name, -CLOSED_SECONDS)
        is_idle = not self.system.demanded(gate) and idle_seconds >= gate.longest_idle_seconds - 10
        if is_idle or self._is_guest(gate):
            return
        mine = {each.card.node for each in self.system.kubelets.of(self.system.workload(name))}
        least = {card.uuid: min(seen[card.uuid] for _, seen in self._free) for card in cards}
        looked = self.system.seen_until(GATE)
        going = {card.uuid: self._going(card, looked) for card in cards}
        need = [c for c in cards if (c.node in mine or not mine)]
        waits = any(
            (w := self.system.tenants.of(self.system.server.pods[key])) is not None and w.kind in (RESIDENT, QUEUED)
            for key in self.system.scheduler.waiting
            if key in self.system.server.pods
        )
        short = any(each.short_since is not None for each in self.system.kubelets.running.values())
        here = [(n, g) for n, g in self.system.gates.items() if g.pool == gate.pool and self.system.pods_of(n)]
        claims = sum(max(g.need_mib - self._used(n), 0) for n, g in here)
        seats = self._absent_seats_mib(pool) + self._still_loading_mib(pool)
        enough = pool.floor_mib + seats + claims + max(gate.need_mib - self._used(name), 0)
        if all(least[c.uuid] + going[c.uuid] >= enough for c in need) and not waits and not short:
            self.violations.add(
                "put out in vain", f"{name} is closed with demand; with what terminates {least} are enough"
            )

    def _seats(self, pool: Pool) -> tuple[Seat, ...]:
        return self.system.stack.ledger.seats_in(pool.name)

    def _has_one_node(self, pool: Pool) -> bool:
        return sum(each is pool for each in self.system.pools.values()) == 1

    def _used(self, name: str) -> int:
        return sum(each.used_mib for each in self.system.kubelets.of(self.system.workload(name)))

    def _going(self, card: Card, looked: float) -> int:
        on = [each for each in self.system.kubelets.running.values() if card in each.cards and not hangs(each)]
        return sum(each.used_mib for each in on if each.ends_since is not None and each.ends_since <= looked)
