"""The simulated cluster of prod's stack, with checks of the promises. A plan adds faults."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

from agents.gate.config import GateConfig
from simulation.cluster import NODE_AGENTS, Cluster
from simulation.devices import Machine, machine
from simulation.tenants import ON_DEMAND, RESIDENT, STEADY, UNBUDGETED, Workload
from tenancy.choices import Sharing
from tenancy.ledger import Pool
from tests.simulation.invariants import Invariants
from tests.simulation.kueue import Kueue
from tests.simulation.network import FaultyExporter, FaultyServer
from tests.simulation.stack import stack
from tests.simulation.violations import Violations

KUBELET_SECONDS = 40.0  # The time until a failed node is NotReady.
EVICTION_SECONDS = 300.0  # The time until a failed node's pods are deleted (node.kubernetes.io/unreachable).


@dataclass
class Probe:
    """The number of pending requests of an on-demand workload, which its HTTP probe reads."""

    pending: int = 0


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The kind of stack, and the nodes and devices of the pool t4. Processes outside pods use `outside_mib` of each
    device.
    """

    stack: str = "prod"
    nodes: int = 1
    cards: int = 1
    outside_mib: int = 450


class System(Cluster):
    server: FaultyServer
    exporters: dict[str, FaultyExporter]
    server_type = FaultyServer
    exporter_type = FaultyExporter

    def __init__(self, shape: Shape, dice: Random, *, jumping: bool = True) -> None:
        self.shape = shape
        super().__init__(stack(shape.stack), dice, jumping=jumping)

    def prepare(self) -> None:
        memory = [pool for pool in self.stack.ledger.pools if pool.sharing is Sharing.MEMORY]
        # The plan concerns only prod's pool t4. The nodes and seats of the other pools exist too.
        self.pool: Pool = next(pool for pool in memory if pool.name == "t4")
        self.others = [pool for pool in memory if pool is not self.pool]
        quota_mib = self.stack.ledger.quota_mib(self.pool.name)
        self.kueue = Kueue(self.world, self.server, self.tenants, quota_mib, self.pool.node_selector)
        self.probes = {urlsplit(g.demand.url).netloc: Probe() for g in self.gates.values() if hasattr(g.demand, "url")}
        self.violations = Violations(self.world)
        self.invariants = Invariants(self)

    def machines(self) -> Iterator[tuple[Machine, Pool]]:
        for number in range(1, self.shape.nodes + 1):
            name = f"k8s-node{number}"
            yield machine(name, self.shape.cards, self.pool.node_selector, self.shape.outside_mib), self.pool
        for pool in self.others:
            for number in range(pool.nodes):
                yield machine(f"{pool.name}-{number}", pool.device_count, pool.node_selector), pool

    def workloads(self) -> Iterator[Workload]:
        for seat in self.stack.ledger.seats:
            steady = STEADY.get(seat.name, seat.gpumem_mib * 3 // 4)
            devices = int(self.shape.cards > 1 and seat.name == "llama-swap")
            workload = Workload(seat.name, seat.tenant, RESIDENT, steady, seat.gpumem_mib, seat.replicas, devices)
            pool = self.stack.ledger.pool(seat.pool)
            workload.selector = dict(pool.node_selector) if pool and self.others else {}
            yield workload
        for gate in self.gates.values():
            yield Workload(gate.deployment, gate.namespace, ON_DEMAND, gate.need_mib, priority=600_000)
        for each in self.stack.ledger.unbudgeted:
            yield Workload(each.name, each.tenant, UNBUDGETED, each.measured_mib)

    def violated(self, name: str, text: str) -> None:
        self.violations.add(name, text)

    def resume(self) -> None:
        super().resume()
        self.invariants.resume()

    def tense(self) -> bool:
        return self.invariants.tense()

    def counting(self) -> bool:
        return self.violations.counting()

    def before_jump(self, until: float) -> None:
        self.invariants.before_jump(until)

    def fetch(self, url: str) -> bytes:
        probe = self.probes.get(urlsplit(url).netloc)
        return super().fetch(url) if probe is None else b'{"pending": %d}' % probe.pending

    def select_exporter(self, node: str) -> None:
        """Creates or deletes the exporter's pod, as the DaemonSet's controller would.

        The node has a pod while the node has its pool's labels.
        """
        exporter = self.exporters[node]
        selected = self.pools[node].matches(self.server.nodes[node]["metadata"]["labels"])
        if exporter.selected and not selected:
            self.server.remove_pod((NODE_AGENTS, f"exporter-{node}"))
        elif selected and not exporter.selected:
            self.add_exporter_pod(node, exporter.address)
        exporter.selected = selected

    def seen_until(self, agent: str) -> float:
        """Returns the start of the agent's oldest current pass. The agent's passes may not know later events."""
        agents = (each for each in (*self.crons.values(), *self.twins) if each.name == agent)
        return min((began for each in agents for began in each.busy.values()), default=self.world.now)

    def demanded(self, gate: GateConfig) -> bool:
        if hasattr(gate.demand, "url"):
            return self.probes[urlsplit(gate.demand.url).netloc].pending > 0
        return gate.demand.answer(self.world.time_of_day(), lambda url: b"").wanted


@contextmanager
def system(shape: Shape, dice: Random, *, jumping: bool = True) -> Iterator[System]:
    """Yields a System, and ends its threads afterwards."""
    found = System(shape, dice, jumping=jumping)
    try:
        yield found
    finally:
        found.world.end()
