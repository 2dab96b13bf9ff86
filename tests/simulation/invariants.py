"""Checks all promises with the real memory of the simulated devices. Units: MiB, seconds.

A promise with a time limit does not count during a fault of the API server or the node. It always counts during a
tenant's act.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tenancy.ledger import Pool
from tenancy.names import GATE, METRIC_POOL_FLOOR, RECONCILE, WATCHDOG
from tests.simulation.agent_promises import AgentPromises
from tests.simulation.gate_promises import LAG_SECONDS, GatePromises, hangs
from tests.simulation.model.api import Object
from tests.simulation.model.devices import Card
from tests.simulation.model.kubelet import RunningPod
from tests.simulation.model.scheduler import advertised
from tests.simulation.model.tenants import ON_DEMAND, QUEUED, RESIDENT, Workload, gpumem_of
from tests.support.seat_orders import Wanted, fits

if TYPE_CHECKING:
    from tests.simulation.system import System

CHECK_SECONDS = 5.0
ADMITTED_WAITS = "admitted job waits"
STRANDED = "seat is stranded"
# SEAT_SECONDS and LENT_SECONDS limit how long a seat's pod waits. LENT_SECONDS counts if on-demand workloads use the
# memory.
LENT_SECONDS, SEAT_SECONDS = 45.0, 150.0
# An offender may stay this long on a device below its floor.
PRESSED_SECONDS = 135.0
STARVED_SECONDS = 240.0
SILENT_SECONDS = 200.0
CAPACITY_SECONDS = 150.0
LATE_SECONDS = 20.0
# An unprotected node must lose its exporter within this time, so that an alert fires.
UNTOLD_SECONDS = 75.0
SLACK_SECONDS = 15.0
HOUR = 3600.0


class Invariants:
    def __init__(self, system: "System") -> None:
        self.system = system
        self.world = system.world
        self.violations = system.violations
        self.gates = GatePromises(system)
        self.agents = AgentPromises(system)
        self.recycled: dict[str, list[float]] = {}  # Maps each workload to the times of its recycles.
        self.bound: dict[str, float] = {}  # Maps each pod's UID to the time of the pod's bind.
        self.helped: dict[str, float] = {}  # Maps each device to the last time when recycles on it could help.
        self.waited_at = -HOUR  # The last time when a pod waited for a node, or a process for memory.
        system.server.checks.append(self._check)

    def resume(self) -> None:
        self.world.tick(0.0, self._tick)

    def _tick(self) -> None:
        self.look()
        self.world.tick(CHECK_SECONDS, self._tick)

    def before_jump(self, until: float) -> None:
        self.look()
        self.violations.skip(until - self.world.now)

    def tense(self) -> bool:
        system = self.system
        return (
            bool(system.scheduler.waiting)
            or any(each.short_since is not None for each in system.kubelets.running.values())
            or any(self._pressed(card) for card in system.cards())
            or any(system.demanded(gate) != (system.pods_of(name) > 0) for name, gate in system.gates.items())
        )

    def look(self) -> None:
        self.gates.remember()
        self._remember_help()
        self._waits()
        self._pressure()
        self._starved()
        self.gates.look()
        self._capacity()
        self._untold()
        self._quota()
        self._agents()
        self.agents.look()

    def _waits(self) -> None:
        system = self.system
        seen = set()
        for key, _ in [*system.scheduler.waiting.items()]:
            pod = system.server.pods.get(key)
            workload = system.tenants.of(pod) if pod else None
            if pod is None or workload is None or workload.kind not in (RESIDENT, QUEUED):
                continue
            if self.violations.is_hidden(workload.namespace):
                continue
            uid = pod["metadata"]["uid"]
            seen.add(uid)
            cards = [card for card in self._roomy(pod, workload) if self.violations.up(card.node, card.uuid)]
            if workload.kind == QUEUED:
                text = f"{key[1]}, which Kueue admitted, waits for {workload.declared_mib}; the ledger has room"
                able = any(self._reclaimable(card) >= workload.declared_mib for card in cards)
                self.violations.held(ADMITTED_WAITS, uid, able, SEAT_SECONDS, text)
                continue
            lent = any(
                card.free_mib + self._lent(card) - system.pools[card.node].floor_mib >= self._awaited_mib(card.node)
                for card in cards
            )
            self._stranded(key[1], uid, pod, workload)
            free = max((card.free_mib for card in cards), default=0)
            text = f"{key[1]} asks for {workload.declared_mib}, the ledger has room, {free} MiB are free"
            self.violations.held("seat waits", uid, bool(cards), SEAT_SECONDS, text)
            self.violations.held("seat waits for what gates lent", uid, bool(cards) and lent, LENT_SECONDS, text)
        self.violations.forget(ADMITTED_WAITS, seen)
        self.violations.forget("seat waits", seen)
        self.violations.forget(STRANDED, seen)
        self.violations.forget("seat waits for what gates lent", seen)

    def _stranded(self, name: str, uid: str, pod: Object, workload: Workload) -> None:
        system = self.system
        seat = next((each for each in system.stack.ledger.seats if each.name == workload.name), None)
        pool = system.stack.ledger.pool(seat.pool) if seat else None
        cards = [card for card in system.cards() if system.pools.get(card.node) is pool]
        lost = any({card.node, card.uuid} & self.violations.disturbed.keys() for card in cards)
        bad = False
        if pool is not None and not lost and self._absent_seats(pool, only=workload):
            bad = not self._fits_beside_absent_seats(pod, workload, pool)
        text = f"{name} of {workload.declared_mib} is within its seat, and all its devices are there"
        self.violations.held(STRANDED, uid, bad, SEAT_SECONDS, text)

    def _awaited_mib(self, node: str) -> int:
        system = self.system
        pods = [pod for key in system.scheduler.waiting if (pod := system.server.pods.get(key))]
        seats = [w for pod in pods if (w := system.tenants.of(pod)) and system.scheduler.selects(pod, node)]
        return sum(each.declared_mib for each in seats if each.kind == RESIDENT)

    def _roomy(self, pod: Object, workload: Workload) -> Iterator[Card]:
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
            if sum_mib < workload.declared_mib or not system.scheduler.has_devices(machine.name, pod):
                continue
            if not self._fits_beside_absent_seats(pod, workload, system.pools[machine.name]):
                continue
            held, offered = self.promised(machine.name), system.pools[machine.name].device_mib
            roomy = [card for card in machine.cards if offered - held.get(card.uuid, 0) >= workload.each_mib]
            if len(roomy) >= workload.devices:
                yield from roomy

    def _fits_beside_absent_seats(self, pod: Object, workload: Workload, pool: Pool) -> bool:
        system = self.system
        names = [
            machine.name
            for machine in system.hardware.machines.values()
            if machine.ready and machine.alive and system.pools.get(machine.name) is pool
            if machine.name in system.server.nodes and system.scheduler.selects(pod, machine.name)
        ]
        wanted = [*self._absent_seats(pool)]
        own = Wanted(workload.each_mib, max(workload.devices, 1))
        if workload.kind != RESIDENT or own not in self._absent_seats(pool, only=workload):
            wanted.append(own)
        free = []
        for name in names:
            held, cards = self.promised(name), system.hardware.machines[name].cards
            free.append(tuple(sorted(pool.device_mib - held.get(card.uuid, 0) for card in cards)))
        return fits(tuple(sorted(wanted)), tuple(sorted(free)))

    def _absent_seats(self, pool: Pool, only: Workload | None = None) -> list[Wanted]:
        system, found = self.system, []
        for seat in system.stack.ledger.seats_in(pool.name):
            workload = system.tenants.workloads.get(seat.name)
            if workload is None or only not in (None, workload):
                continue
            pods = [
                pod
                for pod in system.server.pods.values()
                if pod["spec"].get("nodeName")
                and pod["status"].get("phase") not in ("Succeeded", "Failed")
                and system.tenants.of(pod) is workload
            ]
            found += [Wanted(seat.gpumem_mib, seat.devices_per_pod)] * (seat.replicas - len(pods))
        return found

    def promised(self, node: str) -> dict[str, int]:
        names, held = self.system.stack.ledger.names, {}
        for pod in self.system.server.pods.values():
            if pod["spec"].get("nodeName") == node and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                uuid = (pod["metadata"].get("annotations") or {}).get(names.device_uuid)
                for each in uuid.split(",") if uuid else ():
                    held[each] = held.get(each, 0) + gpumem_of(pod, names.gpumem) // max(
                        gpumem_of(pod, names.gpu_count), 1
                    )
        return held

    def _lent(self, card: Card) -> int:
        running = self.system.kubelets.running
        uses = ((running.get(uid), mib) for uid, mib in card.uses.items())
        return sum(mib for each, mib in uses if each is not None and each.workload.kind == ON_DEMAND)

    def _reclaimable(self, card: Card) -> int:
        on = self._on(card)
        over = sum(each.over_mib_on(card) for each in on if self._evictable(each) or _greedy(each))
        return card.free_mib + self._lent(card) + over - self.system.pools[card.node].floor_mib

    def _pressed(self, card: Card) -> bool:
        return card.free_mib < self.system.pools[card.node].floor_mib

    def _pressure(self) -> None:
        for card in self.system.cards():
            if not self._pressed(card):
                self.violations.held("pressure stays", card.uuid, False, 0.0, "")
                self.violations.held("gate stays open", card.uuid, False, 0.0, "")
                continue
            self.world.see("state: a device is under its floor")
            on = self._on(card)
            going = sum(each.used_mib for each in on if self._goes(each))
            pressed = card.free_mib + going < self.system.pools[card.node].floor_mib and self.violations.up(
                card.node, card.uuid
            )
            pressed = pressed and not self._stray(card.node)
            evictable = [each for each in on if self._evictable(each)]
            allowed = self._within_limits(card, evictable)
            evictable = allowed if self._restore(card, allowed) else []
            names = ", ".join(f"{e.workload.name} ({e.used_mib} of {e.workload.each_mib})" for e in evictable)
            text = f"{card.uuid} has {card.free_mib} MiB free, and nobody recycles {names}"
            self.violations.held("pressure stays", card.uuid, pressed and bool(evictable), PRESSED_SECONDS, text)
            lent = [each for each in on if self._closable(each)]
            names = ", ".join(each.workload.name for each in lent)
            text = f"{card.uuid} has {card.free_mib} MiB free, and the gate leaves {names} in"
            self.violations.held("gate stays open", card.uuid, pressed and bool(lent), PRESSED_SECONDS, text)

    def _restore(self, card: Card, offenders: Sequence[RunningPod]) -> bool:
        floor_mib = self.system.pools[card.node].floor_mib
        least_mib = int(self.system.stack.environ[WATCHDOG]["LEAST_FREE_MIB"])
        going = sum(each.used_mib for each in self._on(card) if self._goes(each))
        free_mib = card.free_mib + going
        over_mib = sum(each.over_mib_on(card) for each in offenders)
        return any(free_mib < level <= free_mib + over_mib for level in (floor_mib, min(least_mib, floor_mib)))

    def _goes(self, running: RunningPod) -> bool:
        since = running.ends_since
        return since is not None and not hangs(running) and self.world.now - since <= LAG_SECONDS

    def _on(self, card: Card) -> list[RunningPod]:
        return [each for each in self.system.kubelets.running.values() if card in each.cards]

    def _remember_help(self) -> None:
        running = self.system.kubelets.running.values()
        if self.system.scheduler.waiting or any(each.short_since is not None for each in running):
            self.waited_at = self.world.now
        for card in self.system.cards():
            budgeted = [each for each in self._on(card) if each.workload.declared_mib and not self._goes(each)]
            if self.system.scheduler.waiting or self._restore(card, budgeted):
                self.helped[card.uuid] = self.world.now

    def _stray(self, node: str) -> bool:
        return not self.system.pools[node].matches(self.system.server.nodes[node]["metadata"]["labels"])

    def _untold(self) -> None:
        system = self.system
        for name in system.hardware.machines:
            held = advertised(system.server.nodes[name], system.stack.ledger.names.gpumem)
            stray = bool(held) and self._stray(name)
            untold = stray and system.exporters[name].serves(METRIC_POOL_FLOOR)
            text = f"{name} advertises {held} MiB without its pool's labels, and its exporter says that all is well"
            self.violations.held("a stray node is not told of", name, untold, UNTOLD_SECONDS, text)

    def _closable(self, running: RunningPod) -> bool:
        workload = running.workload
        own = workload.name not in self.system.foreign
        return (
            workload.kind == ON_DEMAND
            and own
            and not running.ends
            and not self.violations.is_hidden(workload.namespace)
        )

    def _evictable(self, running: RunningPod) -> bool:
        workload, now = running.workload, self.world.now
        limits = self.system.stack.environ[WATCHDOG]
        recycled = self.recycled.get(workload.name, [])
        return (
            workload.kind == RESIDENT
            and running.over_budget
            and not running.ends
            and not self.system.pools[running.machine.name].assumed
            and now - running.started > int(limits["MINIMUM_AGE_SECONDS"]) + SLACK_SECONDS
            and now >= self.violations.blocked.get(workload.name, 0.0)
            and now - max(recycled, default=-HOUR) > int(limits["COOL_DOWN_SECONDS"]) + SLACK_SECONDS
            and self._recycles(workload.namespace) < int(limits["EVICTIONS_PER_HOUR"])
        )

    def _within_limits(self, card: Card, offenders: Sequence[RunningPod]) -> list[RunningPod]:
        left: dict[str, int] = {}
        found = []
        for each in sorted(offenders, key=lambda each: -each.over_mib_on(card)):
            space = each.workload.namespace
            most = int(self.system.stack.environ[WATCHDOG]["EVICTIONS_PER_HOUR"])
            left.setdefault(space, most - self._recycles(space))
            if left[space] > 0:
                found.append(each)
                left[space] -= 1
        return found

    def _recycles(self, namespace: str) -> int:
        mine = [w.name for w in self.system.tenants.workloads.values() if w.namespace == namespace]
        return sum(self.world.now - at < HOUR for name in mine for at in self.recycled.get(name, ()))

    def _starved(self) -> None:
        short = [each for each in self.system.kubelets.running.values() if each.short_since is not None]
        for each in short:
            on = self._on(each.card)
            evictable = [other for other in on if self._evictable(other)]
            evictable = self._within_limits(each.card, evictable)
            evictable = evictable if self._restore(each.card, evictable) else []
            guilty = [other for other in on if self._closable(other)] + evictable
            bad = bool(guilty) and self.violations.up(each.machine.name, each.card.uuid)
            has = ", ".join(f"{o.workload.name} ({o.used_mib})" for o in guilty)
            text = f"{each.workload.name} has {each.used_mib} of {each.wanted_mib} within its seat; {has} stay"
            self.violations.held("seat starves", each.uid, bad, STARVED_SECONDS, text)
        self.violations.forget("seat starves", {each.uid for each in short})

    def _quota(self) -> None:
        kueue = self.system.kueue
        if kueue.used_mib > kueue.quota_mib:
            self.violations.add("quota exceeded", f"{kueue.used_mib} of {kueue.quota_mib} MiB are admitted")

    def _capacity(self) -> None:
        system = self.system
        for machine in system.hardware.machines.values():
            node = system.server.nodes[machine.name]
            gone = not advertised(node, system.stack.ledger.names.gpumem) and machine.ready
            bad = (
                gone
                and self.violations.up(machine.name)
                and system.pools[machine.name].matches(node["metadata"]["labels"])
            )
            self.violations.held(
                "capacity gone", machine.name, bad, CAPACITY_SECONDS, f"{machine.name} advertises nothing"
            )
            late = (
                gone
                and self.agents.reconcile_follows(machine.name)
                and machine.labels.items() <= node["metadata"]["labels"].items()
            )
            text = f"{machine.name} advertises nothing, and reconcile runs without a fault"
            self.violations.held("capacity late", machine.name, late, LATE_SECONDS, text)

    def _check(self, kind: str, found: Object) -> None:
        match kind:
            case "evict":
                self._evicted(found)
            case "preempt":
                for victim in found["victims"]:
                    self._preempted(found["pod"], victim)
            case "bind":
                self._bound(found)
            case "scale":
                gate = self.system.gates[found["metadata"]["name"]]
                opens = bool(found["spec"]["replicas"])
                nodes = {card.node for card in self.system.cards_of(self.system.pool_of(gate))} if opens else set()
                self.agents.acted(GATE, nodes)
                self.agents.listed(GATE)
                self.gates.scaled(found)
            case "node":
                self._advertised(found)
            case "finalizers":
                self.agents.finalized(found)

    def _evicted(self, pod: Object) -> None:
        workload = self.system.tenants.of(pod)
        running = self.system.kubelets.running.get(pod["metadata"]["uid"])
        self.world.see("action: evicted")
        if workload is None:
            return
        if self.system.server.who == WATCHDOG:
            self.agents.acted(WATCHDOG, {running.machine.name} if running else set())
            self._stays_active(pod, workload)
        used = running.used_mib if running else 0
        self.world.say("api", f"evicts {workload.name}, which has {used} of {workload.declared_mib} MiB")
        self.agents.evicted(pod, workload)
        self._remember_help()
        self.recycled.setdefault(workload.name, []).append(self.world.now)
        self.world.timers.append(self.world.now + int(self.system.stack.environ[WATCHDOG]["COOL_DOWN_SECONDS"]))
        recently = running is not None and self.world.now - running.over_at <= LAG_SECONDS
        if not (running and running.over_budget) and not recently:
            self.violations.add("evicted within budget", f"{workload.name} has {used} of {workload.declared_mib}")
        helped = max((self.helped.get(card.uuid, -HOUR) for card in running.cards), default=-HOUR) if running else 0.0
        if running is not None and self.world.now - helped > LAG_SECONDS:
            text = f"{workload.name} has {used} of {workload.declared_mib}, {running.card.free_mib} MiB are free"
            self.violations.add("evicted in vain", text)

    def _stays_active(self, pod: Object, workload: Workload) -> None:
        stops = workload.pod_set is not None and (workload.pod_set.controller or {}).get("kind") != "ReplicaSet"
        if stops and "deletionTimestamp" not in pod["metadata"] and self.system.kueue.is_active(workload):
            self.violations.add("queued work stays active", f"{workload.name} is evicted, and its Workload is active")

    def _preempted(self, pod: Object, victim: Object) -> None:
        priority, lower = (each["spec"].get("priority") or 0 for each in (pod, victim))
        if lower >= priority:
            names = [each["metadata"]["name"] for each in (victim, pod)]
            self.violations.add("preempted by an equal", f"{names[0]} of {lower} for {names[1]} of {priority}")

    def _bound(self, pod: Object) -> None:
        names = self.system.stack.ledger.names
        annotations = pod["metadata"].get("annotations") or {}
        self.world.see("action: bound")
        self.bound[pod["metadata"]["uid"]] = self.world.now
        uuid, node = annotations.get(names.device_uuid), pod["spec"]["nodeName"]
        if not uuid:
            return
        uuids = uuid.split(",")
        offered, before = self.system.pools[node].device_mib, self.promised(node)
        for each in uuids:
            held = before.get(each, 0) + gpumem_of(pod, names.gpumem) // len(uuids)
            if held > offered:
                self.violations.add("device promised twice", f"{each} has {held} of {offered} MiB promised")
        wanted = max(gpumem_of(pod, names.gpu_count), 1)
        if len({*uuids} & {card.uuid for card in self.system.hardware.machines[node].cards}) != wanted:
            text = f"{pod['metadata']['name']} asks for {wanted} devices of {node}, and has {uuid}"
            self.violations.add("wrong devices", text)

    def _advertised(self, node: Object) -> None:
        if self.system.ledger_deleted():
            return
        names, name = self.system.stack.ledger.names, node["metadata"]["name"]
        self.agents.node_written(name)
        looked = self.system.seen_until(RECONCILE)
        pods = [
            pod for pod in self.system.scheduler.bound_to(name) if self.bound.get(pod["metadata"]["uid"], 0.0) <= looked
        ]
        held, bound = advertised(node, names.gpumem), sum(gpumem_of(pod, names.gpumem) for pod in pods)
        self.world.see("action: capacity written")
        machine = self.system.hardware.machines.get(name)
        shown = self.system.pools[name].shown_mib([card.total_mib for card in machine.cards]) if machine else 0
        if held > max(shown, bound):
            text = f"{name} advertises {held} MiB, and its devices offer {shown}"
            self.violations.add("more capacity than devices", text)
        if held < bound and advertised(self.system.server.nodes[name], names.gpumem):
            self.violations.add("capacity below what is bound", f"{name} advertises {held}, {bound} are bound")
        if (count := advertised(node, names.gpu_count)) != held:
            text = f"{name} advertises {held} gpumem and {count} gpu-count"
            self.violations.add("gpu-count is used up before gpumem", text)

    def _agents(self) -> None:
        for name in (RECONCILE, WATCHDOG, GATE):
            agent = self.system.crons[name]
            silent = self.violations.up() and agent.stuck
            self.violations.held("agent stopped", name, silent, SILENT_SECONDS, f"{name} has no run")


def _greedy(running: RunningPod) -> bool:
    return running.workload.kind == QUEUED and running.over_budget and not running.ends
