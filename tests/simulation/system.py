"""The whole: nodes, tenants, kubelets, the scheduler, the agents, and what goes wrong by a plan."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

from agents.gate.config import GateConfig, declared
from agents.gate.probes import Window
from simulation import agents as running
from simulation.agents import CronAgent, Exporter, ExtenderPod, Gate, Probe, Reconcile, Watchdog
from simulation.api import Server
from simulation.devices import Card, Hardware, Machine, machine
from simulation.kubelet import Kubelets
from simulation.kueue import Kueue
from simulation.scheduler import Scheduler
from simulation.tenants import ON_DEMAND, RESIDENT, STEADY, UNBUDGETED, Tenants, Workload
from simulation.world import World
from tenancy.ledger import Pool, Sharing
from tenancy.names import (
    EXPORTER,
    GATE,
    GPU,
    LABEL_NAME,
    LEDGER,
    LEDGER_KEY,
    RECONCILE,
    SCHEDULER,
    WATCHDOG,
    journal,
)
from tests.simulation.invariants import Invariants
from tests.simulation.stack import Stack, stack

SYSTEM, NODES_SPACE = "gpu-tenancy-system", "gpu-tenancy-system-nodes"
KUBELET_SECONDS = 40.0  # until a node that is silent is NotReady
EVICTION_SECONDS = 300.0  # until its pods are deleted (node.kubernetes.io/unreachable)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Nodes of the pool and what is unbudgeted there: `outside_mib` is what nobody's pod has of each device."""

    stack: str = "prod"
    nodes: int = 1
    cards: int = 1
    outside_mib: int = 450


class System:
    """A cluster as prod declares it. Within `wired` only."""

    def __init__(self, shape: Shape, dice: Random, *, jumping: bool = True) -> None:
        self.shape = shape
        self.stack: Stack = stack(shape.stack)
        self.world = World(dice, jumping=jumping)
        self.server = Server(self.world)
        self.hardware = Hardware()
        names = self.stack.ledger.names
        memory = [pool for pool in self.stack.ledger.pools if pool.sharing is Sharing.MEMORY]
        # What happens, happens in prod's t4; each other pool has its nodes and seats.
        self.pool: Pool = next(pool for pool in memory if pool.name == "t4")
        self.pools: dict[str, Pool] = {}  # by node
        self.others = [pool for pool in memory if pool is not self.pool]
        self.tenants = Tenants(self.world, self.server, names, self.stack.quotas)
        self.kubelets = Kubelets(self.world, self.server, self.hardware, self.tenants, names)
        quota_mib = self.stack.ledger.quota_mib(self.pool.name)
        self.kueue = Kueue(self.world, self.server, self.tenants, quota_mib, self.pool.node_selector)
        self.scheduler = Scheduler(self.world, self.server, self.hardware, names)
        self.gates: dict[str, GateConfig] = {
            gate.deployment: gate for gate in declared(self.stack.environ[GATE]["GATES"])
        }
        self.probes = {urlsplit(g.demand.url).netloc: Probe() for g in self.gates.values() if hasattr(g.demand, "url")}
        self.invariants = Invariants(self)
        self.workers = [Machine(name=f"worker-{n}", cards=(), labels={}) for n in (1, 2)]
        self._nodes()
        self._objects()
        self._workloads()
        self.exporters = {
            name: Exporter(machine=each, world=self.world, server=self.server)
            for name, each in self.hardware.machines.items()
        }
        for name, exporter in self.exporters.items():
            self._exporter_pod(name, exporter.address)
        self.extender = ExtenderPod(
            world=self.world,
            server=self.server,
            environ=self.stack.environ[SCHEDULER],
            violated=self.invariants.violated,
        )
        self.scheduler.verb = self.extender.verb
        self.crons: dict[str, CronAgent] = {
            name: kind(
                name=name,
                world=self.world,
                server=self.server,
                environ=self.stack.environ[name],
                overlaps=self.stack.overlaps[name],
                hosts=self.workers,
                violated=self.invariants.violated,
            )
            for name, kind in ((RECONCILE, Reconcile), (WATCHDOG, Watchdog), (GATE, Gate))
        }
        self.twins: list[CronAgent] = []
        self.world.resume = self._resume
        self.world.tense = self.invariants.tense
        self.world.settled = self._settled
        self.world.counting = self.invariants.counting
        self.world.before_jump = self.invariants.before_jump
        self._windows()

    # What there is

    def _nodes(self) -> None:
        for number in range(1, self.shape.nodes + 1):
            name = f"k8s-node{number}"
            self.hardware.machines[name] = machine(
                name, self.shape.cards, self.pool.node_selector, self.shape.outside_mib
            )
            self.register(self.hardware.machines[name])
            self.pools[name] = self.pool
        for pool in self.others:
            for number in range(pool.nodes):
                name = f"{pool.name}-{number}"
                self.hardware.machines[name] = machine(name, pool.device_count, pool.node_selector)
                self.register(self.hardware.machines[name])
                self.pools[name] = pool
        for worker in self.workers:
            self.register(worker)

    def register(self, each: Machine) -> None:
        """As the kubelet does it: without what reconcile wrote."""
        held = {"cpu": "16", **({GPU: "100"} if each.cards else {})}
        self.server.put_node(
            {
                "kind": "Node",
                "metadata": {"name": each.name, "uid": f"uid-{each.name}", "labels": dict(each.labels)},
                "status": {"capacity": held, "allocatable": dict(held)},
            }
        )

    def _objects(self) -> None:
        spaces = f"/api/v1/namespaces/{SYSTEM}/configmaps"
        finalizer = self.stack.ledger.names.capacity_finalizer
        self.server.put(
            f"{spaces}/{LEDGER}",
            {
                "kind": "ConfigMap",
                "metadata": {"name": LEDGER, "namespace": SYSTEM, "finalizers": [finalizer]},
                "data": {LEDGER_KEY: self.stack.ledger_text},
            },
        )
        for agent in (RECONCILE, WATCHDOG, GATE):
            name = journal(agent)
            self.server.put(f"{spaces}/{name}", {"kind": "ConfigMap", "metadata": {"name": name, "namespace": SYSTEM}})
        claim = f"/apis/resource.k8s.io/v1/namespaces/{SYSTEM}/resourceclaims/{SCHEDULER}"
        self.server.put(claim, {"kind": "ResourceClaim", "metadata": {"name": SCHEDULER, "namespace": SYSTEM}})

    def _exporter_pod(self, node: str, address: str) -> None:
        self.server.put_pod(
            {
                "kind": "Pod",
                "metadata": {
                    "name": f"exporter-{node}",
                    "namespace": NODES_SPACE,
                    "uid": f"uid-exporter-{node}",
                    "labels": {LABEL_NAME: EXPORTER},
                    "creationTimestamp": "2026-05-01T00:00:00Z",
                },
                "spec": {"nodeName": node, "containers": [{"name": "exporter", "resources": {"limits": {}}}]},
                "status": {"phase": "Running", "podIP": address},
            }
        )

    def select_exporter(self, node: str) -> None:
        """As the DaemonSet's controller does it: a pod where the node has its pool's labels, and none elsewhere."""
        exporter = self.exporters[node]
        selected = self.pools[node].matches(self.server.nodes[node]["metadata"]["labels"])
        if exporter.selected and not selected:
            self.server.remove_pod((NODES_SPACE, f"exporter-{node}"))
        elif selected and not exporter.selected:
            self._exporter_pod(node, exporter.address)
        exporter.selected = selected

    def _workloads(self) -> None:
        for seat in self.stack.ledger.seats:
            steady = STEADY.get(seat.name, seat.gpumem_mib * 3 // 4)
            devices = int(self.shape.cards > 1 and seat.name == "llama-swap")
            workload = Workload(seat.name, seat.tenant, RESIDENT, steady, seat.gpumem_mib, seat.replicas, devices)
            pool = self.stack.ledger.pool(seat.pool)
            workload.selector = dict(pool.node_selector) if pool and self.others else {}
            self.tenants.add(workload)
        for gate in self.gates.values():
            self.tenants.add(Workload(gate.deployment, gate.namespace, ON_DEMAND, gate.need_mib, priority=600_000))
        for each in self.stack.ledger.unbudgeted:
            self.tenants.add(Workload(each.name, each.tenant, UNBUDGETED, each.measured_mib))

    def _windows(self) -> None:
        """A gate's window begins and ends without anybody's event."""
        windows = [gate.demand for gate in self.gates.values() if isinstance(gate.demand, Window)]

        def inside() -> list[bool]:
            return [window.answer(self.world.time_of_day(), lambda url: b"").wanted for window in windows]

        def hour(before: list[bool]) -> None:
            now = inside()
            if now != before:
                self.world.stir()
            self.world.after(3600.0, lambda: hour(now))

        if windows:
            self.world.at(3600.0, lambda: hour(inside()))

    def _settled(self, since: float) -> bool:
        return all(agent.settled(since) for agent in self.crons.values())

    # What happens

    def _resume(self) -> None:
        for exporter in self.exporters.values():
            exporter.resume()
        self.extender.resume()
        for agent in (*self.crons.values(), *self.twins):
            agent.resume()
        self.invariants.resume()

    def get(self, url: str) -> tuple[int, str]:
        """HTTP in the cluster."""
        split = urlsplit(url)
        probe = self.probes.get(split.netloc)
        if probe is not None:
            return probe.status, f'{{"pending": {probe.pending}}}'
        for exporter in self.exporters.values():
            if exporter.address == split.hostname:
                return exporter.answer()
        return 404, "nobody"

    def run(self, until: float) -> None:
        if not self.world.now:
            self._resume()
        self.world.run(until)

    def workload(self, name: str) -> Workload:
        return self.tenants.workloads[name]

    def grow(self, workload: Workload) -> None:
        """Its processes look again at what they want."""
        for each in self.kubelets.of(workload):
            if each.up and each.loaded:
                self.kubelets.settle(each)

    def cards(self) -> list[Card]:
        return self.hardware.cards()

    def demanded(self, gate: GateConfig) -> bool:
        if hasattr(gate.demand, "url"):
            return self.probes[urlsplit(gate.demand.url).netloc].pending > 0
        return gate.demand.answer(self.world.time_of_day(), lambda url: b"").wanted

    def pods_of(self, name: str) -> int:
        return self.tenants.wanted(self.workload(name))


@contextmanager
def system(shape: Shape, dice: Random, *, jumping: bool = True, remembering: bool = True) -> Iterator[System]:
    """A system whose agents can reach it."""
    hold: list[System] = []

    def get(url: str) -> tuple[int, str]:
        return hold[0].get(url)

    with running.wired(get, remembering=remembering):
        hold.append(System(shape, dice, jumping=jumping))
        try:
            yield hold[0]
        finally:
            hold[0].world.end()
