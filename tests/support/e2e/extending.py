"""Places pods by device on simulated nodes, with real kube-schedulers and real extenders.

A replica is one kube-scheduler and one extender with the same host name and token.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agents.kube.nodes import Node
from agents.kube.slices import SLICES
from agents.reconcile.decide import NodePatch, status_patch
from agents.telemetry.device import Device, Survey
from agents.telemetry.resourceslice import PublishingNode, slice_of
from components.agents.reconcile import ledger_config_map
from components.agents.scheduler import (
    SchedulerArgs,
    SchedulerSpec,
    configuration,
    retry_claim,
    scheduler_agent,
)
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp, build
from tenancy import names
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.names import Names
from tenancy.units import MIB
from tests.support.e2e.made import account_objects, made
from tests.support.e2e.scheduler_pod import SchedulerPod
from tests.support.waiting import becomes, eventually
from toolchain.cluster import kubeconfig
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.image import agent_image
from toolchain.cluster.paths import program
from toolchain.cluster.process import free_ports

SYSTEM, TENANT = "placing-system", "placing-tenant"
DOMAIN = "viktorbarzin.me"
NAMES = Names(DOMAIN)
POOL = Pool(name="cards", node_selector={"pool": "cards"}, nodes=4, device_count=4, memory_mib=24576)
LEDGER = Ledger(domain=DOMAIN, pools=(POOL,))
POD_PRIORITY = {"low": 100, "middle": 500, "high": 1000}

Object = Mapping[str, Any]

_ARGS = SchedulerArgs(
    spec=SchedulerSpec(),
    cluster=ClusterSpec(resource_domain=DOMAIN, system_namespace=SYSTEM, agent_image=agent_image()),
    code=Zipapp(b"", digest=""),
    ledger=LEDGER,
)
_AGENT = scheduler_agent(_ARGS)
# With these durations, the replicas elect a new leader within 6 s.
_QUICK = {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"}


@dataclass
class Bench:
    cluster: HeldCluster
    folder: Path
    zipapp: Path
    nodes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    pods: list[SchedulerPod] = field(default_factory=list)

    def add_node(self, name: str, *devices_mib: int) -> None:
        self.cluster.add_node(name, labels=POOL.node_selector, resources=advertised(name, devices_mib))
        self.nodes[name] = devices_mib
        self.publish(name)

    def publish(self, name: str) -> None:
        uid = self._get(f"/api/v1/nodes/{name}")["metadata"]["uid"]
        devices = tuple(
            Device(gpu=index, uuid=f"GPU-{name}-{index}", total_bytes=mib * MIB, used_bytes=0, free_bytes=mib * MIB)
            for index, mib in enumerate(self.nodes[name])
        )
        found = slice_of(Survey(devices=devices), PublishingNode(name=name, uid=uid), NAMES, None)
        self.cluster.api.create(SLICES, found)

    def remove_node(self, name: str) -> None:
        self.cluster.api.request("DELETE", f"{SLICES}/{NAMES.device_driver}-{name}")
        self.cluster.api.request("DELETE", f"/api/v1/nodes/{name}")
        self.nodes.pop(name, None)

    def set_ledger(self, pool: Pool, *seats: Seat) -> None:
        data = ledger_config_map(replace(LEDGER, pools=(pool,), seats=seats), SYSTEM, advertised=False)["data"]
        path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
        self.cluster.api.patch(path, {"data": data})

    def create(
        self,
        name: str,
        mib: int,
        *,
        devices: int = 1,
        node: str | None = None,
        finalizers: Sequence[str] = (),
        **spec: Any,
    ) -> None:
        limits = {NAMES.gpumem: str(mib * devices)} | ({NAMES.gpu_count: str(devices)} if devices > 1 else {})
        container = {"name": "main", "image": "busybox:1.37.0", "resources": {"limits": limits}}
        selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "finalizers": list(finalizers)},
            "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container], **selector, **spec},
        }
        self.cluster.api.create(f"/api/v1/namespaces/{TENANT}/pods", body)

    def create_all(self, requests: Mapping[str, int], **spec: Any) -> None:
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda each: self.create(*each, **spec), requests.items()))

    def create_in_turn(self, requests: Mapping[str, int], **spec: Any) -> None:
        """Creates each pod after the pod before it is bound. Another order can leave no device for the last pod."""
        for name, mib in requests.items():
            self.create(name, mib, **spec)
            self.await_bound(name)

    def all_pods(self) -> list[Object]:
        return list(self._get(f"/api/v1/namespaces/{TENANT}/pods")["items"])

    def bound(self) -> list[Object]:
        return [pod for pod in self.all_pods() if pod["spec"].get("nodeName")]

    def pod(self, name: str) -> Object:
        return self._get(f"/api/v1/namespaces/{TENANT}/pods/{name}")

    def await_bound(self, *pods: str) -> list[Object]:
        wanted = set(pods)

        def found() -> list[Object]:
            there = [pod for pod in self.bound() if pod["metadata"]["name"] in wanted]
            return there if len(there) == len(wanted) else []

        result: list[Object] = eventually(found, f"{len(pods)} pods are bound")
        return result

    def waits(self, *pods: str) -> str:
        told = [self._refusal(name) for name in pods]
        return told[0] if all(told) and told else ""

    def await_refused(self, name: str, words: str) -> None:
        eventually(lambda: words in self.waits(name), f"{name} waits, because {words}", lambda: self.waits(name))

    def _refusal(self, name: str) -> str:
        for condition in self.pod(name)["status"].get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return str(condition["message"])
        return ""

    def release(self, name: str) -> None:
        self.cluster.api.patch(f"/api/v1/namespaces/{TENANT}/pods/{name}", {"metadata": {"finalizers": None}})

    def delete(self, name: str, grace_seconds: int = 0) -> None:
        path = f"/api/v1/namespaces/{TENANT}/pods/{name}?gracePeriodSeconds={grace_seconds}"
        self.cluster.api.request("DELETE", path)

    def clear(self) -> None:
        pods = self.all_pods()
        for pod in pods:
            if "nodeName" not in pod["spec"]:
                self.delete(pod["metadata"]["name"])
        for pod in pods:
            if pod["metadata"].get("finalizers"):
                self.release(pod["metadata"]["name"])
        self.cluster.api.request("DELETE", f"/api/v1/namespaces/{TENANT}/pods?gracePeriodSeconds=0")
        eventually(lambda: not self.all_pods(), "the pods are gone")

    def assert_nothing_is_overfull(self) -> None:
        used: dict[tuple[str, int], int] = {}
        for pod in self.bound():
            annotations = pod["metadata"].get("annotations", {})
            node = pod["spec"]["nodeName"]
            for index in map(int, annotations[NAMES.device_index].split(",")):
                used[node, index] = used.get((node, index), 0) + int(annotations[NAMES.device_mib])
        over = {place: mib for place, mib in used.items() if mib > self.nodes[place[0]][place[1]]}
        assert not over, over

    def _get(self, path: str) -> Object:
        found = self.cluster.api.get(path)
        assert found is not None, path
        return found

    def start_pod(self, name: str, *, elected: bool = False) -> SchedulerPod:
        pod = self.start_extender(name, elected=elected)
        self.start_scheduler(pod, elected=elected)
        return pod

    def start_extender(self, name: str, *, elected: bool = False) -> SchedulerPod:
        folder = self.folder / name
        folder.mkdir()
        verbs, questions = free_ports(2)
        environment = self._environment(name, folder, elected) | {
            "VERBS_PORT": str(verbs),
            "HTTP_PORT": str(questions),
        }
        command = [sys.executable, "-I", str(self.zipapp), "extender"]
        pod = SchedulerPod(name, folder, questions, command, environment)
        self.pods.append(pod)
        pod.start_extender()
        becomes(lambda: pod.get("/readyz")[0], 200, "the extender is ready")
        return pod

    def start_scheduler(self, pod: SchedulerPod, *, elected: bool = False) -> None:
        (health,) = free_ports(1)
        config, user = pod.folder / "kube-scheduler.json", pod.folder / "kubeconfig"
        verbs = int(pod.environment["VERBS_PORT"])
        config.write_text(json.dumps(self._configuration(verbs, pod.folder, elected)))
        token = {"tokenFile": str(pod.folder / "serviceaccount" / "token")}
        kubeconfig.write(user, self.cluster.api.server, self.cluster.folder.ca, token)
        host = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', pod.name) if elected else ()
        pod.start(
            "kube-scheduler",
            [
                *host,
                program("kube-scheduler"),
                f"--config={config}",
                f"--authentication-kubeconfig={user}",
                f"--authorization-kubeconfig={user}",
                "--bind-address=127.0.0.1",
                f"--secure-port={health}",
            ],
            dict(os.environ),
        )

    def _environment(self, name: str, folder: Path, elected: bool) -> dict[str, str]:
        return {
            **_AGENT.environment,
            **self.account(folder / "serviceaccount", SYSTEM, names.SCHEDULER),
            "POD_NAME": name,
            **({} if elected else {"LEASE": ""}),
        }

    def account(self, mount: Path, namespace: str, name: str) -> dict[str, str]:
        mount.mkdir()
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        issued = self.cluster.api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
        (mount / "token").write_text(issued["status"]["token"])
        (mount / "ca.crt").write_bytes(self.cluster.folder.ca.read_bytes())
        host, _, port = self.cluster.api.server.removeprefix("https://").partition(":")
        return {
            "PATH": os.environ["PATH"],
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
            "SERVICE_ACCOUNT_DIRECTORY": str(mount),
            "LEDGER_NAMESPACE": SYSTEM,
        }

    def _configuration(self, verbs_port: int, folder: Path, elected: bool) -> Object:
        declared = configuration(_ARGS)
        (extender,) = declared["extenders"]
        return {
            **declared,
            "clientConnection": {"kubeconfig": str(folder / "kubeconfig")},
            "leaderElection": {**declared["leaderElection"], "leaderElect": elected, **_QUICK},
            "extenders": [{**extender, "urlPrefix": f"http://127.0.0.1:{verbs_port}"}],
        }

    def stop(self, pod: SchedulerPod) -> None:
        self.pods.remove(pod)
        for process in pod.processes.values():
            process.kill()
            process.wait(120)


@contextmanager
def placement(cluster: HeldCluster, folder: Path) -> Iterator[Bench]:
    zipapp = folder / "agents.pyz"
    zipapp.write_bytes(build().content)
    placed = Bench(cluster, folder, zipapp)
    with ExitStack() as stack:
        stack.enter_context(made(cluster.api, _objects()))
        stack.callback(lambda: [placed.remove_node(name) for name in [*placed.nodes]])
        stack.callback(lambda: [placed.stop(pod) for pod in [*placed.pods]])
        yield placed


def _objects() -> Iterator[tuple[str, Object]]:
    for name in (SYSTEM, TENANT):
        yield "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    yield f"/api/v1/namespaces/{SYSTEM}/configmaps", ledger_config_map(LEDGER, SYSTEM, advertised=False)
    yield from account_objects(_AGENT, SYSTEM)
    yield f"/apis/{names.RESOURCE_API}/namespaces/{SYSTEM}/resourceclaims", retry_claim(_ARGS)
    for name, value in POD_PRIORITY.items():
        yield (
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            },
        )


def advertised(name: str, devices_mib: Sequence[int]) -> Mapping[str, str]:
    """Returns the capacity that reconcile would write for the devices of the node."""
    node, mib = Node(name=name), sum(devices_mib)
    change = NodePatch(node=node, bound_mib=0, gpumem_mib=mib, reason=names.EVENT_ADVERTISED, note="")
    status: Any = status_patch(NAMES, change)["status"]
    return dict(status["capacity"])
