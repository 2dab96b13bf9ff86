"""Checks that each agent acts only for a good reason, and remembers its earlier acts. Units: MiB, seconds."""

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from agents.reconcile.main import WRITES
from agents.runtime.clock import APART_SECONDS
from agents.runtime.errors import AgentError
from agents.telemetry.reading import Reading
from agents.telemetry.sampling import IncompletePassError
from tenancy.names import EVENT_RECYCLED, GATE, POD_TEMPLATE_HASH, RECONCILE, WATCHDOG
from tenancy.units import MIB
from tests.simulation.model.api import Object
from tests.simulation.model.cron import CronAgent
from tests.simulation.model.scheduler import advertised
from tests.simulation.model.tenants import RESIDENT, Workload
from tests.simulation.network import FaultyExporter

if TYPE_CHECKING:
    from tests.simulation.system import System

HOUR = 3600.0
# A reading is valid for 30 s, and a repeated reading for another 30 s.
UNTRUSTED_SECONDS = 65.0
_REPEATED_SECONDS = 12.0  # A run may repeat the recycle of another run within this time.
_STALE_SECONDS = 15.5
_TOLD_SECONDS = 45.0  # The longest time between a recycle and the Event about the recycle.
# After a failed request, an agent may act twice or forget an act.
_FAULT_SECONDS = 130.0
_VAIN_WRITES = 8  # An agent reads an object again before it repeats a write that the API server refused.
_LONGEST_NAME = 1024
_LEDGER_SECONDS = 150.0  # The longest time that reconcile needs to remove the capacity of all nodes.


class AgentPromises:
    def __init__(self, system: "System") -> None:
        self.system = system
        self.world = system.world
        self.violations = system.violations
        # Maps each workload to the times and controllers of its recycles, with pod UIDs as keys.
        self.recycled: dict[str, dict[str, tuple[float, str]]] = {}
        # Maps each node to the time of reconcile's last write.
        self.written_at: dict[str, float] = {}
        self.writes: dict[tuple[float, str], int] = {}
        self.untold: dict[tuple[str, str], float] = {}
        system.server.told.append(self._told)

    # Evidence

    def acted(self, agent: str, nodes: set[str]) -> None:
        passing = [each for each in self._all(agent) if each.busy]
        if passing and all(self._had_a_wrong_clock(each) for each in passing):
            text = f"{agent} acts while its node's clock differs from the API server's by more than {APART_SECONDS} s"
            self.violations.add("acted with a wrong clock", text)
        for name in sorted(nodes):
            since = self.system.exporters[name].untrusted_since
            if since is not None and self.world.now - since > UNTRUSTED_SECONDS:
                text = f"{agent} acts on {name}, whose telemetry is wrong for {self.world.now - since:.0f} s"
                self.violations.add("acted without telemetry", text)

    def listed(self, agent: str) -> None:
        if self.system.server.listed.get(agent, -HOUR) < self.system.seen_until(agent):
            self.violations.add("acted without a list", f"{agent} acts on pods that it has not listed in this pass")

    def node_written(self, name: str) -> None:
        self.written_at[name] = self.world.now
        if self.system.server.who != RECONCILE or not any(each.busy for each in self._all(RECONCILE)):
            return
        began = self.system.seen_until(RECONCILE)
        self.writes = {key: number for key, number in self.writes.items() if key[0] == began}
        self.writes[began, name] = self.writes.get((began, name), 0) + 1
        if self.writes[began, name] > WRITES:
            self.violations.add("too many writes", f"a pass of reconcile wrote {name} {self.writes[began, name]} times")

    def reconcile_follows(self, node: str) -> bool:
        if self.world.now - self.written_at.get(node, -HOUR) < _FAULT_SECONDS:
            return False
        server = self.system.server
        calm = not server.is_faulty and not self._is_troubled(RECONCILE) and self._workers_run()
        return calm and not self.system.ledger_deleted() and self.world.now - server.ended_at > _FAULT_SECONDS

    def _all(self, agent: str) -> Iterator[CronAgent]:
        return (each for each in (*self.system.crons.values(), *self.system.twins) if each.name == agent)

    def _had_a_wrong_clock(self, agent: CronAgent) -> bool:
        if self.system.server.undated:  # nothing shows the agent that its clock is wrong
            return False
        if agent.host is None or abs(agent.host.ahead - self.system.server.ahead) <= APART_SECONDS + 1:
            return False
        return min(agent.busy.values()) > self.system.clocks_changed_at

    def served(self, exporter: FaultyExporter, found: Reading) -> None:
        if exporter.trouble:
            return
        node = exporter.machine.name
        age_seconds = self.world.now - exporter.scanned_at
        if age_seconds > _STALE_SECONDS:
            text = f"the exporter of {node} serves a reading that is {age_seconds:.0f} s old"
            self.violations.add("stale reading served", text, node)
        scan = exporter.scan
        free = {each.device.uuid: each.device.free_bytes for each in scan.occupancies}
        shown = {device.uuid: device.free_bytes for device in found.devices}
        if any(abs(free[uuid] - mib) > MIB for uuid, mib in shown.items()):
            self.violations.add("wrong reading served", f"{node}: {shown} instead of {free}", node)
        if exporter.machine.unknown:
            return
        uids = {pid: container.pod_uid for pid, container in exporter.machine.containers.items()}
        used: dict[tuple[str, str], int] = {}
        for each in scan.occupancies:
            for process in each.processes:
                key = (each.device.uuid, uids.get(process.pid, ""))
                used[key] = used.get(key, 0) + (process.used_bytes or 0)
        for use in found.uses:
            if abs(used.get((use.uuid, use.uid), 0) - use.used_bytes) > MIB:
                text = f"{node}: {use.pod} uses {used.get((use.uuid, use.uid), 0)} of {use.uuid}, not {use.used_bytes}"
                self.violations.add("wrong reading served", text, node)

    # The watchdog's memory

    def _is_troubled(self, who: str) -> bool:
        recent = self.world.now - self.system.server.failed.get(who, -HOUR) < _FAULT_SECONDS
        return recent or not self.violations.up(*(worker.name for worker in self.system.workers))

    def evicted(self, pod: Object, workload: Workload) -> None:
        metadata = pod["metadata"]
        # All pods of a queued Job are recycled together, and have one Event.
        if self.system.server.who == WATCHDOG and workload.kind == RESIDENT:
            self.untold[metadata["namespace"], metadata["name"]] = self.world.now
        times = self.recycled.setdefault(workload.name, {})
        if "deletionTimestamp" in metadata or metadata["uid"] in times or workload.kind != RESIDENT:
            return
        limits, now = self.system.stack.environ[WATCHDOG], self.world.now
        # the cool-down belongs to the controller of the pod
        same = (at for at, controller in times.values() if controller == _controller(pod))
        last = max((at for at in same if now - at > _REPEATED_SECONDS), default=-HOUR)
        if now - last < int(limits["COOL_DOWN_SECONDS"]) - 30:
            self.violations.add("recycled too soon", f"{workload.name} was recycled {now - last:.0f} s before")
        mine = [each.name for each in self.system.tenants.workloads.values() if each.namespace == workload.namespace]
        hour = sum(now - at < HOUR - 60 for name in mine for at, _ in self.recycled.get(name, {}).values())
        if hour >= int(limits["EVICTIONS_PER_HOUR"]):
            self.violations.add("recycled too often", f"{workload.namespace} had {hour} recycles within an hour")
        running = self.system.kubelets.running.get(metadata["uid"])
        if running is not None and now - running.started < int(limits["MINIMUM_AGE_SECONDS"]) - 3:
            text = f"{workload.name} is {now - running.started:.0f} s old"
            self.violations.add("recycled too young", text)
        if running is not None and self.system.pools[running.machine.name].assumed:
            text = f"{workload.name} on {running.machine.name}, whose numbers are assumed"
            self.violations.add("recycled by assumed numbers", text)
        times[metadata["uid"]] = now, _controller(pod)
        self._sampled(pod, workload)

    def _sampled(self, pod: Object, workload: Workload) -> None:
        """Checks that two readings in a row showed a device of the recycled pod below its floor.

        A recycle for a waiting seat needs no device below its floor.
        """
        system, running = self.system, self.system.kubelets.running.get(pod["metadata"]["uid"])
        if running is None or self.world.now - system.invariants.waited_at <= UNTRUSTED_SECONDS:
            return
        node, floor_mib = running.machine.name, system.pools[running.machine.name].floor_mib
        for card in running.cards:
            low = [free.get(card.uuid, floor_mib) < floor_mib for _, free in system.exporters[node].scans]
            if any(map(all, pairwise(low))):
                return
        text = f"{workload.name} on {node}, and no two readings in a row are below {floor_mib} MiB"
        self.violations.add("recycled after one reading", text)

    def _told(self, event: Object) -> None:
        about = event["regarding"]
        if event["reason"] == EVENT_RECYCLED:
            self.untold.pop((about.get("namespace", ""), about["name"]), None)

    # The ledger

    def finalized(self, found: Object) -> None:
        key = self.system.stack.ledger.names.gpumem
        left = [name for name, node in self.system.server.nodes.items() if advertised(node, key)]
        if left:
            text = f"the finalizer of {found['metadata']['name']} is gone, and {', '.join(left)} still advertises"
            self.violations.add("finalizer gone too early", text)

    # Time

    def look(self) -> None:
        server = self.system.server
        for pod, since in [*self.untold.items()]:
            if self._is_troubled(WATCHDOG) or self.violations.is_hidden(pod[0]) or not self.violations.up():
                del self.untold[pod]
            elif self.world.now - since > _TOLD_SECONDS:
                del self.untold[pod]
                self.violations.add("recycle without an Event", f"{pod[1]} was recycled, and no Event reports it")
        # The deletion itself suspends the other promises with a time limit, and must not suspend this one.
        dropped = self.world.now - server.failed.get(RECONCILE, -HOUR) < _FAULT_SECONDS
        for (who, request), number in server.vain.items():
            if number >= _VAIN_WRITES:
                self.violations.add("a refused write is repeated", f"{who} repeats {request}, which is refused")
        stays = self.system.ledger_deleted() and not server.is_faulty and not dropped
        text = "the ledger is being deleted, and its finalizer stays"
        self.violations.held("ledger stays", "", stays and self._workers_run(), _LEDGER_SECONDS, text)

    def _workers_run(self) -> bool:
        return all(worker.alive and worker.ready and not worker.ahead for worker in self.system.workers)

    def failed(self, agent: str, error: AgentError) -> None:
        server = self.system.server
        if isinstance(error, IncompletePassError) or server.is_faulty or self._is_troubled(agent):
            return
        if agent in (WATCHDOG, GATE) and self.world.now - self.system.clocks_changed_at < _FAULT_SECONDS:
            return
        self.violations.add("a pass failed without a fault", f"{agent}: {type(error).__name__}: {str(error)[:200]}")


def _controller(pod: Object) -> str:
    """Returns the names by which the watchdog knows the pod's controller, or the pod's name if they are unreadable.

    A hostile tenant may change the names.
    """
    metadata = pod["metadata"]
    owners = [f"{each.get('kind')}/{each.get('name')}" for each in metadata.get("ownerReferences") or ()]
    if not all(each.isascii() and len(each) < _LONGEST_NAME for each in owners):
        return str(metadata["name"])
    return f"{owners} {(metadata.get('labels') or {}).get(POD_TEMPLATE_HASH)}"
