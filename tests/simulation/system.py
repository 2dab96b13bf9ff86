"""A cluster as prod declares it, held to the promises; what goes wrong there is a plan's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

from agents.gate.config import GateConfig
from simulation.agents import Probe, wired
from simulation.cluster import NODES_SPACE, SYSTEM, Cluster
from simulation.devices import Machine, machine
from simulation.kueue import Kueue
from simulation.tenants import ON_DEMAND, RESIDENT, STEADY, UNBUDGETED, Workload
from tenancy.ledger import Pool, Sharing
from tests.simulation.invariants import Invariants
from tests.simulation.stack import stack

KUBELET_SECONDS = 40.0  # until a node that is silent is NotReady
EVICTION_SECONDS = 300.0  # until its pods are deleted (node.kubernetes.io/unreachable)

__all__ = ["SYSTEM", "Shape", "System", "system"]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Nodes of the pool and what is unbudgeted there: `outside_mib` is what nobody's pod has of each device."""

    stack: str = "prod"
    nodes: int = 1
    cards: int = 1
    outside_mib: int = 450


class System(Cluster):
    """Within `wired` only."""

    def __init__(self, shape: Shape, dice: Random, *, jumping: bool = True) -> None:
        self.shape = shape
        super().__init__(stack(shape.stack), dice, jumping=jumping)
        self.world.tense = self.invariants.tense
        self.world.counting = self.invariants.counting
        self.world.before_jump = self.invariants.before_jump

    def prepare(self) -> None:
        memory = [pool for pool in self.stack.ledger.pools if pool.sharing is Sharing.MEMORY]
        # What happens, happens in prod's t4; each other pool has its nodes and seats.
        self.pool: Pool = next(pool for pool in memory if pool.name == "t4")
        self.others = [pool for pool in memory if pool is not self.pool]
        quota_mib = self.stack.ledger.quota_mib(self.pool.name)
        self.kueue = Kueue(self.world, self.server, self.tenants, quota_mib, self.pool.node_selector)
        self.probes = {urlsplit(g.demand.url).netloc: Probe() for g in self.gates.values() if hasattr(g.demand, "url")}
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
        self.invariants.violated(name, text)

    def resume(self) -> None:
        super().resume()
        self.invariants.resume()

    def get(self, url: str) -> tuple[int, str]:
        probe = self.probes.get(urlsplit(url).netloc)
        if probe is not None:
            return probe.status, f'{{"pending": {probe.pending}}}'
        return super().get(url)

    def select_exporter(self, node: str) -> None:
        """As the DaemonSet's controller does it: a pod where the node has its pool's labels, and none elsewhere."""
        exporter = self.exporters[node]
        selected = self.pools[node].matches(self.server.nodes[node]["metadata"]["labels"])
        if exporter.selected and not selected:
            self.server.remove_pod((NODES_SPACE, f"exporter-{node}"))
        elif selected and not exporter.selected:
            self.add_exporter_pod(node, exporter.address)
        exporter.selected = selected

    def demanded(self, gate: GateConfig) -> bool:
        if hasattr(gate.demand, "url"):
            return self.probes[urlsplit(gate.demand.url).netloc].pending > 0
        return gate.demand.answer(self.world.time_of_day(), lambda url: b"").wanted


@contextmanager
def system(shape: Shape, dice: Random, *, jumping: bool = True, remembering: bool = True) -> Iterator[System]:
    """A system whose agents can reach it."""
    hold: list[System] = []

    def get(url: str) -> tuple[int, str]:
        return hold[0].get(url)

    with wired(get, remembering=remembering):
        hold.append(System(shape, dice, jumping=jumping))
        try:
            yield hold[0]
        finally:
            hold[0].world.end()
