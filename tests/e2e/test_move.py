"""Nodes go from the extender to claims and back, one by one, while pods of both kinds come and go and who decides is
killed at random, and what they write lands late: nothing of any device is promised twice (docs/adr/0031).

Real are the API server, kube-scheduler with the extender, kube-scheduler's own allocator, and the agents as they are
shipped, each under its account. The nodes are simulated, their devices the fake NVML's. What the agents wait for is
shorter here by a factor, and so is how late a write lands; `-m day` has both as they are.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from agents.telemetry.resourceslice import SLICES, offered_by
from components import claims
from components.agents.exporter import ExporterArgs, ExporterSpec, exporter_agent
from components.agents.reconcile import CapacityArgs, ReconcileSpec, ledger_config_map, reconcile_agent
from components.base.agent import Agent
from components.base.journal import journal
from components.base.system import ClusterSpec, namespace
from components.base.zipapp import build_for_nodes
from tenancy import names
from tenancy.ledger import Ledger, PlacementMode, Pool, Seat
from tenancy.names import LABEL_GPU_COUNT, LABEL_GPU_MEMORY, OLD_VIEW_SECONDS, UNSEEN_SECONDS
from tenancy.quantity import whole
from tenancy.units import MIB
from tests.e2e.extending import DOMAIN, NAMES, SYSTEM, TENANT, Bench, Object, account_objects, placement
from tests.e2e.made import made
from tests.e2e.proxy import Fault, proxied
from tests.e2e.rollout import PATIENCE_SECONDS, pods
from tests.support.search import dice
from toolchain.cluster import fake_nvml
from toolchain.cluster.api import ClusterApi, until
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.fake_nvml import FakeNvml
from toolchain.cluster.image import agent_image
from toolchain.cluster.process import free_ports

NODES, DEVICES = ("moving-0", "moving-1", "moving-2"), 2
MEMORY_MIB, RESERVE_MIB, RESIDENT_MIB = 16384, 1384, 6000
OFFERED_MIB = MEMORY_MIB - RESERVE_MIB
LABELS = {LABEL_GPU_MEMORY: str(MEMORY_MIB), LABEL_GPU_COUNT: str(DEVICES)}
OLD, NEW = (
    Pool(
        name=name,
        node_selector={"moving": name},
        nodes=len(NODES),
        device_count=DEVICES,
        memory_mib=MEMORY_MIB,
        reserve_mib=RESERVE_MIB,
        placement=placed_by,
    )
    for name, placed_by in (("by-extender", PlacementMode.EXTENDER), ("by-claims", PlacementMode.DRA))
)
SEATS = tuple(
    Seat(name=f"claims-{mib}", tenant=TENANT, pool=NEW.name, gpumem_mib=mib, replicas=50) for mib in (2000, 5000, 9000)
)
LEDGER = Ledger(domain=DOMAIN, pools=(OLD, NEW), seats=SEATS)
WAITING = 3  # pods of one kind that wait for a node at the same time
LOOK_SECONDS = 0.25
LATE = 0.8  # of what nothing is on its way for longer than
_RESOURCES = f"/apis/{names.RESOURCE_API}"
_CLUSTER = ClusterSpec(resource_domain=DOMAIN, system_namespace=SYSTEM, agent_image=agent_image())
_AGENTS = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
from tenancy import names
names.OLD_VIEW_SECONDS, names.UNSEEN_SECONDS = map(float, sys.argv[2:4])
sys.argv[1:4] = []
runpy.run_module("agents", run_name="__main__", alter_sys=True)
"""


@dataclass
class Process:
    """An agent, started again whenever it was killed or has ended."""

    name: str
    command: list[str]
    environment: Mapping[str, str]
    log: Path
    running: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(self.command, env=dict(self.environment), stdout=log, stderr=log)

    def kill(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.wait(30)

    def keep(self) -> None:
        """Starts it again, where it has ended by itself."""
        if self.running is None or self.running.poll() is not None:
            self.start()


@dataclass
class Promises:
    """What was given of each device, by the API alone: looked at again and again, and by how much it was too much."""

    api: ClusterApi
    tell: Callable[[str], None]
    looks: int = 0
    over: list[str] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)  # nodes that had pods of both kinds at once
    _shown: dict[str, tuple[int, int]] = field(default_factory=dict)

    def look(self) -> None:
        """Claims first: none of theirs that is gone by the second list can be had by a pod before that."""
        claimed, held = self._claimed(), self._held()
        for place in sorted(claimed.keys() | held.keys()):
            mib = claimed.get(place, 0) + held.get(place, 0)
            if mib > OFFERED_MIB:
                self.over.append(f"{place}: claims {claimed.get(place, 0)}, pods {held.get(place, 0)}")
                self.tell(f"PROMISED TWICE: {self.over[-1]}")
        self.shared |= {place[0] for place in claimed} & {place[0] for place in held}
        self.looks += 1
        self._show()

    def _claimed(self) -> dict[tuple[str, str], int]:
        given: dict[tuple[str, str], int] = {}
        for item in self._items(f"{_RESOURCES}/namespaces/{TENANT}/resourceclaims"):
            for each in item.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ()):
                place = each["pool"], each["device"]
                given[place] = given.get(place, 0) + whole(each["consumedCapacity"]["gpumem"]) // MIB
        return given

    def _held(self) -> dict[tuple[str, str], int]:
        held: dict[tuple[str, str], int] = {}
        for item in self._items(pods(TENANT)):
            if "nodeName" in item["spec"] and item["status"].get("phase") not in ("Succeeded", "Failed"):
                annotations = item["metadata"].get("annotations", {})
                for index in filter(None, annotations.get(NAMES.device_index, "").split(",")):
                    place = item["spec"]["nodeName"], f"gpu-{index}"
                    held[place] = held.get(place, 0) + int(annotations[NAMES.device_mib])
        return held

    def _show(self) -> None:
        """Tells what each node advertises and offers to claims, where that has changed."""
        for name in NODES:
            node, offers = self.api.get(f"/api/v1/nodes/{name}") or {}, self.offered(name)
            now = whole(node["status"]["capacity"].get(NAMES.gpumem, "0")), offers
            if self._shown.get(name) != now:
                self.tell(f"{name} advertises {now[0]}, offers claims {now[1]} MiB")
            self._shown[name] = now

    def offered(self, node: str) -> int:
        """To claims."""
        return sum(offered_by(self.api.get(f"{SLICES}/{NAMES.device_driver}-{node}")).values())

    def advertised(self, node: str) -> int:
        return self._shown.get(node, (0, 0))[0]

    def _items(self, path: str) -> list[Object]:
        found = self.api.get(path)
        return [] if found is None else list(found["items"])


@dataclass
class Move:
    """The cluster on the move: who decides, who comes and goes, and what came of it."""

    bench: Bench
    chance: Random
    settle_seconds: float
    agents: list[Process] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _over: threading.Event = field(default_factory=threading.Event)
    _made: int = 0
    _delays: dict[str, float] = field(default_factory=dict)
    _due: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.promises = Promises(self.bench.cluster.api, self.tell)

    def tell(self, what: str) -> None:
        line = f"{time.monotonic() - self._began:6.1f} s  {what}"
        self.story.append(line)
        print(line, flush=True)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Pods come and go, agents are killed, and promises are looked at, each in a thread of its own."""
        steps = ((self.promises.look, LOOK_SECONDS), (self._churn, 0.4), (self._strike, 0.5))
        threads = [threading.Thread(target=self._repeat, args=step) for step in steps]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
        assert not self.failures, self.failures

    def _repeat(self, step: Callable[[], object], pause: float) -> None:
        try:
            while not self._over.wait(pause):
                step()
        except Exception as error:
            self.failures.append(error)
            raise

    def holds(self, condition: Callable[[], Any], what: str) -> None:
        """Waits for it. Raises ClusterError where it does not come true, or a thread has failed."""
        until(lambda: self.failures or condition(), PATIENCE_SECONDS + 3 * self.settle_seconds, what, self._last)
        assert not self.failures, self.failures
        self.tell(what)

    def _last(self) -> object:
        return "\n".join(self.story[-40:])

    def relabel(self, node: str, pool: Pool) -> None:
        """The step of the run book, with pods on their way there. Each exporter is killed once while it waits."""
        if pool is NEW:
            for number in range(2):
                self._create("extender", f"extender-{node}-{number}", node)
            time.sleep(self.chance.uniform(0.5, 2))
        self.bench.cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": dict(pool.node_selector)}})
        self.tell(f"{node} is of pool {pool.name}")
        self._due.append((time.monotonic() + self.chance.uniform(0, self.settle_seconds), f"exporter {node}"))

    def delay(self, late: float, path: str) -> float:
        """Of a write on its way, now and then so long that its writer has given it up when it lands. A pod's bind is as
        late at each try."""
        drawn = self.chance.uniform(0, late) if self.chance.random() < 0.5 else 0
        return self._delays.setdefault(path, drawn) if path.endswith("/binding") else drawn

    def _strike(self) -> None:
        """Kills who is due, and now and then one of the others."""
        now = time.monotonic()
        due = [name for moment, name in self._due if moment <= now]
        self._due = [each for each in self._due if each[0] > now]
        if self.chance.random() < 0.1:
            due.append(self.chance.choice(("reconcile", "extender", "kube-scheduler")))
        for name in due:
            self.kills[name] = self.kills.get(name, 0) + 1
            self.tell(f"killed: {name}")
            (pod,) = self.bench.pods
            if name in pod.processes:
                pod.kill(name)
                time.sleep(self.chance.uniform(0, 1))
                pod.start_extender() if name == "extender" else self.bench.start_scheduler(pod)
            else:
                (agent,) = (agent for agent in self.agents if agent.name == name)
                agent.kill()
                time.sleep(self.chance.uniform(0, 1))
        for agent in self.agents:
            agent.keep()

    def _churn(self) -> None:
        """A pod comes, or one goes; those that nobody places any more go as well."""
        there = [pod for pod in self.bench.all_pods() if not pod["metadata"]["name"].startswith("resident")]
        waiting = [pod for pod in there if "nodeName" not in pod["spec"]]
        kind = self.chance.choice(("extender", "claims"))
        mine = [pod for pod in waiting if pod["metadata"]["name"].startswith(kind)]
        if len(mine) >= WAITING:
            self.bench.delete(self.chance.choice(mine)["metadata"]["name"])
        elif there and self.chance.random() < 0.45:
            self.bench.delete(self.chance.choice(there)["metadata"]["name"])
        else:
            self._made += 1
            self._create(kind, f"{kind}-{self._made}", self.chance.choice(NODES))

    def _create(self, kind: str, name: str, node: str) -> None:
        if kind == "extender":
            where = {**OLD.node_selector, "kubernetes.io/hostname": node}
            self.bench.create(name, self.chance.randrange(500, 9000), nodeSelector=where)
            return
        stanza = claims.resident_stanzas(LEDGER)[self.chance.choice(SEATS).name]
        container = {"name": "main", "image": "busybox:1.37.0", "resources": stanza["resources"]}
        spec = {key: stanza[key] for key in ("nodeSelector", "resourceClaims")} | {"containers": [container]}
        self.bench.cluster.api.create(
            pods(TENANT), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        )

    def bound(self, kind: str, node: str) -> set[str]:
        """Pods of that kind on the node."""
        found = (pod for pod in self.bench.bound() if pod["spec"]["nodeName"] == node)
        return {pod["metadata"]["name"] for pod in found if pod["metadata"]["name"].startswith(kind)}

    def is_back(self, node: str) -> bool:
        """Whether the node advertises all again; until then the owners of claims there are told to end them."""
        for name in self.bound("claims", node):
            self.bench.delete(name)
        return self.promises.advertised(node) == OLD.node_mib


@contextmanager
def moving(cluster: HeldCluster, folder: Path, old_view: float, unseen: float, late: float) -> Iterator[Move]:
    """Nodes whose seats are the extender's, with their agents; nothing is left of them after the block."""
    libraries, zipapp = folder / "nvml", folder / "node-agents.pyz"
    libraries.mkdir()
    if not fake_nvml.build(libraries):
        pytest.skip("NO C COMPILER: moving nodes is not tested")
    code = build_for_nodes()
    zipapp.write_bytes(code.content)
    settings = CapacityArgs(cluster=_CLUSTER, code=code, ledger=LEDGER, reconcile=ReconcileSpec())
    reconcile = reconcile_agent(settings, ReconcileSpec(interval_seconds=1), run_seconds=20)
    exporter = exporter_agent(
        ExporterArgs(
            spec=ExporterSpec(interval_seconds=1), cluster=_CLUSTER, code=code, ledger=LEDGER, publish_devices=True
        )
    )
    with ExitStack() as stack:
        bench = stack.enter_context(placement(cluster, folder))
        stack.enter_context(made(cluster.api, _objects(reconcile, exporter)))
        stack.callback(bench.clear)
        move = Move(bench, dice("move"), old_view + unseen)
        ledger = ledger_config_map(LEDGER, SYSTEM, advertised=True)
        place = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
        cluster.api.patch(place, {"data": ledger["data"], "metadata": {"finalizers": ledger["metadata"]["finalizers"]}})
        stack.callback(bench.delete_ledger)
        proxy = stack.enter_context(proxied(cluster.folder, cluster.api.server))
        behind = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(proxy.port)}
        for method, path in (("POST", pods(TENANT)), ("PATCH", SLICES), ("PATCH", "/api/v1/nodes")):
            proxy.faults.append(Fault(method=method, path=path, times=10**9, delay_seconds=partial(move.delay, late)))
        paced = [sys.executable, "-I", "-c", _AGENTS]
        pace = [str(old_view), str(unseen)]

        def process(name: str, archive: Path, agent: Agent, environment: Mapping[str, str]) -> None:
            mount = folder / name.replace(" ", "-")
            account = bench.account(mount, agent.identity.namespace, agent.name)
            command = [*paced, str(archive), *pace, agent.program]
            given = {**agent.environment, **account, **behind, "POD_NAME": name.replace(" ", "-"), **environment}
            move.agents.append(Process(name, command, given, folder / f"{mount.name}.log"))
            stack.callback(move.agents[-1].kill)

        process("reconcile", bench.zipapp, reconcile, {"DRY_RUN": "false"})
        for name in NODES:
            resources = {NAMES.gpumem: str(OLD.node_mib), NAMES.gpu_count: str(DEVICES)}
            cluster.add_node(name, labels={**LABELS, **OLD.node_selector}, resources=resources)
            bench.nodes[name] = (OFFERED_MIB,) * DEVICES
            nvml = FakeNvml(libraries, folder / f"{name}.card")
            total = MEMORY_MIB * MIB
            nvml.show(*(f"device GPU-{name}-{index} {total} 0 {total}" for index in range(DEVICES)))
            (port,) = free_ports(1)
            process(f"exporter {name}", zipapp, exporter, {**nvml.environ, "NODE_NAME": name, "PORT": str(port)})
        for agent in move.agents:
            agent.start()
        pod = bench.start_extender("gpu-tenancy-scheduler-0")
        pod.environment = {**pod.environment, **behind}
        pod.kill("extender")
        pod.start_extender()
        bench.start_scheduler(pod)
        yield move


def _objects(reconcile: Agent, exporter: Agent) -> Iterator[tuple[str, Object]]:
    yield "/api/v1/namespaces", namespace(exporter.namespace, "privileged")
    for agent in (reconcile, exporter):
        yield from account_objects(agent.identity)
    yield f"/api/v1/namespaces/{SYSTEM}/configmaps", journal(reconcile)
    for seat in SEATS:
        yield f"{_RESOURCES}/deviceclasses", claims.device_class(seat, LEDGER)
        yield f"{_RESOURCES}/namespaces/{TENANT}/resourceclaimtemplates", claims.claim_template(seat, LEDGER)


@pytest.mark.search
@pytest.mark.parametrize(
    ("old_view", "unseen"),
    [
        pytest.param(OLD_VIEW_SECONDS / 6, UNSEEN_SECONDS / 6, id="quickly"),
        pytest.param(OLD_VIEW_SECONDS, UNSEEN_SECONDS, id="as-it-is", marks=pytest.mark.day),
    ],
)
def test_nodes_move_to_claims_and_back_and_nothing_is_promised_twice(
    real_cluster: HeldCluster, tmp_path: Path, old_view: float, unseen: float
) -> None:
    with moving(real_cluster, tmp_path, old_view, unseen, late=LATE * old_view) as move:
        residents = {f"resident-{node}": node for node in NODES}
        for name, node in residents.items():
            move.bench.create(name, RESIDENT_MIB, node=node)
        before = {pod["metadata"]["uid"] for pod in move.bench.await_bound(*residents)}
        with move.under_way():
            move.holds(lambda: all(move.bound("extender", node) for node in NODES), "the extender places everywhere")
            for node in NODES:
                move.relabel(node, NEW)
                time.sleep(move.chance.uniform(0, 5))
            for node in NODES:
                move.holds(partial(move.bound, "claims", node), f"claims have devices of {node}")
            for node in NODES:
                move.relabel(node, OLD)
                time.sleep(move.chance.uniform(0, 5))
            for node in NODES:
                move.holds(partial(move.is_back, node), f"{node} advertises all again")
            for node in NODES:
                move.holds(partial(move.bound, "extender", node), f"the extender places on {node} again")
        assert move.promises.over == []
        assert move.promises.shared == set(NODES)
        after = {pod["metadata"]["uid"] for pod in move.bench.bound() if pod["metadata"]["name"] in residents}
        assert after == before
        assert {f"exporter {node}" for node in NODES} | {"reconcile"} <= move.kills.keys()
        print(f"{move.promises.looks} looks, killed: {move.kills}")
