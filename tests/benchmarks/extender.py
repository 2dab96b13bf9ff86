"""Our extender beside kube-scheduler alone and gpushare-scheduler-extender: `python -m tests.benchmarks.extender`, and
`--peer PROGRAM`.

PROGRAM is the peer, built from its own source outside the repository (docs/benchmarks.md). All serve one API server
with 1,000 nodes of 8 devices, and the extenders are asked the same: filters one after the other, as kube-scheduler
asks, each about all nodes; binds at once; then pods through a real kube-scheduler, from their creation to the last
one's node, in rounds of which each has one in turn. Ours is asked over mutual TLS, the peer over plain HTTP: that is
how each is asked.
"""

import argparse
import http.client
import json
import os
import re
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.telemetry.device import Device, Survey
from agents.telemetry.resourceslice import SLICES, Host, slice_of
from tenancy.units import MIB
from tests.e2e.extending import NAMES, POOL, TENANT, Bench, SchedulerPod, placement
from toolchain.cluster import cluster, simulated
from toolchain.cluster.api import until
from toolchain.cluster.extent import Extent
from toolchain.cluster.paths import program
from toolchain.cluster.process import free_ports

NODES, DEVICES, DEVICE_MIB = 1000, 8, 16384
FILTERS, BINDS, PODS, AT_ONCE = 300, 100, 100, 8
ROUNDS = 5
POD_MIB = 2000
PEER_MEMORY, PEER_COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
PEER_SCHEDULER = "gpushare"
ALONE, ALONE_SCHEDULER = "kube-scheduler alone", "alone"
PATIENCE_SECONDS = 300

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Contender:
    """An extender that runs: how it is reached, and what a pod that it places asks for."""

    name: str
    pid: int
    connect: Callable[[], http.client.HTTPConnection]
    path: str
    resource: str
    scheduler: str


@dataclass(frozen=True)
class Result:
    """Milliseconds, requests and pods a second, MiB."""

    filter_p50: float
    filter_p99: float
    filters_per_second: float
    bind_p50: float
    bind_p99: float
    binds_per_second: float
    rss: float
    pods_per_second: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.extender", description=__doc__)
    parser.add_argument("--peer", type=Path, help="the peer's program")
    peer_program = parser.parse_args().peer
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.running(Path(folder) / "cluster", extent=Extent.API_SERVER) as running,
        placement(running, Path(folder)) as bench,
        ExitStack() as stack,
    ):
        add_nodes(bench)
        pod = bench.start_extender("ours")
        contenders = [ours(pod)]
        if peer_program:
            contenders.append(stack.enter_context(peer(bench, peer_program)))
        results = [measure(bench, each) for each in contenders]
        bench.start_scheduler(pod)
        stack.enter_context(scheduler(bench, ALONE_SCHEDULER, None))
        for each in contenders[1:]:
            stack.enter_context(scheduler(bench, each.scheduler, each))
        rates = through_schedulers(bench, [(each.scheduler, each.resource) for each in contenders])
        print_table(
            {
                each.name: result(pods_per_second=rates[each.scheduler])
                for each, result in zip(contenders, results, strict=True)
            }
        )
        print(f"| {ALONE} |{' - |' * 7} {rates[ALONE_SCHEDULER]:.1f} |")
    print(f"load: {os.getloadavg()}")


def add_nodes(bench: Bench) -> None:
    def add(number: int) -> None:
        name = f"cards-{number:04}"
        amount = str(DEVICES * DEVICE_MIB)
        resources = {NAMES.gpumem: amount, PEER_MEMORY: amount, PEER_COUNT: str(DEVICES)}
        node = simulated.node(name, labels={"pool": "cards"}, resources=resources)
        uid = bench.cluster.api.create("/api/v1/nodes", node)["metadata"]["uid"]
        devices = tuple(
            Device(gpu=gpu, uuid=f"GPU-{name}-{gpu}", total_bytes=DEVICE_MIB * MIB, used_bytes=0, free_bytes=0)
            for gpu in range(DEVICES)
        )
        bench.cluster.api.create(
            SLICES, slice_of(Survey(devices=devices), Host(name=name, uid=uid, pool=POOL), NAMES, None)
        )

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(add, range(NODES)))


def ours(pod: SchedulerPod) -> Contender:
    keys = pod.folder / "certificates"
    tls = ssl.create_default_context(cafile=keys / "ca.crt")
    tls.load_cert_chain(keys / "client.crt", keys / "client.key")
    port = int(pod.environment["VERBS_PORT"])
    return Contender(
        name="gpu-tenancy",
        pid=pod.processes["extender"].pid,
        connect=lambda: http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=60),
        path="",
        resource=NAMES.gpumem,
        scheduler="gpu-tenancy",
    )


@contextmanager
def peer(bench: Bench, peer_program: Path) -> Iterator[Contender]:
    (port,) = free_ports(1)
    environment = {"KUBECONFIG": str(bench.cluster.kubeconfig), "PORT": str(port), "PATH": os.environ["PATH"]}
    with (bench.folder / "peer.log").open("wb") as log:
        process = subprocess.Popen([str(peer_program)], env=environment, stdout=log, stderr=log)

    def connect() -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def answers() -> bool:
        connection = connect()
        connection.request("GET", "/version")
        return connection.getresponse().status == http.client.OK

    try:
        until(answers, PATIENCE_SECONDS, "the peer answers")
        yield Contender("gpushare c0b6141", process.pid, connect, "/gpushare-scheduler", PEER_MEMORY, PEER_SCHEDULER)
    finally:
        process.kill()
        process.wait()


def measure(bench: Bench, contender: Contender) -> Callable[..., Result]:
    """Everything but the rate through a scheduler, with a scheduler that nobody runs."""
    nobody = f"nobody-{contender.scheduler}"
    pods = make_pods(bench, nobody, contender.resource, "asked", max(FILTERS, BINDS))
    nodes = [f"cards-{number:04}" for number in range(NODES)]
    filters, filtering = timed([{"Pod": pod, "NodeNames": nodes} for pod in pods[:FILTERS]], contender, "filter", 1)
    binds, binding = timed(
        [_binding(pod, number) for number, pod in enumerate(pods[:BINDS])], contender, "bind", AT_ONCE
    )
    rss = rss_mib(contender.pid)

    def result(*, pods_per_second: float) -> Result:
        return Result(
            *_quantiles(filters), len(filters) / filtering, *_quantiles(binds), len(binds) / binding, rss,
            pods_per_second,
        )  # fmt: skip

    return result


def _binding(pod: Object, number: int) -> Object:
    metadata = pod["metadata"]
    names = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
    node = f"cards-{NODES - 1 - number:04}"  # the first ones are promised to the pods that were filtered
    return {**names, "Node": node}


def timed(bodies: Sequence[Object], contender: Contender, verb: str, at_once: int) -> tuple[list[float], float]:
    """Seconds of each request, and of all of them; each thread has a connection of its own."""
    connections = [contender.connect() for _ in range(at_once)]
    for connection in connections:
        connection.connect()

    def ask(lane: int) -> list[float]:
        seconds = []
        for body in bodies[lane::at_once]:
            content = json.dumps(body)
            started = time.perf_counter()
            connections[lane].request("POST", f"{contender.path}/{verb}", content, {"Content-Type": "application/json"})
            answer = json.loads(connections[lane].getresponse().read())
            seconds.append(time.perf_counter() - started)
            if problem := answer.get("Error"):
                raise SystemExit(f"{contender.name}, {verb}: {problem}")
        return seconds

    started = time.perf_counter()
    with ThreadPoolExecutor(at_once) as threads:
        lanes = list(threads.map(ask, range(at_once)))
    total = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return [each for lane in lanes for each in lane], total


def through_schedulers(bench: Bench, contenders: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Pods a second, from the first one's creation to the last one's node, by the name of the scheduler; the median of
    the rounds. `contenders` are schedulers, and what their pods ask for."""
    lanes = [*contenders, (ALONE_SCHEDULER, PEER_MEMORY)]
    for lane in lanes:
        rate(bench, *lane, "warm", 1)
    rounds = [{lane[0]: rate(bench, *lane, f"round-{number}", PODS) for lane in lanes} for number in range(ROUNDS)]
    for each in rounds:
        print(", ".join(f"{name} {pods:.1f}" for name, pods in each.items()), "pods/s", flush=True)
    return {name: statistics.median(each[name] for each in rounds) for name, _ in lanes}


def rate(bench: Bench, scheduler: str, resource: str, name: str, count: int) -> float:
    started = time.perf_counter()
    make_pods(bench, scheduler, resource, name, count)
    until(lambda: _bound(bench, scheduler, name) == count, PATIENCE_SECONDS, f"{scheduler} places {count} pods")
    return count / (time.perf_counter() - started)


@contextmanager
def scheduler(bench: Bench, name: str, theirs: Contender | None) -> Iterator[None]:
    """The same kube-scheduler, alone or with the peer's configuration (its config/scheduler-policy-config.yaml)."""
    (health,) = free_ports(1)
    config = bench.folder / f"{name}-scheduler.json"
    extenders = []
    if theirs is not None:
        connection = theirs.connect()
        extenders.append(
            {
                "urlPrefix": f"http://{connection.host}:{connection.port}{theirs.path}",
                "filterVerb": "filter",
                "bindVerb": "bind",
                "nodeCacheCapable": True,
                "httpTimeout": "30s",
                "managedResources": [{"name": PEER_MEMORY, "ignoredByScheduler": False}],
            }
        )
    config.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(bench.cluster.kubeconfig)},
                "leaderElection": {"leaderElect": False},
                "profiles": [{"schedulerName": name}],
                "extenders": extenders,
            }
        )
    )
    access = [f"--{kind}-kubeconfig={bench.cluster.kubeconfig}" for kind in ("authentication", "authorization")]
    command = [program("kube-scheduler"), f"--config={config}", *access, "--bind-address=127.0.0.1"]
    with (bench.folder / f"{name}-scheduler.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--secure-port={health}"], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def make_pods(bench: Bench, scheduler: str, resource: str, name: str, count: int) -> list[Object]:
    def make(number: int) -> Object:
        limits = {resource: str(POD_MIB)}
        container = {"name": "main", "image": "busybox:1.37.0", "resources": {"limits": limits}}
        spec = {
            "schedulerName": scheduler,
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],  # no controller says that the nodes are ready
        }
        metadata = {
            "name": f"{scheduler}-{name}-{number}",
            "labels": {"run": f"{scheduler}-{name}"},
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        return bench.cluster.api.create(f"/api/v1/namespaces/{TENANT}/pods", body)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(make, range(count)))


def _bound(bench: Bench, scheduler: str, name: str) -> int:
    path = f"/api/v1/namespaces/{TENANT}/pods?labelSelector=run%3D{scheduler}-{name}"
    found = bench.cluster.api.get(path) or {"items": []}
    return sum("nodeName" in pod["spec"] for pod in found["items"])


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (kib,) = re.findall(r"VmRSS:\s+(\d+)", status)
    return int(kib) / 1024


def _quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000


def print_table(results: Mapping[str, Result]) -> None:
    print("| extender | filter p50, ms | p99, ms | filters/s | bind p50, ms | p99, ms | binds/s | RSS, MiB | pods/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, result in results.items():
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in vars(result).values()) + " |")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
