"""The whole: nodes, kubelets, scheduler and agents of a stack. Its workloads, and what happens, a subclass says."""

from collections.abc import Iterable
from datetime import datetime
from random import Random
from typing import NoReturn

from agents.gate.config import GateConfig, declared
from agents.gate.probes import Window
from simulation.agents import CronAgent, Exporter, ExtenderPod, Gate, Reconcile, Watchdog
from simulation.api import Server
from simulation.devices import Card, Hardware, Machine
from simulation.kubelet import Kubelets
from simulation.scheduler import Scheduler
from simulation.stack import Stack
from simulation.tenants import Tenants, Workload
from simulation.world import BEGIN, World
from tenancy.ledger import Pool
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

SYSTEM, NODES_SPACE = "gpu-tenancy-system", "gpu-tenancy-system-nodes"


class Cluster:
    """A cluster as its stack declares it. Within `wired` only."""

    def __init__(self, stack: Stack, dice: Random, *, jumping: bool = True, begin: datetime = BEGIN) -> None:
        self.stack = stack
        self.world = World(dice, jumping=jumping, begin=begin)
        self.server = Server(self.world)
        self.hardware = Hardware()
        names = stack.ledger.names
        self.pools: dict[str, Pool] = {}  # by node
        self.tenants = Tenants(self.world, self.server, names, stack.quotas)
        self.kubelets = Kubelets(self.world, self.server, self.hardware, self.tenants, names)
        self.scheduler = Scheduler(self.world, self.server, self.hardware, names)
        gates = stack.environ.get(GATE, {}).get("GATES", "[]")
        self.gates: dict[str, GateConfig] = {gate.deployment: gate for gate in declared(gates)}
        self.workers = [Machine(name=f"worker-{n}", cards=(), labels={}) for n in (1, 2)]
        self.prepare()
        for machine, pool in self.machines():
            self.hardware.machines[machine.name] = machine
            self.register(machine)
            self.pools[machine.name] = pool
        for worker in self.workers:
            self.register(worker)
        self._objects()
        for workload in self.workloads():
            self.tenants.add(workload)
        self.exporters = {
            name: Exporter(machine=each, world=self.world, server=self.server, address=_address(number))
            for number, (name, each) in enumerate(self.hardware.machines.items(), start=1)
        }
        for name, exporter in self.exporters.items():
            self.add_exporter_pod(name, exporter.address)
        self.extender = ExtenderPod(
            world=self.world, server=self.server, environ=stack.environ[SCHEDULER], violated=self.violated
        )
        self.scheduler.verb = self.extender.verb
        self.crons: dict[str, CronAgent] = {
            name: kind(
                name=name,
                world=self.world,
                server=self.server,
                environ=stack.environ[name],
                overlaps=stack.overlaps[name],
                hosts=self.workers,
                violated=self.violated,
            )
            for name, kind in ((RECONCILE, Reconcile), (WATCHDOG, Watchdog), (GATE, Gate))
            if name in stack.environ
        }
        self.twins: list[CronAgent] = []
        self.world.resume = self.resume
        self.world.settled = lambda since: all(agent.settled(since) for agent in self.crons.values())
        self._windows()

    # What a subclass says

    def prepare(self) -> None:
        """Before anything is there."""

    def machines(self) -> Iterable[tuple[Machine, Pool]]:
        """The nodes with devices, and their pools."""
        raise NotImplementedError

    def workloads(self) -> Iterable[Workload]:
        """What runs there."""
        raise NotImplementedError

    def violated(self, name: str, text: str) -> None:
        """Called with an agent's traceback."""
        raise RuntimeError(f"{name}: {text}")

    def get(self, url: str) -> tuple[int, str]:
        """HTTP in the cluster: a status and a text."""
        host = url.partition("://")[2].partition("/")[0].partition(":")[0]
        for exporter in self.exporters.values():
            if exporter.address == host:
                return exporter.answer()
        return 404, "nobody"

    # What there is

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

    def add_exporter_pod(self, node: str, address: str) -> None:
        """As the DaemonSet's controller does it."""
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

    def _windows(self) -> None:
        """A gate's window begins and ends without anybody's event."""
        windows = [gate.demand for gate in self.gates.values() if isinstance(gate.demand, Window)]

        def inside() -> list[bool]:
            return [window.answer(self.world.time_of_day(), _nothing).wanted for window in windows]

        def hour(before: list[bool]) -> None:
            now = inside()
            if now != before:
                self.world.stir()
            self.world.after(3600.0, lambda: hour(now))

        if windows:
            self.world.at(3600.0, lambda: hour(inside()))

    # What happens

    def resume(self) -> None:
        """The agents' loops take up, at the beginning and after a jump."""
        for exporter in self.exporters.values():
            exporter.resume()
        self.extender.resume()
        for agent in (*self.crons.values(), *self.twins):
            agent.resume()

    def run(self, until: float) -> None:
        if not self.world.now:
            self.resume()
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

    def pods_of(self, name: str) -> int:
        return self.tenants.wanted(self.workload(name))


def _nothing(url: str) -> NoReturn:
    raise LookupError(url)


def _address(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
