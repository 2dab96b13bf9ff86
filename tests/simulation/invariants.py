"""What always has to hold. Each is one promise, by what is true of the devices, not by what is measured.

A promise with a time is counted while it could be kept: not while the API, or the node in question, is out of order,
and not for a while after that. What a tenant does is never such an excuse. Units: MiB, seconds.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.gate.config import GateConfig
from agents.gate.pods import STARTING_SECONDS
from components.agents.watchdog import WatchdogSpec
from simulation.api import Object
from simulation.devices import Card
from simulation.scheduler import advertised
from simulation.tenants import ON_DEMAND, QUEUED, RESIDENT, Workload, gpumem_of
from tenancy.ledger import Seat
from tenancy.names import GATE, METRIC_POOL_FLOOR, RECONCILE, WATCHDOG

if TYPE_CHECKING:
    from simulation.kubelet import Running
    from tests.simulation.system import System

CHECK_SECONDS = 5.0
CAPS = WatchdogSpec()  # not of the watchdog that is simulated: a cap that is too low is no excuse
ADMITTED_WAITS = "admitted job waits"
WARM_SECONDS = 300.0
# A pod within its seat, from when the ledger has room: lent out by our own gates, and by anybody.
LENT_SECONDS, SEAT_SECONDS = 45.0, 150.0
# Somebody who may be put out stays on a device that lacks memory: who hangs is waited for 90 s, his recycle for 30, and
# what took his place is seen in two readings.
PRESSED_SECONDS = 135.0
STARVED_SECONDS = 240.0
# What an agent may have measured is at most so old.
LAG_SECONDS = 75.0
SILENT_SECONDS = 200.0
CAPACITY_SECONDS = 150.0
IDLE_SECONDS = 150.0
# That nobody protects a node is told within three minutes: what the alert and its scrapes need of them.
UNTOLD_SECONDS = 75.0
# A recycle is looked for again so long after the end of the cool-down, the age or the trouble.
SLACK_SECONDS = 15.0
HOUR = 3600.0


@dataclass(frozen=True)
class Violation:
    name: str
    at: float
    text: str


class Invariants:
    """Looks at what is true, each 5 s and where something is written."""

    def __init__(self, system: "System") -> None:
        self.system = system
        self.world = system.world
        self.found: list[Violation] = []
        self.disturbed: dict[str, float] = {"": WARM_SECONDS}  # by node, "" is all of it
        self.recycled: dict[str, list[float]] = {}  # by workload
        self.recycled_on: dict[str, list[float]] = {}  # by node
        self.blocked: dict[str, float] = {}  # workloads that no eviction can end, until
        self.hidden: dict[str, float] = {}  # namespaces of which nothing can be asked, until
        self.bound: dict[str, float] = {}  # when, by the pod's UID
        self._since: dict[tuple[str, str], float] = {}
        self._said: set[tuple[str, str]] = set()
        self._at = 0.0
        self._generation = 0
        self._free: list[tuple[float, dict[str, int]]] = []
        system.server.checks.append(self._check)
        system.server.hears.append(self._hear)

    # Reporting

    def violated(self, name: str, text: str, key: str = "") -> None:
        if (name, key or text) in self._said:
            return
        self._said.add((name, key or text))
        self.found.append(Violation(name, self.world.now, text))
        self.world.say("VIOLATION", f"{name}: {text}")
        self.world.see(f"violation: {name}")

    def disturb(self, node: str, seconds: float, after: float = 100.0) -> None:
        """Nothing with a time is promised on the node, "" for all, for so long and a while."""
        until = self.world.now + seconds + after
        self.disturbed[node] = max(self.disturbed.get(node, 0.0), until)
        self.world.at(until + 1.0, self.world.stir)

    def block(self, workload: str, seconds: float) -> None:
        """No eviction can end its pods for so long, whatever else is over before."""
        self.blocked[workload] = max(self.blocked.get(workload, 0.0), self.world.now + seconds + 60.0)

    def up(self, *where: str) -> bool:
        """Whether nothing is out of order there: a node's name, a device's uuid."""
        return self.world.now >= max(self.disturbed.get(each, 0.0) for each in ("", *where))

    def _held(self, name: str, key: str, bad: bool, most: float, text: str) -> None:
        """Counts how long something bad lasts."""
        if not bad:
            self._since.pop((name, key), None)
            return
        since = self._since.setdefault((name, key), self.world.now)
        if self.world.now - since > most:
            self.violated(name, f"{text}, for {self.world.now - since:.0f} s", key)

    # When

    def resume(self) -> None:
        self._generation += 1
        generation = self._generation
        self.world.tick(0.0, lambda: self._tick(generation))  # after the first samples

    def _tick(self, generation: int) -> None:
        if generation == self._generation:
            self.look()
            self.world.tick(CHECK_SECONDS, lambda: self._tick(generation))

    def before_jump(self, until: float) -> None:
        """What is left out counts for nobody: the agents had no passes in it."""
        self.look()
        left_out = until - self.world.now
        self._since = {key: since + left_out for key, since in self._since.items()}

    def tense(self) -> bool:
        """Whether time alone may make an agent act."""
        system = self.system
        return (
            bool(system.scheduler.waiting)
            or any(each.short_since is not None for each in system.kubelets.running.values())
            or any(self._pressed(card) for card in system.cards())
            or any(system.demanded(gate) != (system.pods_of(name) > 0) for name, gate in system.gates.items())
        )

    def counting(self) -> bool:
        return any(key not in self._said for key in self._since)

    def look(self) -> None:
        self._remember()
        self._waits()
        self._pressure()
        self._starved()
        self._gates()
        self._capacity()
        self._untold()
        self._quota()
        self._agents()

    def _remember(self) -> None:
        now = self.world.now
        self._free = [each for each in self._free if now - each[0] <= LAG_SECONDS]
        self._free.append((now, {card.uuid: card.free_mib for card in self.system.cards()}))

    # A pod within its seat waits at most a bounded time

    def _waits(self) -> None:
        system = self.system
        seen = set()
        for key, _ in [*system.scheduler.waiting.items()]:
            pod = system.server.pods.get(key)
            workload = system.tenants.of(pod) if pod else None
            if pod is None or workload is None or workload.kind not in (RESIDENT, QUEUED):
                continue
            if self._hidden(workload.namespace):  # nobody can bind it
                continue
            uid = pod["metadata"]["uid"]
            seen.add(uid)
            cards = [card for card in self._roomy(pod, workload) if self.up(card.node, card.uuid)]
            if workload.kind == QUEUED:  # no seat: memory in use keeps it out, but not what somebody should give back
                text = f"{key[1]}, which Kueue admitted, waits for {workload.declared_mib}; the ledger has room"
                able = any(self._reclaimable(card) >= workload.declared_mib for card in cards)
                self._held(ADMITTED_WAITS, uid, able, SEAT_SECONDS, text)
                continue
            lent = any(
                card.free_mib + self._lent(card) - system.pools[card.node].floor_mib >= self._awaited_mib(card.node)
                for card in cards
            )
            free = max((card.free_mib for card in cards), default=0)
            text = f"{key[1]} asks for {workload.declared_mib}, the ledger has room, {free} MiB are free"
            self._held("seat waits", uid, bool(cards), SEAT_SECONDS, text)
            self._held("seat waits for what gates lent", uid, bool(cards) and lent, LENT_SECONDS, text)
        self._forget(ADMITTED_WAITS, seen)
        self._forget("seat waits", seen)
        self._forget("seat waits for what gates lent", seen)

    def _awaited_mib(self, node: str) -> int:
        """What all seats that wait declare, of those that may go there: for each a device may be held."""
        system = self.system
        pods = [pod for key in system.scheduler.waiting if (pod := system.server.pods.get(key))]
        seats = [w for pod in pods if (w := system.tenants.of(pod)) and system.scheduler.selects(pod, node)]
        return sum(each.declared_mib for each in seats if each.kind == RESIDENT)

    def _forget(self, name: str, kept: set[str]) -> None:
        for each in [key for key in self._since if key[0] == name and key[1] not in kept]:
            del self._since[each]

    def _roomy(self, pod: Object, workload: Workload) -> Iterator[Card]:
        """The devices that the ledger has room on."""
        system, key = self.system, self.system.stack.ledger.names.gpumem
        for machine in system.hardware.machines.values():
            node = system.server.nodes.get(machine.name)
            if (
                node is None
                or not machine.ready
                or not machine.alive
                or not system.scheduler.selects(pod, machine.name)
            ):
                continue
            sum_mib = advertised(node, key) - system.scheduler.bound_mib(machine.name)
            if sum_mib < workload.declared_mib:
                continue
            held = self.promised(machine.name)
            for card in machine.cards:
                if system.pools[machine.name].device_mib - held.get(card.uuid, 0) >= workload.declared_mib:
                    yield card

    def promised(self, node: str) -> dict[str, int]:
        """What the pods bound to the node declare, by device."""
        names, held = self.system.stack.ledger.names, {}
        for pod in self.system.server.pods.values():
            if pod["spec"].get("nodeName") == node and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                uuid = (pod["metadata"].get("annotations") or {}).get(names.device_uuid)
                if uuid:
                    held[uuid] = held.get(uuid, 0) + gpumem_of(pod, names.gpumem)
        return held

    def _lent(self, card: Card) -> int:
        running = self.system.kubelets.running
        uses = ((running.get(uid), mib) for uid, mib in card.uses.items())
        return sum(mib for each, mib in uses if each is not None and each.workload.kind == ON_DEMAND)

    def _reclaimable(self, card: Card) -> int:
        """What is free above the floor once gates have closed and who may be recycled is back within his budget."""
        on = [each for each in self.system.kubelets.running.values() if each.card is card]
        over = sum(each.used_mib - each.workload.declared_mib for each in on if self._evictable(each) or _greedy(each))
        return card.free_mib + self._lent(card) + over - self.system.pools[card.node].floor_mib

    # Pressure is relieved

    def _pressed(self, card: Card) -> bool:
        return card.free_mib < self.system.pools[card.node].floor_mib

    def _pressure(self) -> None:
        for card in self.system.cards():
            if not self._pressed(card):
                self._since.pop(("pressure stays", card.uuid), None)
                self._since.pop(("gate stays open", card.uuid), None)
                continue
            self.world.see("state: a device is under its floor")
            on = [each for each in self.system.kubelets.running.values() if each.card is card]
            going = sum(each.used_mib for each in on if each.ends and not self._hangs(each))
            pressed = card.free_mib + going < self.system.pools[card.node].floor_mib and self.up(card.node, card.uuid)
            pressed = pressed and not self._stray(card.node)
            evictable = [each for each in on if self._evictable(each)]
            names = ", ".join(f"{e.workload.name} ({e.used_mib} of {e.workload.declared_mib})" for e in evictable)
            text = f"{card.uuid} has {card.free_mib} MiB free, and nobody recycles {names}"
            self._held("pressure stays", card.uuid, pressed and bool(evictable), PRESSED_SECONDS, text)
            lent = [each for each in on if self._closable(each)]
            names = ", ".join(each.workload.name for each in lent)
            text = f"{card.uuid} has {card.free_mib} MiB free, and the gate leaves {names} in"
            self._held("gate stays open", card.uuid, pressed and bool(lent), PRESSED_SECONDS, text)

    def _stray(self, node: str) -> bool:
        """Whether the node lacks its pool's labels: no agent knows it then."""
        return not self.system.pools[node].matches(self.system.server.nodes[node]["metadata"]["labels"])

    def _untold(self) -> None:
        """A node that advertises what nobody protects is told of: by a rule that asks who serves its pool's floor."""
        system = self.system
        for name in system.hardware.machines:
            held = advertised(system.server.nodes[name], system.stack.ledger.names.gpumem)
            stray = bool(held) and self._stray(name)
            untold = stray and system.exporters[name].serves(METRIC_POOL_FLOOR)
            text = f"{name} advertises {held} MiB without its pool's labels, and its exporter says that all is well"
            self._held("a stray node is not told of", name, untold, UNTOLD_SECONDS, text)

    def _hangs(self, running: "Running") -> bool:
        """Its end takes so long that nobody should wait for it."""
        return min(running.workload.drains, running.workload.grace) > 90.0

    def _closable(self, running: "Running") -> bool:
        """A gate let it in, and whoever closes that gate is answered."""
        workload = running.workload
        return workload.kind == ON_DEMAND and not running.ends and not self._hidden(workload.namespace)

    def _hidden(self, namespace: str) -> bool:
        return self.world.now < self.hidden.get(namespace, 0.0)

    def _evictable(self, running: "Running") -> bool:
        workload, now = running.workload, self.world.now
        limits = self.system.stack.environ[WATCHDOG]
        recycled = self.recycled.get(workload.name, [])
        return (
            workload.kind == RESIDENT
            and running.used_mib > workload.declared_mib
            and not running.ends
            and now - running.started > int(limits["MINIMUM_AGE_SECONDS"]) + SLACK_SECONDS
            and now >= self.blocked.get(workload.name, 0.0)
            and now - max(recycled, default=-HOUR) > int(limits["COOL_DOWN_SECONDS"]) + SLACK_SECONDS
            and self._recycles(workload.namespace) < int(limits["EVICTIONS_PER_HOUR"])
            and self._within_the_hour([running.card.node]) < CAPS.node_evictions_per_hour
            and self._within_the_hour(self.recycled_on) < CAPS.total_evictions_per_hour
        )

    def _recycles(self, namespace: str) -> int:
        """Of a tenant, within the hour."""
        mine = [w.name for w in self.system.tenants.workloads.values() if w.namespace == namespace]
        return sum(self.world.now - at < HOUR for name in mine for at in self.recycled.get(name, ()))

    def _within_the_hour(self, nodes: Iterable[str]) -> int:
        """Recycles on these nodes."""
        return sum(self.world.now - at < HOUR for node in nodes for at in self.recycled_on.get(node, ()))

    def _starved(self) -> None:
        """A process within its seat lacks memory that others have beyond theirs."""
        short = [each for each in self.system.kubelets.running.values() if each.short_since is not None]
        for each in short:
            on = [other for other in self.system.kubelets.running.values() if other.card is each.card]
            guilty = [o for o in on if self._closable(o) or self._evictable(o)]
            bad = bool(guilty) and self.up(each.machine.name, each.card.uuid)
            has = ", ".join(f"{o.workload.name} ({o.used_mib})" for o in guilty)
            text = f"{each.workload.name} has {each.used_mib} of {each.wanted_mib} within its seat; {has} stay"
            self._held("seat starves", each.uid, bad, STARVED_SECONDS, text)
        self._forget("seat starves", {each.uid for each in short})

    # Gates

    def _gates(self) -> None:
        for name, gate in self.system.gates.items():
            is_open = self.system.pods_of(name) > 0
            wanted = self.system.demanded(gate)
            idle = is_open and not wanted and self.up() and not self._hidden(gate.namespace)
            text = f"{name} is open without demand"
            self._held("gate forgets", name, idle, gate.grace_seconds + IDLE_SECONDS, text)
            if is_open or not wanted or self._is_guest(gate):
                self._since.pop(("gate refuses", name), None)
                continue
            room = min((card.free_mib for card in self._in_pool()), default=0)
            needed = gate.need_mib + gate.margin_mib + self.system.pool.floor_mib + self._absent_mib()
            others = sum(g.need_mib for n, g in self.system.gates.items() if n != name and self.system.pods_of(n))
            starved = room >= needed + others and self._all_up()
            self._held("gate refuses", name, starved, gate.cool_down_seconds + 120.0, f"{name} is kept out of {room}")

    def _is_guest(self, gate: GateConfig) -> bool:
        """Let in on free memory alone: it leaves for whoever has demand."""
        return type(gate.demand).__name__ == "FreeMemory"

    def _all_up(self) -> bool:
        return all(self.up(name) for name in self.system.hardware.machines)

    def _absent_mib(self) -> int:
        """What seats may still take within their declarations."""
        used: dict[str, int] = {}
        for each in self.system.kubelets.running.values():
            used[each.workload.name] = used.get(each.workload.name, 0) + min(each.used_mib, each.workload.declared_mib)
        return sum(max(seat.total_mib - used.get(seat.name, 0), 0) for seat in self._seats())

    def _absent_seats_mib(self, card: Card | None = None) -> int:
        """What seats, and Jobs that are admitted, declare whose pod is away, or whose process still loads; of those
        with a pod the ones on this card, also where its containers are still to be created."""
        there = self._to_begin_beside(card) if card else {}
        for each in self.system.kubelets.running.values():
            elsewhere = card is not None and each.card is not card
            if (elsewhere or (each.up and each.loaded and each.short_since is None)) and not each.ends:
                there[each.workload.name] = there.get(each.workload.name, 0) + each.workload.declared_mib
        seats = sum(max(seat.total_mib - there.get(seat.name, 0), 0) for seat in self._seats())
        jobs = (job for job in self.system.kueue.jobs.values() if job.admitted and not job.ended)
        return seats + sum(max(job.workload.declared_mib - there.get(job.workload.name, 0), 0) for job in jobs)

    def _to_begin_beside(self, card: Card) -> dict[str, int]:
        """What the pods declare, by workload, that are bound to other devices and have no container yet."""
        there: dict[str, int] = {}
        for pod in self.system.server.pods.values():
            uuid = (pod["metadata"].get("annotations") or {}).get(self.system.stack.ledger.names.device_uuid, card.uuid)
            workload = self.system.tenants.of(pod)
            begun = pod["metadata"]["uid"] in self.system.kubelets.running
            if workload is not None and uuid != card.uuid and not begun and "deletionTimestamp" not in pod["metadata"]:
                there[workload.name] = there.get(workload.name, 0) + workload.declared_mib
        return there

    def _still_loading_mib(self) -> int:
        """What seats that have just started, and loaded already, may load yet for all that the gate can know."""
        running = self.system.kubelets.running.values()
        recent = (each for each in running if each.loaded and self.world.now - each.up_since < STARTING_SECONDS)
        return sum(max(each.workload.declared_mib - each.used_mib, 0) for each in recent)

    def _quota(self) -> None:
        kueue = self.system.kueue
        if kueue.used_mib > kueue.quota_mib:
            self.violated("quota exceeded", f"{kueue.used_mib} of {kueue.quota_mib} MiB are admitted")

    def _capacity(self) -> None:
        """A node of the pool advertises what it has."""
        system = self.system
        for machine in system.hardware.machines.values():
            node = system.server.nodes[machine.name]
            gone = not advertised(node, system.stack.ledger.names.gpumem) and machine.ready
            bad = gone and self.up(machine.name) and system.pools[machine.name].matches(node["metadata"]["labels"])
            self._held("capacity gone", machine.name, bad, CAPACITY_SECONDS, f"{machine.name} advertises nothing")

    # What is written

    def _check(self, kind: str, found: Object) -> None:
        match kind:
            case "evict":
                self._evicted(found)
            case "bind":
                self._bound(found)
            case "scale":
                self._scaled(found)
            case "node":
                self._advertised(found)

    def _hear(self, kind: str, found: Object) -> None:
        """A queued Job that is deactivated counts for the caps as an eviction does."""
        if found.get("kind") == "Workload" and kind == "MODIFIED" and not found["spec"].get("active", True):
            job = self.system.tenants.workloads[found["metadata"]["name"].removeprefix("job-")]
            for node in {each.machine.name for each in self.system.kubelets.of(job)}:
                self.recycled_on.setdefault(node, []).append(self.world.now)

    def _evicted(self, pod: Object) -> None:
        """Nobody within his budget is evicted."""
        workload = self.system.tenants.of(pod)
        running = self.system.kubelets.running.get(pod["metadata"]["uid"])
        self.world.see("action: evicted")
        if workload is None:
            return
        used = running.used_mib if running else 0
        self.world.say("api", f"evicts {workload.name}, which has {used} of {workload.declared_mib} MiB")
        # One that terminates already counts as well: the watchdog does not wait out the grace of an offender.
        self.recycled.setdefault(workload.name, []).append(self.world.now)
        self.recycled_on.setdefault(pod["spec"]["nodeName"], []).append(self.world.now)
        self.world.timers.append(self.world.now + int(self.system.stack.environ[WATCHDOG]["COOL_DOWN_SECONDS"]))
        recently = running is not None and self.world.now - running.over_at <= LAG_SECONDS
        if used <= workload.declared_mib and not recently:
            self.violated("evicted within budget", f"{workload.name} has {used} of {workload.declared_mib}")

    def _bound(self, pod: Object) -> None:
        """No device is promised twice."""
        names = self.system.stack.ledger.names
        annotations = pod["metadata"].get("annotations") or {}
        self.world.see("action: bound")
        self.bound[pod["metadata"]["uid"]] = self.world.now
        uuid, node = annotations.get(names.device_uuid), pod["spec"]["nodeName"]
        if not uuid:
            return
        held = self.promised(node).get(uuid, 0) + gpumem_of(pod, names.gpumem)
        offered = self.system.pools[node].device_mib
        if held > offered:
            self.violated("device promised twice", f"{uuid} has {held} of {offered} MiB promised")

    def _scaled(self, found: Object) -> None:
        name = found["metadata"]["name"]
        gate = self.system.gates[name]
        self.world.timers.append(self.world.now + gate.cool_down_seconds)
        self._remember()
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
            for card in self._in_pool() if self.system.shape.nodes == 1 and self.up() else ():
                free, absent = max(seen[card.uuid] for _, seen in self._free), self._absent_seats_mib(card)
                if absent and free - floor - absent < gate.need_mib:
                    text = f"{name} needs {gate.need_mib} of {free} less {floor}; seats that are away declare {absent}"
                    self.violated("an absent seat's memory lent", text, name)
            if most - floor - outstanding < gate.need_mib:
                text = f"{name} needs {gate.need_mib} of {most} less {floor}, others may still take {outstanding}"
                self.violated("two in one slack", text)
            return
        self.world.see("action: gate closed")
        self.world.say("api", f"closes {name}")
        if not self.system.demanded(gate) or self._is_guest(gate):
            return
        mine = {each.card.node for each in self.system.kubelets.of(self.system.workload(name))}
        least = {card.uuid: min(seen[card.uuid] for _, seen in self._free) for card in self._in_pool()}
        looked = self._looked(GATE)
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
            self.violated("put out in vain", f"{name} is closed with demand; with what terminates {least} are enough")

    def _seats(self) -> tuple[Seat, ...]:
        """Of the pool that gates lend of."""
        return self.system.stack.ledger.seats_in(self.system.pool.name)

    def _in_pool(self) -> list[Card]:
        """The devices of the nodes that the pool's selector matches now."""
        nodes = self.system.server.nodes
        return [c for c in self.system.cards() if self.system.pool.matches(nodes[c.node]["metadata"]["labels"])]

    def _used(self, name: str) -> int:
        return sum(each.used_mib for each in self.system.kubelets.of(self.system.workload(name)))

    def _looked(self, name: str) -> float:
        """Until when the agent's passes that are under way may have looked: what happens since then they need not
        know."""
        agents = (agent for agent in (*self.system.crons.values(), *self.system.twins) if agent.name == name)
        return min((began for agent in agents for began in agent.busy.values()), default=self.world.now)

    def _going(self, card: Card, looked: float) -> int:
        on = [each for each in self.system.kubelets.running.values() if each.card is card and not self._hangs(each)]
        return sum(each.used_mib for each in on if each.ends_since is not None and each.ends_since <= looked)

    def _advertised(self, node: Object) -> None:
        """Capacity is never below what was bound when the pass began that writes it; what the scheduler binds since
        then, while the API is slow, the next pass counts."""
        names, name = self.system.stack.ledger.names, node["metadata"]["name"]
        looked = self._looked(RECONCILE)
        pods = [
            pod for pod in self.system.scheduler.bound_to(name) if self.bound.get(pod["metadata"]["uid"], 0.0) <= looked
        ]
        held, bound = advertised(node, names.gpumem), sum(gpumem_of(pod, names.gpumem) for pod in pods)
        self.world.see("action: capacity written")
        if held < bound:
            self.violated("capacity below what is bound", f"{name} advertises {held}, {bound} are bound")
        count = advertised(node, names.gpu_count)
        devices = sum(gpumem_of(pod, names.gpu_count) for pod in pods)
        if count < devices:
            self.violated("gpu-count below what is bound", f"{name} advertises {count} devices, {devices} are bound")

    # The agents

    def _agents(self) -> None:
        """Each acts while it can: an agent that nobody hears of protects nobody."""
        for name in (RECONCILE, WATCHDOG, GATE):
            agent = self.system.crons[name]
            silent = self.up() and agent.stuck
            self._held("agent stopped", name, silent, SILENT_SECONDS, f"{name} has no run")


def _greedy(running: "Running") -> bool:
    """A queued Job's pod that uses more than its quota."""
    workload = running.workload
    return workload.kind == QUEUED and running.used_mib > workload.declared_mib and not running.ends
