"""Simulates the cluster of a stack. The promises are checked while a plan adds faults."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from urllib.parse import urlsplit

from agents.gate.config import GateConfig
from tenancy.choices import Sharing
from tenancy.ledger import Pool
from tenancy.names import LEDGER, SCHEDULER, SYSTEM_NAMESPACE
from tests.simulation.invariants import Invariants
from tests.simulation.kueue import Kueue
from tests.simulation.model.api import Object
from tests.simulation.model.cluster import NODE_AGENTS, Cluster
from tests.simulation.model.devices import Card, Machine, machine
from tests.simulation.model.extender import ExtenderPod
from tests.simulation.model.tenants import ON_DEMAND, RESIDENT, STEADY, UNBUDGETED, Workload
from tests.simulation.network import FaultyExporter, FaultyServer
from tests.simulation.stack import PROD_POOL, config, is_drawn, nodes_of, stack
from tests.simulation.violations import Violations

LEDGER_PATH = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{LEDGER}"
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/leases/{SCHEDULER}"
KUBELET_SECONDS = 40.0  # The seconds until a failed node is NotReady.
EVICTION_SECONDS = 300.0  # The seconds until the pods of a failed node are deleted (node.kubernetes.io/unreachable).


@dataclass
class Probe:
    pending: int = 0
    answer: bytes | None = None

    @property
    def body(self) -> bytes:
        return b'{"pending": %d}' % self.pending if self.answer is None else self.answer


@dataclass(frozen=True, kw_only=True)
class Shape:
    stack: str = "prod"
    nodes: int = 1
    cards: int = 1
    outside_mib: int = 450
    schedulers: int = 1


class System(Cluster):
    server: FaultyServer
    exporters: dict[str, FaultyExporter]
    server_type = FaultyServer
    exporter_type = FaultyExporter

    def __init__(self, shape: Shape, dice: Random) -> None:
        self.shape = shape
        self.schedulers = shape.schedulers
        super().__init__(stack(shape.stack), dice)
        for exporter in self.exporters.values():
            exporter.shown = self.invariants.agents.served
        for agent in self.crons.values():
            agent.failed = self.invariants.agents.failed

    def prepare(self) -> None:
        ledger = self.stack.ledger
        memory = [pool for pool in ledger.pools if pool.sharing is Sharing.MEMORY]
        self.memory_pools = {pool.name: pool for pool in sorted(memory, key=lambda pool: pool.name != PROD_POOL)}
        quota_mib = {name: ledger.quota_mib(name) for name in self.memory_pools}
        queued = max(quota_mib, key=lambda name: quota_mib[name])
        self.kueue = Kueue(
            self.world, self.server, self.tenants, quota_mib[queued], self.memory_pools[queued].node_selector
        )
        self.probes = {urlsplit(g.demand.url).netloc: Probe() for g in self.gates.values() if hasattr(g.demand, "url")}
        self.violations = Violations(self.world)
        self.invariants = Invariants(self)
        if self.schedulers > 1:
            self.server.put(LEASE_PATH, self._lease("scheduler-0"))
        self.clocks_changed_at = 0.0
        self.foreign: dict[str, float] = {}

    def machines(self) -> Iterator[tuple[Machine, Pool]]:
        own, outside_mib = is_drawn(self.shape.stack), self.shape.outside_mib
        for pool in self.memory_pools.values():
            if pool.name == PROD_POOL and not own:
                for number in range(1, self.shape.nodes + 1):
                    yield machine(f"k8s-node{number}", self.shape.cards, pool.node_selector, outside_mib), pool
                continue
            for name in nodes_of(pool):
                used = {"outside_mib": outside_mib, "total_mib": pool.memory_mib} if own else {}
                yield machine(name, pool.device_count, pool.node_selector, **used), pool

    def workloads(self) -> Iterator[Workload]:
        own, ledger = is_drawn(self.shape.stack), self.stack.ledger
        for seat in ledger.seats:
            steady = STEADY.get(seat.name, seat.gpumem_mib * 3 // 4)
            devices = int(self.shape.cards > 1 and seat.name == "llama-swap")
            devices = seat.devices_per_pod if seat.devices_per_pod > 1 else devices
            workload = Workload(seat.name, seat.tenant, RESIDENT, steady, seat.pod_mib, seat.replicas, devices)
            workload.selector = self._selector(seat.pool) if len(self.memory_pools) > 1 else {}
            workload.priority = self._priority(seat.tenant)
            self.put_budget(workload, {"app": seat.name, "track": "canary"}, {"disruptionsAllowed": 0})  # for no pod
            yield workload
        for gate in self.gates.values():
            found = Workload(gate.deployment, gate.namespace, ON_DEMAND, gate.need_mib, priority=600_000)
            found.selector = self._selector(gate.pool) if own else {}
            yield found
        for each in ledger.unbudgeted:
            found = Workload(each.name, each.tenant, UNBUDGETED, each.measured_mib)
            found.selector = self._selector(each.pool) if own else {}
            yield found
        if own:
            self.scheduler.elsewhere = self.scheduler.selects

    def put_budget(self, workload: Workload, labels: Mapping[str, str], status: Object) -> str:
        name = "-".join(labels.values())
        path = f"/apis/policy/v1/namespaces/{workload.namespace}/poddisruptionbudgets/{name}"
        budget = {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": workload.namespace},
            "spec": {"selector": {"matchLabels": dict(labels)}},
            "status": status,
        }
        self.server.put(path, budget, silent=True)
        return path

    def _selector(self, pool: str) -> dict[str, str]:
        return dict(self.memory_pools[pool].node_selector)

    def _priority(self, tenant: str) -> int:
        terms = self.stack.ledger.admission
        ranks = config(self.shape.stack)["priorities"]
        name = next((name for name, tenants in (terms.priorities if terms else {}).items() if tenant in tenants), "")
        return int(ranks[name or "gpu-workload"]["value"])

    def _lease(self, holder: str) -> Object:
        spec = {"holderIdentity": f"{holder}_sim", "renewTime": str(self.world.now), "leaseDurationSeconds": 10**8}
        return {"kind": "Lease", "metadata": {"name": SCHEDULER, "namespace": SYSTEM_NAMESPACE}, "spec": spec}

    def lead(self, extender: ExtenderPod) -> None:
        self.extender, self.scheduler.verb = extender, extender.verb
        self.server.put(LEASE_PATH, self._lease(extender.name))

    def pool_of(self, gate: GateConfig) -> Pool:
        return self.memory_pools[gate.pool]

    def cards_of(self, pool: Pool) -> list[Card]:
        nodes = self.server.nodes
        return [card for card in self.cards() if pool.matches(nodes[card.node]["metadata"]["labels"])]

    def ledger_deleted(self) -> bool:
        ledger = self.server.objects.get(LEDGER_PATH)
        return ledger is not None and "deletionTimestamp" in ledger["metadata"]

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
        return super().fetch(url) if probe is None else probe.body

    def select_exporter(self, node: str) -> None:
        exporter = self.exporters[node]
        selected = self.pools[node].matches(self.server.nodes[node]["metadata"]["labels"])
        if exporter.selected and not selected:
            self.server.remove_pod((NODE_AGENTS, f"exporter-{node}"))
        elif selected and not exporter.selected:
            self.add_exporter_pod(node, exporter.address)
        exporter.selected = selected

    def seen_until(self, agent: str) -> float:
        agents = (each for each in (*self.crons.values(), *self.twins) if each.name == agent)
        return min((began for each in agents for began in each.busy.values()), default=self.world.now)

    def is_unreadable(self, gate: GateConfig) -> bool:
        url = getattr(gate.demand, "url", "")
        probe = self.probes.get(urlsplit(url).netloc)
        return probe is not None and probe.answer is not None

    def demanded(self, gate: GateConfig) -> bool:
        if hasattr(gate.demand, "url"):
            return self.probes[urlsplit(gate.demand.url).netloc].pending > 0
        return gate.demand.answer(self.world.time_of_day(), lambda url: b"").wanted


@contextmanager
def system(shape: Shape, dice: Random) -> Iterator[System]:
    found = System(shape, dice)
    try:
        yield found
    finally:
        found.world.end()
