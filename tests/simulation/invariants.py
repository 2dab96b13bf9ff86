"""Checks the promises by the real memory of the simulated devices, not by readings.

A promise with a time limit is suspended while the API server or the node has a fault, and for some time afterwards. A
tenant's act never suspends a promise. Units: MiB, seconds.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from simulation.api import Object
from simulation.devices import Card
from simulation.kubelet import RunningPod
from simulation.scheduler import advertised
from simulation.tenants import ON_DEMAND, QUEUED, RESIDENT, Workload, gpumem_of
from tenancy.names import GATE, METRIC_POOL_FLOOR, RECONCILE, WATCHDOG
from tests.simulation.gate_promises import LAG_SECONDS, GatePromises, hangs

if TYPE_CHECKING:
    from tests.simulation.system import System

CHECK_SECONDS = 5.0
ADMITTED_WAITS = "admitted job waits"
# SEAT_SECONDS is the longest wait of a seat's pod after its memory is free by the ledger. LENT_SECONDS is the longest
# wait if only on-demand workloads use the memory.
LENT_SECONDS, SEAT_SECONDS = 45.0, 150.0
# The longest time during which an offender may stay on a device below its floor. The sum is 90 s for a pod that hangs,
# 30 s for the offender's recycle, and the time of two readings.
PRESSED_SECONDS = 135.0
STARVED_SECONDS = 240.0
SILENT_SECONDS = 200.0
CAPACITY_SECONDS = 150.0
# An unprotected node must lose its exporter within this time. With scrapes and evaluation, the alert then fires within
# three minutes.
UNTOLD_SECONDS = 75.0
# The longest time from the end of a cool-down, a minimum age or a fault to the delayed recycle.
SLACK_SECONDS = 15.0
HOUR = 3600.0


class Invariants:
    """Checks the promises every 5 s, and at each write of an agent."""

    def __init__(self, system: "System") -> None:
        self.system = system
        self.world = system.world
        self.violations = system.violations
        self.gates = GatePromises(system)
        self.recycled: dict[str, list[float]] = {}  # Maps a workload to the times of its recycles.
        self.bound: dict[str, float] = {}  # Maps a pod's UID to the time of its bind.
        self.helped: dict[str, float] = {}  # Maps a device to the last time when recycles there could help.
        system.server.checks.append(self._check)

    def resume(self) -> None:
        self.world.tick(0.0, self._tick)  # starts after the agents' first samples

    def _tick(self) -> None:
        self.look()
        self.world.tick(CHECK_SECONDS, self._tick)

    def before_jump(self, until: float) -> None:
        self.look()
        self.violations.skip(until - self.world.now)

    def tense(self) -> bool:
        """Returns True if an agent may act after some time even without a change."""
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

    def _waits(self) -> None:
        """Reports each pod of a seat that waits for too long."""
        system = self.system
        seen = set()
        for key, _ in [*system.scheduler.waiting.items()]:
            pod = system.server.pods.get(key)
            workload = system.tenants.of(pod) if pod else None
            if pod is None or workload is None or workload.kind not in (RESIDENT, QUEUED):
                continue
            if self.violations.is_hidden(workload.namespace):  # the scheduler cannot bind a pod to this node
                continue
            uid = pod["metadata"]["uid"]
            seen.add(uid)
            cards = [card for card in self._roomy(pod, workload) if self.violations.up(card.node, card.uuid)]
            if workload.kind == QUEUED:  # only memory of offenders and on-demand workloads counts
                text = f"{key[1]}, which Kueue admitted, waits for {workload.declared_mib}; the ledger has room"
                able = any(self._reclaimable(card) >= workload.declared_mib for card in cards)
                self.violations.held(ADMITTED_WAITS, uid, able, SEAT_SECONDS, text)
                continue
            lent = any(
                card.free_mib + self._lent(card) - system.pools[card.node].floor_mib >= self._awaited_mib(card.node)
                for card in cards
            )
            free = max((card.free_mib for card in cards), default=0)
            text = f"{key[1]} asks for {workload.declared_mib}, the ledger has room, {free} MiB are free"
            self.violations.held("seat waits", uid, bool(cards), SEAT_SECONDS, text)
            self.violations.held("seat waits for what gates lent", uid, bool(cards) and lent, LENT_SECONDS, text)
        self.violations.forget(ADMITTED_WAITS, seen)
        self.violations.forget("seat waits", seen)
        self.violations.forget("seat waits for what gates lent", seen)

    def _awaited_mib(self, node: str) -> int:
        """Returns the total MiB of the waiting seats that may be placed on the node. The node may keep memory for each
        of these seats.
        """
        system = self.system
        pods = [pod for key in system.scheduler.waiting if (pod := system.server.pods.get(key))]
        seats = [w for pod in pods if (w := system.tenants.of(pod)) and system.scheduler.selects(pod, node)]
        return sum(each.declared_mib for each in seats if each.kind == RESIDENT)

    def _roomy(self, pod: Object, workload: Workload) -> Iterator[Card]:
        """Yields the devices where the pod's request is free by the ledger."""
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
        """Returns the MiB that the node's bound pods request, by device."""
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
        """Returns the MiB free above the floor after the stops of all on-demand workloads and all recycles."""
        on = self._on(card)
        over = sum(each.used_mib - each.workload.declared_mib for each in on if self._evictable(each) or _greedy(each))
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
            going = sum(each.used_mib for each in on if each.ends and not hangs(each))
            pressed = card.free_mib + going < self.system.pools[card.node].floor_mib and self.violations.up(
                card.node, card.uuid
            )
            pressed = pressed and not self._stray(card.node)
            evictable = [each for each in on if self._evictable(each)]
            evictable = evictable if self._restore(card, evictable) else []
            names = ", ".join(f"{e.workload.name} ({e.used_mib} of {e.workload.declared_mib})" for e in evictable)
            text = f"{card.uuid} has {card.free_mib} MiB free, and nobody recycles {names}"
            self.violations.held("pressure stays", card.uuid, pressed and bool(evictable), PRESSED_SECONDS, text)
            lent = [each for each in on if self._closable(each)]
            names = ", ".join(each.workload.name for each in lent)
            text = f"{card.uuid} has {card.free_mib} MiB free, and the gate leaves {names} in"
            self.violations.held("gate stays open", card.uuid, pressed and bool(lent), PRESSED_SECONDS, text)

    def _restore(self, card: Card, offenders: Sequence[RunningPod]) -> bool:
        """Returns True if recycles of these pods restore the device's floor, or at least its least free memory."""
        floor_mib = self.system.pools[card.node].floor_mib
        least_mib = int(self.system.stack.environ[WATCHDOG]["LEAST_FREE_MIB"])
        going = sum(each.used_mib for each in self._on(card) if each.ends and not hangs(each))
        free_mib = card.free_mib + going
        over_mib = sum(max(each.used_mib - each.workload.declared_mib, 0) for each in offenders)
        return any(free_mib < level <= free_mib + over_mib for level in (floor_mib, min(least_mib, floor_mib)))

    def _on(self, card: Card) -> list[RunningPod]:
        return [each for each in self.system.kubelets.running.values() if each.card is card]

    def _remember_help(self) -> None:
        """Records the devices where recycles of all offenders could restore memory or help a waiting pod.

        Offenders that must not be recycled also count.
        """
        for card in self.system.cards():
            budgeted = [each for each in self._on(card) if each.workload.declared_mib and not each.ends]
            if self.system.scheduler.waiting or self._restore(card, budgeted):
                self.helped[card.uuid] = self.world.now

    def _stray(self, node: str) -> bool:
        """Returns True if the node has lost its pool's labels, so that no agent knows the node."""
        return not self.system.pools[node].matches(self.system.server.nodes[node]["metadata"]["labels"])

    def _untold(self) -> None:
        """Reports a node that advertises memory, is unprotected, and causes no alert. The alert fires if no exporter on
        the node serves its pool's floor.
        """
        system = self.system
        for name in system.hardware.machines:
            held = advertised(system.server.nodes[name], system.stack.ledger.names.gpumem)
            stray = bool(held) and self._stray(name)
            untold = stray and system.exporters[name].serves(METRIC_POOL_FLOOR)
            text = f"{name} advertises {held} MiB without its pool's labels, and its exporter says that all is well"
            self.violations.held("a stray node is not told of", name, untold, UNTOLD_SECONDS, text)

    def _closable(self, running: RunningPod) -> bool:
        """Returns True if the demand gate started the workload and can stop it."""
        workload = running.workload
        return workload.kind == ON_DEMAND and not running.ends and not self.violations.is_hidden(workload.namespace)

    def _evictable(self, running: RunningPod) -> bool:
        workload, now = running.workload, self.world.now
        limits = self.system.stack.environ[WATCHDOG]
        recycled = self.recycled.get(workload.name, [])
        return (
            workload.kind == RESIDENT
            and running.used_mib > workload.declared_mib
            and not running.ends
            and now - running.started > int(limits["MINIMUM_AGE_SECONDS"]) + SLACK_SECONDS
            and now >= self.violations.blocked.get(workload.name, 0.0)
            and now - max(recycled, default=-HOUR) > int(limits["COOL_DOWN_SECONDS"]) + SLACK_SECONDS
            and self._recycles(workload.namespace) < int(limits["EVICTIONS_PER_HOUR"])
        )

    def _recycles(self, namespace: str) -> int:
        """Returns the number of a tenant's recycles within the last hour."""
        mine = [w.name for w in self.system.tenants.workloads.values() if w.namespace == namespace]
        return sum(self.world.now - at < HOUR for name in mine for at in self.recycled.get(name, ()))

    def _starved(self) -> None:
        """Reports a process that lacks memory within its budget, while other processes exceed their budgets."""
        short = [each for each in self.system.kubelets.running.values() if each.short_since is not None]
        for each in short:
            on = self._on(each.card)
            evictable = [other for other in on if self._evictable(other)]
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
        """Reports a node of a pool that does not advertise its memory."""
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

    def _check(self, kind: str, found: Object) -> None:
        match kind:
            case "evict":
                self._evicted(found)
            case "preempt":
                self._preempted(found["pod"], found["victim"])
            case "bind":
                self._bound(found)
            case "scale":
                self.gates.scaled(found)
            case "node":
                self._advertised(found)

    def _evicted(self, pod: Object) -> None:
        """Reports an eviction of a pod within its budget, and an eviction that cannot help."""
        workload = self.system.tenants.of(pod)
        running = self.system.kubelets.running.get(pod["metadata"]["uid"])
        self.world.see("action: evicted")
        if workload is None:
            return
        used = running.used_mib if running else 0
        self.world.say("api", f"evicts {workload.name}, which has {used} of {workload.declared_mib} MiB")
        # A terminating pod also counts, because the watchdog shortens the grace period of an offender.
        self.recycled.setdefault(workload.name, []).append(self.world.now)
        self.world.timers.append(self.world.now + int(self.system.stack.environ[WATCHDOG]["COOL_DOWN_SECONDS"]))
        recently = running is not None and self.world.now - running.over_at <= LAG_SECONDS
        if used <= workload.declared_mib and not recently:
            self.violations.add("evicted within budget", f"{workload.name} has {used} of {workload.declared_mib}")
        if running is not None and self.world.now - self.helped.get(running.card.uuid, -HOUR) > LAG_SECONDS:
            text = f"{workload.name} has {used} of {workload.declared_mib}, {running.card.free_mib} MiB are free"
            self.violations.add("evicted in vain", text)

    def _preempted(self, pod: Object, victim: Object) -> None:
        """Reports a preempted pod if its priority is not lower."""
        priority, lower = (each["spec"].get("priority") or 0 for each in (pod, victim))
        if lower >= priority:
            names = [each["metadata"]["name"] for each in (victim, pod)]
            self.violations.add("preempted by an equal", f"{names[0]} of {lower} for {names[1]} of {priority}")

    def _bound(self, pod: Object) -> None:
        """Reports a device if its pods hold more memory than the device offers."""
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
            self.violations.add("device promised twice", f"{uuid} has {held} of {offered} MiB promised")

    def _advertised(self, node: Object) -> None:
        """Reports a node that advertises less than its pods requested when the writing pass began.

        The next pass counts the pods that were bound after this.
        """
        names, name = self.system.stack.ledger.names, node["metadata"]["name"]
        looked = self.system.seen_until(RECONCILE)
        pods = [
            pod for pod in self.system.scheduler.bound_to(name) if self.bound.get(pod["metadata"]["uid"], 0.0) <= looked
        ]
        held, bound = advertised(node, names.gpumem), sum(gpumem_of(pod, names.gpumem) for pod in pods)
        self.world.see("action: capacity written")
        if held < bound:
            self.violations.add("capacity below what is bound", f"{name} advertises {held}, {bound} are bound")
        count = advertised(node, names.gpu_count)
        devices = sum(gpumem_of(pod, names.gpu_count) for pod in pods)
        if count < devices:
            self.violations.add(
                "gpu-count below what is bound", f"{name} advertises {count} devices, {devices} are bound"
            )

    def _agents(self) -> None:
        """Reports an agent that has no more runs."""
        for name in (RECONCILE, WATCHDOG, GATE):
            agent = self.system.crons[name]
            silent = self.violations.up() and agent.stuck
            self.violations.held("agent stopped", name, silent, SILENT_SECONDS, f"{name} has no run")


def _greedy(running: RunningPod) -> bool:
    """Returns True for a queued Job's pod that uses more than its quota."""
    workload = running.workload
    return workload.kind == QUEUED and running.used_mib > workload.declared_mib and not running.ends
