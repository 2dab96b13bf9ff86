"""Our extender beside kube-scheduler alone and gpushare-scheduler-extender: `python -m tests.benchmarks.extender`, and
`--peer PROGRAM`.

PROGRAM is the peer, built from its own source outside the repository (docs/benchmarks.md). All serve one API server
with 1,000 nodes of 8 devices, and the extenders are asked the same: filters one after the other, as kube-scheduler
asks, each about all nodes; binds at once; then pods through a real kube-scheduler, from their creation to the last
one's node, in rounds of which each has one in turn: small ones, and large ones without the peer, which takes minutes
for one. Ours is asked over mutual TLS, the peer over plain HTTP: that is how each is asked.

kube-scheduler alone is there three times: as it is delivered, with 50 requests a second after the first 100, which
hold it back from the 100th bind on; without that limit, against which nothing counts that our extender binds; and
also looking at every node, as ours does, where it looks at 420 of 1,000.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.telemetry.device import Device, Survey
from agents.telemetry.resourceslice import SLICES, PublishingNode, slice_of
from tenancy.units import MIB
from tests.benchmarks.exporter import cpu_seconds
from tests.e2e.extending import NAMES, POOL, SYSTEM, TENANT, Bench, SchedulerPod, placement
from toolchain.cluster import cluster, simulated
from toolchain.cluster.api import until
from toolchain.cluster.extent import Extent
from toolchain.cluster.paths import program
from toolchain.cluster.process import free_ports

DEVICES, DEVICE_MIB = 8, 16384
FILTERS, BINDS, AT_ONCE = 300, 100, 8
SMALL, LARGE = 100, 1000  # pods of a round
ROUNDS = {SMALL: 5, LARGE: 3}
POD_MIB = 2000
PEER_MEMORY, PEER_COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
PEER_SCHEDULER = "gpushare"
NO_LIMIT: Mapping[str, Any] = {"clientConnection": {"qps": 10_000, "burst": 10_000}}
# The names of the schedulers that are alone, and their settings.
ALONE: Mapping[str, Mapping[str, Any]] = {
    "alone": {},
    "alone-no-limit": NO_LIMIT,
    "alone-every-node": {**NO_LIMIT, "percentageOfNodesToScore": 100},
}
PATIENCE_SECONDS = 300
# Between two looks for each pod that waits, about a third of what the fastest needs for it: looks cost the API server.
LOOK_SECONDS, LEAST_LOOK_SECONDS = 0.002, 0.02

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
class Lane:
    """A scheduler, what its pods ask for, and the processes that place them, API server and etcd among them."""

    name: str
    scheduler: str
    resource: str
    processes: Mapping[str, int]


@dataclass(frozen=True)
class Round:
    """Pods a second, and what each process took, in milliseconds of CPU a pod."""

    rate: float
    cpu: Mapping[str, float]


@dataclass(frozen=True)
class Result:
    """Milliseconds, requests a second, MiB."""

    filter_p50: float
    filter_p99: float
    filters_per_second: float
    bind_p50: float
    bind_p99: float
    binds_per_second: float
    rss: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.extender", description=__doc__)
    parser.add_argument("--peer", type=Path, help="the peer's program")
    parser.add_argument("--nodes", type=int, default=1000, help="at least 100")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.running(Path(folder) / "cluster", extent=Extent.API_SERVER) as running,
        placement(running, Path(folder)) as bench,
        ExitStack() as stack,
    ):
        nodes = [f"cards-{number:04}" for number in range(given.nodes)]
        add_nodes(bench, nodes)
        pod = bench.start_extender("ours")
        contenders = [ours(pod)]
        if given.peer:
            contenders.append(stack.enter_context(peer(bench, given.peer)))
        results = [measure(bench, each, nodes) for each in contenders]
        bench.start_scheduler(pod)
        schedulers = [pod.processes["kube-scheduler"].pid]
        schedulers += [stack.enter_context(scheduler(bench, each.scheduler, each)) for each in contenders[1:]]
        lanes = [
            lane(bench, each.name, each.scheduler, each.resource, {"kube-scheduler": pid, "extender": each.pid})
            for each, pid in zip(contenders, schedulers, strict=True)
        ]
        for each in ALONE:
            pid = stack.enter_context(scheduler(bench, each, None))
            lanes.append(lane(bench, each, each, PEER_MEMORY, {"kube-scheduler": pid}))
        rounds = {SMALL: play(bench, lanes, SMALL)}
        rounds[LARGE] = play(bench, [each for each in lanes if each.scheduler != PEER_SCHEDULER], LARGE)
        print_answers({each.name: (each, result) for each, result in zip(contenders, results, strict=True)})
        print_rounds(lanes, rounds)
        release_namespaces(bench)
    print(f"load: {os.getloadavg()}")


def add_nodes(bench: Bench, names: Sequence[str]) -> None:
    def add(name: str) -> None:
        amount = str(DEVICES * DEVICE_MIB)
        resources = {NAMES.gpumem: amount, PEER_MEMORY: amount, PEER_COUNT: str(DEVICES)}
        node = simulated.node(name, labels={"pool": "cards"}, resources=resources)
        uid = bench.cluster.api.create("/api/v1/nodes", node)["metadata"]["uid"]
        devices = tuple(
            Device(gpu=gpu, uuid=f"GPU-{name}-{gpu}", total_bytes=DEVICE_MIB * MIB, used_bytes=0, free_bytes=0)
            for gpu in range(DEVICES)
        )
        bench.cluster.api.create(
            SLICES, slice_of(Survey(devices=devices), PublishingNode(name=name, uid=uid, pool=POOL), NAMES, None)
        )

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(add, names))


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


def measure(bench: Bench, contender: Contender, nodes: Sequence[str]) -> Result:
    """Everything but what goes through a scheduler, with a scheduler that nobody runs."""
    nobody = f"nobody-{contender.scheduler}"
    pods = make_pods(bench, nobody, contender.resource, "asked", max(FILTERS, BINDS))
    filters, filtering = timed([{"Pod": pod, "NodeNames": nodes} for pod in pods[:FILTERS]], contender, "filter", 1)
    # The first nodes are promised to the pods that were filtered.
    bodies = [_binding(pod, node) for pod, node in zip(pods[:BINDS], reversed(nodes), strict=False)]
    binds, binding = timed(bodies, contender, "bind", AT_ONCE)
    rss = rss_mib(contender.pid)
    return Result(*_quantiles(filters), len(filters) / filtering, *_quantiles(binds), len(binds) / binding, rss)


def _binding(pod: Object, node: str) -> Object:
    metadata = pod["metadata"]
    names = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
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


def lane(bench: Bench, name: str, scheduler: str, resource: str, processes: Mapping[str, int]) -> Lane:
    shared = {process: bench.cluster.pid_of(process) for process in ("kube-apiserver", "etcd")}
    return Lane(name, scheduler, resource, {**processes, **shared})


def play(bench: Bench, lanes: Sequence[Lane], count: int) -> dict[str, Sequence[Round]]:
    """The rounds of so many pods, by the name of the lane."""
    for each in lanes:
        place(bench, each, f"warm-{count}", 1)
    found = [
        {each.name: place(bench, each, f"{count}-{number}", count) for each in lanes} for number in range(ROUNDS[count])
    ]
    for each in found:
        print(
            f"{count} pods:",
            ", ".join(f"{name} {taken.rate:.1f}" for name, taken in each.items()),
            "a second",
            flush=True,
        )
    return {each.name: [rounds[each.name] for rounds in found] for each in lanes}


def place(bench: Bench, lane: Lane, name: str, count: int) -> Round:
    """From the first pod's creation to the last one's node."""
    before = {process: cpu_seconds(pid) for process, pid in lane.processes.items()}
    started = time.perf_counter()
    make_pods(bench, lane.scheduler, lane.resource, name, count)
    deadline = started + PATIENCE_SECONDS
    while waiting := _waiting(bench, lane.scheduler, name):
        if time.perf_counter() > deadline:
            raise SystemExit(f"{lane.name} did not place {count} pods in {PATIENCE_SECONDS} s")
        time.sleep(max(LEAST_LOOK_SECONDS, waiting * LOOK_SECONDS))
    rate = count / (time.perf_counter() - started)
    cpu = {process: 1000 * (cpu_seconds(pid) - before[process]) / count for process, pid in lane.processes.items()}
    return Round(rate, cpu)


@contextmanager
def scheduler(bench: Bench, name: str, theirs: Contender | None) -> Iterator[int]:
    """The same kube-scheduler, alone or with the peer's configuration (its config/scheduler-policy-config.yaml); its
    process."""
    (health,) = free_ports(1)
    config = bench.folder / f"{name}-scheduler.json"
    settings = ALONE.get(name, {})
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
                **settings,
                "clientConnection": {
                    **settings.get("clientConnection", {}),
                    "kubeconfig": str(bench.cluster.kubeconfig),
                },
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
        yield process.pid
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


def _waiting(bench: Bench, scheduler: str, name: str) -> int:
    """Those without a node alone: a list of all of them would cost the API server what it is to place pods with."""
    selectors = f"labelSelector=run%3D{scheduler}-{name}&fieldSelector=spec.nodeName%3D"
    found = bench.cluster.api.get(f"/api/v1/namespaces/{TENANT}/pods?{selectors}") or {"items": []}
    return len(found["items"])


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    (kib,) = re.findall(r"VmRSS:\s+(\d+)", status)
    return int(kib) / 1024


def _quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000


def release_namespaces(bench: Bench) -> None:
    """There is no controller here that would end one when it is deleted."""
    for name in (SYSTEM, TENANT):
        path = f"/api/v1/namespaces/{name}"
        held = {**(bench.cluster.api.get(path) or {}), "spec": {"finalizers": []}}
        bench.cluster.api.request("PUT", f"{path}/finalize", held)


def print_answers(results: Mapping[str, tuple[Contender, Result]]) -> None:
    print(
        "| extender | filter p50, ms | p99, ms | filters/s | bind p50, ms | p99, ms | binds/s | RSS, MiB | at the end |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name, (contender, result) in results.items():
        values = (*vars(result).values(), rss_mib(contender.pid))
        print(f"| {name} | " + " | ".join(f"{value:.1f}" for value in values) + " |")


def print_rounds(lanes: Sequence[Lane], rounds: Mapping[int, Mapping[str, Sequence[Round]]]) -> None:
    """Medians; the CPU is that of the largest rounds that a lane had."""
    processes = ("kube-scheduler", "extender", "kube-apiserver", "etcd")
    heads = [f"{count} pods, pods/s" for count in rounds] + [f"{process}, ms of CPU a pod" for process in processes]
    print("\n| scheduler | " + " | ".join(heads) + " | together |")
    print("|---" * (len(heads) + 2) + "|")
    for each in lanes:
        rates = [_median(taken.rate for taken in found.get(each.name, ())) for found in rounds.values()]
        largest = [found[each.name] for found in rounds.values() if each.name in found][-1]
        cpu = [_median(taken.cpu[process] for taken in largest if process in taken.cpu) for process in processes]
        values = [*rates, *cpu, sum(value for value in cpu if value is not None)]
        print(f"| {each.name} | " + " | ".join("-" if value is None else f"{value:.1f}" for value in values) + " |")


def _median(values: Iterable[float]) -> float | None:
    found = [*values]
    return statistics.median(found) if found else None


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
