"""Compares the agents' Events, metrics and journals with the cluster. Each Event must be true, and each act needs an
Event. Units: MiB, seconds.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agents.gate.config import GateConfig
from agents.runtime.http_message import HttpRequest
from tenancy import names
from tenancy.ledger import Pool
from tenancy.names import GATE, RECONCILE, SYSTEM_NAMESPACE, WATCHDOG
from tenancy.units import MIB
from tests.simulation.model.api import Object
from tests.simulation.model.devices import Card
from tests.simulation.model.kubelet import RunningPod
from tests.simulation.model.scheduler import advertised
from tests.simulation.model.tenants import QUEUED, gpumem_of
from tests.simulation.network import FaultyExporter

if TYPE_CHECKING:
    from tests.simulation.system import System

HOUR = 3600.0
_JOURNAL = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{names.journal(WATCHDOG)}"
_TOLD_SECONDS = 45.0  # The longest time from an act to its Event.
_AGAIN_SECONDS = 100.0  # An agent repeats an Event about a state once a minute.
_SILENT_SECONDS = 190.0  # The longest time of a state without its Event.
_PRESSED_SECONDS = 110.0  # The longest time of a device below its floor without an Event about its offenders.
_KNOWN_SECONDS = 75.0
_FAULT_SECONDS = 130.0
_WRITTEN_SECONDS = 60.0
_PAGE_SECONDS = 120.0
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_TYPED = re.compile(r"^# TYPE (\w+) ", re.MULTILINE)
_REFERENCE = Path(__file__).parents[2] / "docs/reference/metrics.md"
_MISTAKE = re.compile(r"\b(Attribute|Type|Key|Index|Name|Assertion|ZeroDivision|UnboundLocal)Error: ")
_NOT_AGENTS = ("plan", "event", "VIOLATION")
_SCALED = {names.EVENT_GATE_OPENED: 1, names.EVENT_GATE_CLOSED: 0}
_Series = tuple[str, Mapping[str, str], float]


class ReportPromises:
    def __init__(self, system: "System") -> None:
        self.system = system
        self.world = system.world
        self.violations = system.violations
        self.told: dict[tuple[str, str], float] = {}  # Maps an Event's reason and object to the time of the last one.
        self.scaled: dict[tuple[str, int], float] = {}
        self.untold: dict[tuple[str, str], float] = {}
        self.held: dict[tuple[str, str], float] = {}
        self.pressed: dict[str, float] = {}  # Maps a device to the last time below its floor.
        self.recycled: list[tuple[float, str, str]] = []  # The time, the UID and the namespace of each recycled pod.
        self.pages_at: dict[str, float] = {}
        self.read = 0  # the number of lines of the timeline that are already checked
        system.server.told.append(self._check)

    # Acts

    def gate_scaled(self, found: Object) -> None:
        name, replicas = found["metadata"]["name"], int(found["spec"]["replicas"])
        self.scaled[name, replicas] = self.world.now
        reason = names.EVENT_GATE_OPENED if replicas else names.EVENT_GATE_CLOSED
        self.untold[reason, name] = self.world.now

    def evicted(self, pod: Object) -> None:
        metadata = pod["metadata"]
        if self.system.server.who == WATCHDOG:
            self.recycled.append((self.world.now, metadata["uid"], metadata["namespace"]))

    # Events

    def _check(self, event: Object) -> None:
        about, reason = event["regarding"], event["reason"]
        name = about["name"]
        self.told[reason, name] = self.world.now
        self.untold.pop((reason, name), None)
        why = self._falsehood(reason, name, about.get("namespace", ""), event["note"])
        if why:
            self.violations.add("false Event", f"{reason} on {name}: {why}", f"{reason} {name}")

    def _falsehood(self, reason: str, name: str, namespace: str, note: str) -> str:
        pod = self.system.server.pods.get((namespace, name))
        match reason:
            case _ if name in self.system.gates:
                return self._gate_falsehood(reason, name)
            case names.EVENT_UNDECLARED if pod is not None:
                return self._undeclared_falsehood(pod)
            case names.EVENT_SPARED if pod is not None and "was due to be gone" in note:
                due = pod["metadata"].get("deletionTimestamp")
                late = due is not None and self.system.server.time() >= datetime.fromisoformat(due)
                return "" if late or not self.violations.up() else f"its end is due at {due}"
            case names.EVENT_BLIND if (exporter := self.system.exporters.get(name)) is not None:
                since = exporter.silent_since
                silent = since is not None and self.world.now - since > _KNOWN_SECONDS
                return "its exporter does not answer, and an alert reports this" if silent else ""
            case names.EVENT_RECYCLED if pod is not None:
                workload, uid = self.system.tenants.of(pod), pod["metadata"]["uid"]
                is_queued = workload is not None and workload.kind == QUEUED
                done = is_queued or any(uid == each for _, each, _ in self.recycled)
                return "" if done else "nobody has recycled it"
        return ""

    def _gate_falsehood(self, reason: str, name: str) -> str:
        ago = 0.0
        if reason in _SCALED:
            ago = self.world.now - self.scaled.get((name, _SCALED[reason]), -HOUR)
        elif reason in (names.EVENT_GATE_LEFT_ALONE, names.EVENT_GATE_UNANSWERED):
            self._note_gates()
            ago = self.world.now - self.held.get((name, reason), -HOUR)
        return f"it is not so for {ago:.0f} s" if ago > _KNOWN_SECONDS and self._is_sound(GATE) else ""

    def _undeclared_falsehood(self, pod: Object) -> str:
        ledger = self.system.stack.ledger
        if gpumem_of(pod, ledger.names.gpumem):
            return "it declares its memory"
        running = self.system.kubelets.running.get(pod["metadata"]["uid"])
        if pod["metadata"]["namespace"] not in ledger.tenants_without_budget or running is None:
            return ""
        if not self._is_sound(WATCHDOG) or not self.violations.up(running.machine.name, running.card.uuid):
            return ""
        self._note_pressure()
        last = max((self.pressed.get(card.uuid, -HOUR) for card in running.cards), default=-HOUR)
        return "no device of it is pressed" if self.world.now - last > _KNOWN_SECONDS else ""

    def _logs(self) -> None:
        """Reports an error of the agents' code that an agent has caught while it judged one item.

        Hostile values of a tenant may cause such an error.
        """
        lines, self.read = self.world.timeline.lines[self.read :], len(self.world.timeline.lines)
        if self.world.timeline.seen["plan: hostile"] or self.world.timeline.seen["plan: hostile_probe"]:
            return
        for line in lines:
            if line.who not in _NOT_AGENTS and _MISTAKE.search(line.what):
                self.violations.add("an agent's code is wrong", f"{line.who} logs {line.what}", line.who)

    # States

    def look(self) -> None:
        for exporter in self.system.exporters.values():
            exporter.note_silence()
        self._note_pressure()
        self._acts()
        self._note_gates()
        self._gates()
        self._journal()
        self._reconcile()
        for node, exporter in self.system.exporters.items():
            self._page(node, exporter)
        self._extender_page()
        self._logs()

    def _note_pressure(self) -> None:
        for card in self.system.cards():
            if card.free_mib < self.system.pools[card.node].floor_mib or self.system.scheduler.waiting:
                self.pressed[card.uuid] = self.world.now

    def _acts(self) -> None:
        for (reason, name), since in [*self.untold.items()]:
            gate = self.system.gates[name]
            if not self._is_sound(GATE) or self.violations.is_hidden(gate.namespace):
                del self.untold[reason, name]
            elif self.world.now - since > _TOLD_SECONDS:
                del self.untold[reason, name]
                self.violations.add("act without an Event", f"the gate scaled {name}, and {reason} is missing")

    def _is_sound(self, agent: str) -> bool:
        server = self.system.server
        recent = self.world.now - server.failed.get(agent, -HOUR) < _FAULT_SECONDS
        return not recent and not server.is_faulty and self.violations.up(*(each.name for each in self.system.workers))

    def _note_gates(self) -> None:
        for name, gate in self.system.gates.items():
            if name in self.system.foreign:
                self.held[name, names.EVENT_GATE_LEFT_ALONE] = self.world.now
            if self.system.is_unreadable(gate):
                self.held[name, names.EVENT_GATE_UNANSWERED] = self.world.now

    def _gates(self) -> None:
        for name, gate in self.system.gates.items():
            sound = self._is_sound(GATE) and not self.violations.is_hidden(gate.namespace)
            unread = sound and self.system.is_unreadable(gate)
            self._silence(names.EVENT_GATE_UNANSWERED, name, unread)
            self._silence(names.EVENT_GATE_WAITS, name, sound and not unread and self._waits(gate, name))
            self._silence(names.EVENT_GATE_LEFT_ALONE, name, sound and name in self.system.foreign)

    def _waits(self, gate: GateConfig, name: str) -> bool:
        if (
            name in self.system.foreign
            or not hasattr(gate.demand, "url")
            or not self.system.demanded(gate)
            or self.system.pods_of(name)
        ):
            return False
        if self.world.now - self.scaled.get((name, 0), -HOUR) < gate.cool_down_seconds + _KNOWN_SECONDS:
            return False
        pool = self.system.pool_of(gate)
        cards = self.system.cards_of(pool)
        sound = all(self.violations.up(card.node, card.uuid) for card in cards)
        return bool(cards) and sound and all(card.free_mib < pool.floor_mib + gate.need_mib for card in cards)

    def silent_pressure(self, card: Card, offenders: Sequence[RunningPod], *, little: bool, limited: bool) -> None:
        pods = ", ".join(each.workload.name for each in offenders)
        for reason, is_bad in ((names.EVENT_TOO_LITTLE, little), (names.EVENT_CAPPED, limited)):
            sound = is_bad and bool(offenders) and self._is_sound(WATCHDOG)
            text = f"{card.node} has no Event {reason}, {card.uuid}: {pods} stay"
            recently = self.world.now - self.told.get((reason, card.node), -HOUR) < _AGAIN_SECONDS
            key = f"{reason} {card.uuid}"
            self.violations.held("state without an Event", key, sound and not recently, _PRESSED_SECONDS, text)

    def _silence(self, reason: str, name: str, is_bad: bool) -> None:
        recently = self.world.now - self.told.get((reason, name), -HOUR) < _AGAIN_SECONDS
        text, key = f"{name} has no Event {reason}", f"{reason} {name}"
        self.violations.held("state without an Event", key, is_bad and not recently, _SILENT_SECONDS, text)

    # Journals and passes

    def _journal(self) -> None:
        if not self._is_sound(WATCHDOG) or self.system.clocks_changed_at + HOUR > self.world.now > HOUR:
            self.violations.held("journal is wrong", "", False, 0.0, "")
            return
        data = self.system.server.objects.get(_JOURNAL, {}).get("data") or {}
        entries = json.loads(data.get(names.JOURNAL_KEY, "{}")).get("recycled", [])
        written = {uid for each in entries for uid in each["pods"]}
        now = self.world.now
        real = {uid for at, uid, _ in self.recycled}
        lacking = {uid for at, uid, _ in self.recycled if now - at < HOUR - 60.0} - written
        bad = lacking or {uid for uid in written - real if uid in self._running()}
        text = f"the watchdog's journal has {sorted(written)}, and {sorted(real)} were recycled"
        self.violations.held("journal is wrong", "", bool(bad), _WRITTEN_SECONDS, text)

    def _running(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.system.server.pods.values()}

    def _reconcile(self) -> None:
        system, key = self.system, self.system.stack.ledger.names.gpumem
        sound = self._is_sound(RECONCILE) and not system.ledger_deleted()
        for name, pool in system.pools.items() if sound else ():
            machine, node = system.hardware.machines[name], system.server.nodes.get(name)
            right = node is not None and pool.matches(node["metadata"]["labels"])
            shown = pool.shown_mib([card.total_mib for card in machine.cards])
            sound = sound and right and node is not None and advertised(node, key) == shown
        bad = sound and self.world.now - system.invariants.agents.failed_at.get(RECONCILE, -HOUR) < _AGAIN_SECONDS
        self.violations.held(
            "reconcile reports a problem without one", "", bad, _SILENT_SECONDS, "no node has a problem"
        )

    # Metrics

    def _page(self, node: str, exporter: FaultyExporter) -> None:
        if self.world.now < self.pages_at.get(node, 0.0):
            return
        self.pages_at[node] = self.world.now + _PAGE_SECONDS
        ledger, found = self.system.stack.ledger, self.system.server.nodes.get(node)
        pool = self.system.pools[node]
        is_own = found is not None and pool.matches(found["metadata"]["labels"]) and exporter.selected
        sound = self._is_sound(f"exporter@{node}") and self._is_sound(WATCHDOG) and self.violations.up(node)
        if not sound or not is_own or self.system.ledger_deleted() or exporter.trouble or exporter.machine.failing:
            self.violations.held("metrics are wrong", node, False, 0.0, "")
            return
        series = _series(exporter.gauge.metrics()[1])
        wrong = [
            name
            for name, wanted in (
                (names.METRIC_POOL_FLOOR, {(pool.name,): pool.floor_mib * MIB}),
                (names.METRIC_POOL_ADVERTISED, {(pool.name,): pool.advertised_mib * MIB}),
                (names.METRIC_POOL_PROMISED, {(pool.name,): ledger.promised_mib(pool.name) * MIB}),
                (names.METRIC_SEAT, self._seats(pool)),
                (names.METRIC_TENANT_RECYCLES, self._recycles()),
                (names.METRIC_POD_DECLARED, self._declared(node)),
            )
            if _values(series, name) != wanted
        ]
        text = f"{node}: {[(name, _values(series, name)) for name in wrong]}"
        self.violations.held("metrics are wrong", node, bool(wrong), _PAGE_SECONDS - 1.0, text)

    def _extender_page(self) -> None:
        """Compares the page of the leading extender with docs/reference/metrics.md and with the bound pods."""
        extender, name = self.system.extender, "extender's metrics are wrong"
        if self.world.now < self.pages_at.get("extender", 0.0):
            return
        self.pages_at["extender"] = self.world.now + _PAGE_SECONDS
        if not extender.alive or not self._is_sound("extender") or self.system.ledger_deleted():
            self.violations.held(name, "page", False, 0.0, "")
            return
        page = extender.extender.status_handler.answer(HttpRequest("GET", "/metrics")).body.decode()
        series, wrong = _series(page), []
        if lacking := _documented() - {*_TYPED.findall(page)}:
            wrong.append(f"it lacks {sorted(lacking)}")
        for gauge, least in ((names.METRIC_EXTENDER_LEADING, 1), (names.METRIC_EXTENDER_READY, 1)):
            if _values(series, gauge) != {(): least}:
                wrong.append(f"{gauge} is {_values(series, gauge)}")
        if not any(_values(series, names.METRIC_EXTENDER_RESERVATIONS).values()):
            shown = {uuid: mib for (_, _, uuid), mib in _values(series, names.METRIC_EXTENDER_ALLOCATED).items()}
            held = (self.system.invariants.promised(node) for node in self.system.hardware.machines)
            real = {uuid: mib * MIB for each in held for uuid, mib in each.items()}
            wrong += [
                f"{uuid} holds {mib}, not {real.get(uuid, 0)}"
                for uuid, mib in shown.items()
                if mib != real.get(uuid, 0)
            ]
        self.violations.held(name, "page", bool(wrong), _PAGE_SECONDS - 1.0, "; ".join(wrong))

    def _seats(self, pool: Pool) -> dict[tuple[str, ...], float]:
        seats = self.system.stack.ledger.seats_in(pool.name)
        return {(pool.name, seat.name, seat.tenant): seat.total_mib * MIB for seat in seats}

    def _recycles(self) -> dict[tuple[str, ...], float]:
        data = self.system.server.objects.get(_JOURNAL, {}).get("data") or {}
        entries = json.loads(data.get(names.JOURNAL_KEY, "{}")).get("recycled", [])
        now = self.system.server.time()
        recent = (each for each in entries if (now - datetime.fromisoformat(each["at"])).total_seconds() < HOUR)
        return {(name,): float(number) for name, number in Counter(e["workload"].split("/")[0] for e in recent).items()}

    def _declared(self, node: str) -> dict[tuple[str, ...], float]:
        key = self.system.stack.ledger.names.gpumem
        there = (pod for pod in self.system.server.pods.values() if pod["spec"].get("nodeName") == node)
        running = (pod for pod in there if pod["status"].get("phase") not in ("Succeeded", "Failed"))
        return {
            tuple(pod["metadata"][field] for field in ("namespace", "name", "uid")): mib * MIB
            for pod in running
            if (mib := gpumem_of(pod, key))
        }


@cache
def _documented() -> frozenset[str]:
    """Returns the metrics of the extender in the reference that have a series even without nodes and seats."""
    _, _, section = _REFERENCE.read_text().partition("## Scheduler extender")
    rows = re.findall(r"^\| `(\w+)` \| \w+ \|([^|]*)\|", section.partition("\n## ")[0], re.MULTILINE)
    return frozenset(name for name, labels in rows if not re.search("`(node|seat|kind)`", labels))


def _series(text: str) -> Sequence[_Series]:
    return [
        (name, dict(re.findall(r'(\w+)="([^"]*)"', labels or "")), float(value))
        for name, labels, value in _SAMPLE.findall(text)
    ]


def _values(series: Sequence[_Series], name: str) -> dict[tuple[str, ...], float]:
    return {tuple(labels[key] for key in sorted(labels)): value for each, labels, value in series if each == name}
