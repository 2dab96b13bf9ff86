"""Simulates the cluster of a stack: nodes, kubelets, the scheduler and the agents. A subclass adds workloads and
events.
"""

from collections.abc import Iterable
from random import Random
from typing import NoReturn
from urllib.parse import urlsplit

from agents.gate.config import GateConfig, declared
from agents.gate.probes import Window
from agents.runtime.http_client import FetchError
from agents.telemetry.reading import Reading
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
    SYSTEM_NAMESPACE,
    WATCHDOG,
    journal,
    node_agent_namespace,
)
from tests.simulation.model.api import Server
from tests.simulation.model.cron import CronAgent, Gate, Reconcile, Watchdog
from tests.simulation.model.devices import TIME_SLICES, Card, Hardware, Machine
from tests.simulation.model.exporter import Exporter, SimScraper
from tests.simulation.model.extender import ExtenderPod
from tests.simulation.model.kubelet import Kubelets
from tests.simulation.model.scheduler import Scheduler
from tests.simulation.model.stack import Stack
from tests.simulation.model.tenants import Workload, Workloads
from tests.simulation.model.world import TickLoops, World

NODE_AGENTS = node_agent_namespace(SYSTEM_NAMESPACE)


class Cluster(TickLoops):
    """The cluster that a stack declares. A subclass implements `machines` and `workloads`."""

    server_type: type[Server] = Server
    exporter_type: type[Exporter] = Exporter
    schedulers = 1  # the number of the scheduler's pods

    def __init__(self, stack: Stack, dice: Random) -> None:
        self.stack = stack
        self.world = World(dice, self)
        self.server = self.server_type(self.world)
        self.scraper = SimScraper(read=self.reading, get=self.fetch)
        self.hardware = Hardware()
        names = stack.ledger.names
        self.pools: dict[str, Pool] = {}  # maps the name of each node to its pool
        self.tenants = Workloads(self.world, self.server, names, stack.quotas)
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
            name: self.exporter_type(machine=each, world=self.world, server=self.server, address=_address(number))
            for number, (name, each) in enumerate(self.hardware.machines.items(), start=1)
        }
        for name, exporter in self.exporters.items():
            self.add_exporter_pod(name, exporter.address)
        self.extenders = [
            ExtenderPod(
                world=self.world,
                server=self.server,
                environ=stack.environ[SCHEDULER],
                violated=self.violated,
                scraper=self.scraper,
                name=f"scheduler-{number}",
                elected=self.schedulers > 1,
            )
            for number in range(self.schedulers)
        ]
        self.extender = self.extenders[0]  # the extender of the leading scheduler
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
                scraper=self.scraper,
            )
            for name, kind in ((RECONCILE, Reconcile), (WATCHDOG, Watchdog), (GATE, Gate))
            if name in stack.environ
        }
        self.twins: list[CronAgent] = []
        self._windows()

    def prepare(self) -> None:
        """A subclass may prepare other parts of the cluster before the nodes are created."""

    def machines(self) -> Iterable[tuple[Machine, Pool]]:
        """Yields each node that has devices, and its pool."""
        raise NotImplementedError

    def workloads(self) -> Iterable[Workload]:
        """Yields the workloads."""
        raise NotImplementedError

    def violated(self, name: str, text: str) -> None:
        """Reports an error or a broken rule by a RuntimeError. A subclass may record the error and continue."""
        raise RuntimeError(f"{name}: {text}")

    def fetch(self, url: str) -> bytes:
        """Returns the response to a GET request within the cluster, except for exporters. Raises FetchError."""
        raise FetchError(f"{url}: HTTP 404: nobody")

    def reading(self, url: str) -> Reading:
        """Returns an exporter's reading. Raises AgentError."""
        host = urlsplit(url).hostname
        exporter = next((each for each in self.exporters.values() if each.address == host), None)
        if exporter is None:
            raise FetchError(f"{url}: HTTP 404: nobody")
        return exporter.reading(url)

    def register(self, each: Machine) -> None:
        """Creates a Node as its kubelet would, without the capacity that reconcile has written."""
        held = {"cpu": "16", **({GPU: str(TIME_SLICES * len(each.cards))} if each.cards else {})}
        self.server.put_node(
            {
                "kind": "Node",
                "metadata": {"name": each.name, "uid": f"uid-{each.name}", "labels": dict(each.labels)},
                "status": {"capacity": held, "allocatable": dict(held)},
            }
        )

    def _objects(self) -> None:
        spaces = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps"
        finalizer = self.stack.ledger.names.capacity_finalizer
        self.server.put(
            f"{spaces}/{LEDGER}",
            {
                "kind": "ConfigMap",
                "metadata": {"name": LEDGER, "namespace": SYSTEM_NAMESPACE, "finalizers": [finalizer]},
                "data": {LEDGER_KEY: self.stack.ledger_text},
            },
        )
        for agent in (RECONCILE, WATCHDOG, GATE):
            name = journal(agent)
            self.server.put(
                f"{spaces}/{name}", {"kind": "ConfigMap", "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}}
            )
        claim = f"/apis/resource.k8s.io/v1/namespaces/{SYSTEM_NAMESPACE}/resourceclaims/{SCHEDULER}"
        self.server.put(
            claim, {"kind": "ResourceClaim", "metadata": {"name": SCHEDULER, "namespace": SYSTEM_NAMESPACE}}
        )

    def add_exporter_pod(self, node: str, address: str) -> None:
        """Creates the exporter's pod as the DaemonSet's controller would."""
        self.server.put_pod(
            {
                "kind": "Pod",
                "metadata": {
                    "name": f"exporter-{node}",
                    "namespace": NODE_AGENTS,
                    "uid": f"uid-exporter-{node}",
                    "labels": {LABEL_NAME: EXPORTER},
                    "creationTimestamp": "2026-05-01T00:00:00Z",
                },
                "spec": {"nodeName": node, "containers": [{"name": "exporter", "resources": {"limits": {}}}]},
                "status": {"phase": "Running", "podIP": address},
            }
        )

    def _windows(self) -> None:
        """Checks each hour whether a time window of an on-demand workload has begun or ended, because no event reports
        a time.
        """
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

    def resume(self) -> None:
        """Starts the agents' loops at the beginning, and again after the clock has jumped."""
        for exporter in self.exporters.values():
            exporter.resume()
        for extender in self.extenders:
            extender.resume()
        for agent in (*self.crons.values(), *self.twins):
            agent.resume()

    def settled(self, since: float) -> bool:
        return all(agent.settled(since) for agent in self.crons.values())

    def run(self, until: float) -> None:
        if not self.world.now:
            self.resume()
        self.world.run(until)

    def workload(self, name: str) -> Workload:
        return self.tenants.workloads[name]

    def grow(self, workload: Workload) -> None:
        """Adjusts the memory of the workload's processes after a change of the workload."""
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
