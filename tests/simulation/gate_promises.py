"""Checks the promises of the demand gate.

The gate never gives the same memory to two workloads. The gate stops a workload when it must, and only for a reason.
"""

from typing import TYPE_CHECKING

from agents.gate.config import GateConfig
from agents.gate.probes import FreeMemory
from components.agents.gate import GateSpec
from simulation.api import Object
from simulation.devices import Card
from simulation.kubelet import RunningPod
from simulation.tenants import QUEUED, RESIDENT
from tenancy.ledger import Seat
from tenancy.names import GATE

if TYPE_CHECKING:
    from tests.simulation.system import System

LAG_SECONDS = 75.0  # an agent may act on figures of at most this age
IDLE_SECONDS = 150.0


def hangs(running: RunningPod) -> bool:
    """Returns True if the pod takes so long to end that agents should not wait for its memory."""
    return min(running.workload.drains, running.workload.grace) > 90.0


class GatePromises:
    """Checks the gate's writes, and the times until the gate starts or stops a workload."""

    def __init__(self, system: "System") -> None:
        self.system = system
        self.world = system.world
        self.violations = system.violations
        self._free: list[tuple[float, dict[str, int]]] = []

    def remember(self) -> None:
        """Stores the free memory of each device for LAG_SECONDS, because agents may still act on older readings."""
        now = self.world.now
        self._free = [each for each in self._free if now - each[0] <= LAG_SECONDS]
        self._free.append((now, {card.uuid: card.free_mib for card in self.system.cards()}))

    def look(self) -> None:
        for name, gate in self.system.gates.items():
            is_open = self.system.pods_of(name) > 0
            wanted = self.system.demanded(gate)
            idle = is_open and not wanted and self.violations.up() and not self.violations.is_hidden(gate.namespace)
            text = f"{name} is open without demand"
            self.violations.held("gate forgets", name, idle, gate.longest_idle_seconds + IDLE_SECONDS, text)
            if is_open or not wanted or self._is_guest(gate):
                self.violations.held("gate refuses", name, False, 0.0, "")
                continue
            room = min((card.free_mib for card in self._in_pool()), default=0)
            needed = gate.need_mib + gate.margin_mib + self.system.pool.floor_mib + self._absent_mib()
            others = sum(g.need_mib for n, g in self.system.gates.items() if n != name and self.system.pods_of(n))
            starved = room >= needed + others and self._all_up()
            self.violations.held(
                "gate refuses", name, starved, gate.cool_down_seconds + 120.0, f"{name} is kept out of {room}"
            )

    def _is_guest(self, gate: GateConfig) -> bool:
        """Returns True if the workload has no demand signal.

        The gate stops such a workload for any workload with demand.
        """
        return isinstance(gate.demand, FreeMemory)

    def _all_up(self) -> bool:
        return all(self.violations.up(name) for name in self.system.hardware.machines)

    def _absent_mib(self) -> int:
        """Returns the MiB that residents may still take within their budgets."""
        used: dict[str, int] = {}
        for each in self.system.kubelets.running.values():
            used[each.workload.name] = used.get(each.workload.name, 0) + min(each.used_mib, each.workload.declared_mib)
        return sum(max(seat.total_mib - used.get(seat.name, 0), 0) for seat in self._seats())

    def _absent_seats_mib(self, card: Card | None = None) -> int:
        """Returns the MiB of the seats and admitted Jobs without a pod, or with a pod that still allocates memory.

        With `card`, a seat with a pod on a different device does not count, even before the pod's containers are
        created.
        """
        there = self._to_begin_beside(card) if card else {}
        for each in self.system.kubelets.running.values():
            elsewhere = card is not None and each.card is not card
            if (elsewhere or (each.up and each.loaded and each.short_since is None)) and not each.ends:
                there[each.workload.name] = there.get(each.workload.name, 0) + each.workload.declared_mib
        seats = sum(max(seat.total_mib - there.get(seat.name, 0), 0) for seat in self._seats())
        jobs = (job for job in self.system.kueue.jobs.values() if job.admitted and not job.ended)
        return seats + sum(max(job.workload.declared_mib - there.get(job.workload.name, 0), 0) for job in jobs)

    def _to_begin_beside(self, card: Card) -> dict[str, int]:
        """Returns, by workload, the MiB of pods on other devices that have no container yet."""
        there: dict[str, int] = {}
        for pod in self.system.server.pods.values():
            uuid = (pod["metadata"].get("annotations") or {}).get(self.system.stack.ledger.names.device_uuid, card.uuid)
            workload = self.system.tenants.of(pod)
            begun = pod["metadata"]["uid"] in self.system.kubelets.running
            if workload is not None and uuid != card.uuid and not begun and "deletionTimestamp" not in pod["metadata"]:
                there[workload.name] = there.get(workload.name, 0) + workload.declared_mib
        return there

    def _still_loading_mib(self) -> int:
        """Returns the MiB that recently started pods may still allocate, as far as the gate can know."""
        running = self.system.kubelets.running.values()
        recent = (
            each for each in running if each.loaded and self.world.now - each.up_since < GateSpec().starting_seconds
        )
        return sum(max(each.workload.declared_mib - each.used_mib, 0) for each in recent)

    def scaled(self, found: Object) -> None:
        name = found["metadata"]["name"]
        gate = self.system.gates[name]
        self.world.timers.append(self.world.now + gate.cool_down_seconds)
        self.remember()
        if found["spec"]["replicas"]:
            self.world.see("action: gate opened")
            self.world.say("api", f"opens {name}")
            floor = self.system.pool.floor_mib
            outstanding = sum(
                max(g.need_mib - self._used(n), 0)
                for n, g in self.system.gates.items()
                if n != name and self.system.pods_of(n)
            )
            most = min((max(seen[card.uuid] for _, seen in self._free) for card in self._in_pool()), default=0)
            for card in self._in_pool() if self.system.shape.nodes == 1 and self.violations.up() else ():
                free, absent = max(seen[card.uuid] for _, seen in self._free), self._absent_seats_mib(card)
                if absent and free - floor - absent < gate.need_mib:
                    text = f"{name} needs {gate.need_mib} of {free} less {floor}; seats that are away declare {absent}"
                    self.violations.add("an absent seat's memory lent", text, name)
            if most - floor - outstanding < gate.need_mib:
                text = f"{name} needs {gate.need_mib} of {most} less {floor}, others may still take {outstanding}"
                self.violations.add("two in one slack", text)
            return
        self.world.see("action: gate closed")
        self.world.say("api", f"closes {name}")
        if not self.system.demanded(gate) or self._is_guest(gate):
            return
        mine = {each.card.node for each in self.system.kubelets.of(self.system.workload(name))}
        least = {card.uuid: min(seen[card.uuid] for _, seen in self._free) for card in self._in_pool()}
        looked = self.system.seen_until(GATE)
        going = {card.uuid: self._going(card, looked) for card in self._in_pool()}
        need = [c for c in self._in_pool() if (c.node in mine or not mine)]
        waits = any(
            (w := self.system.tenants.of(self.system.server.pods[key])) is not None and w.kind in (RESIDENT, QUEUED)
            for key in self.system.scheduler.waiting
            if key in self.system.server.pods
        )
        short = any(each.short_since is not None for each in self.system.kubelets.running.values())
        claims = sum(max(g.need_mib - self._used(n), 0) for n, g in self.system.gates.items() if self.system.pods_of(n))
        seats = self._absent_seats_mib() + self._still_loading_mib()
        enough = self.system.pool.floor_mib + seats + claims + max(gate.need_mib - self._used(name), 0)
        if all(least[c.uuid] + going[c.uuid] >= enough for c in need) and not waits and not short:
            self.violations.add(
                "put out in vain", f"{name} is closed with demand; with what terminates {least} are enough"
            )

    def _seats(self) -> tuple[Seat, ...]:
        """Returns the seats of the pool with on-demand workloads."""
        return self.system.stack.ledger.seats_in(self.system.pool.name)

    def _in_pool(self) -> list[Card]:
        """Returns the devices of the nodes that match the pool's selector now."""
        nodes = self.system.server.nodes
        return [c for c in self.system.cards() if self.system.pool.matches(nodes[c.node]["metadata"]["labels"])]

    def _used(self, name: str) -> int:
        return sum(each.used_mib for each in self.system.kubelets.of(self.system.workload(name)))

    def _going(self, card: Card, looked: float) -> int:
        on = [each for each in self.system.kubelets.running.values() if each.card is card and not hangs(each)]
        return sum(each.used_mib for each in on if each.ends_since is not None and each.ends_since <= looked)
