"""The time of a filter and of a bind of the extender, with 1,000 nodes of 8 devices.

`python -m tests.benchmarks.extender`

The API server is real. The extender is asked over mutual TLS, as kube-scheduler asks: filters one after the other, each
about all nodes; then binds, eight at once. docs/benchmarks.md has the figures.
"""

import argparse
import http.client
import json
import os
import re
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.e2e.extending import NAMES, SYSTEM, TENANT, Bench, placement
from tests.support.e2e.scheduler_pod import SchedulerPod
from toolchain.cluster import cluster, simulated
from toolchain.cluster.extent import Extent

DEVICES, DEVICE_MIB, POD_MIB = 8, 16384, 2000
FILTERS, BINDS, AT_ONCE = 300, 100, 8

Object = Mapping[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.extender", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000, help="at least 100")
    count = parser.parse_args().nodes
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.running(Path(folder) / "cluster", extent=Extent.API_SERVER) as running,
        placement(running, Path(folder)) as bench,
        ThreadPoolExecutor(AT_ONCE) as threads,
    ):
        nodes = [f"cards-{number:04}" for number in range(count)]
        list(threads.map(lambda node: add_node(bench, node), nodes))
        pod = bench.start_extender("ours")
        connect = connector(pod)
        pods = list(threads.map(lambda number: create_pod(bench, number), range(FILTERS)))
        filters, filtering = timed([{"Pod": each, "NodeNames": nodes} for each in pods], connect, "filter", 1)
        # The first nodes are promised to the pods that were filtered.
        bodies = [binding(each, node) for each, node in zip(pods[:BINDS], reversed(nodes), strict=False)]
        binds, binding_seconds = timed(bodies, connect, "bind", AT_ONCE)
        print("| filter p50, ms | p99, ms | filters/s | bind p50, ms | p99, ms | binds/s | RSS, MiB |")
        print("|---|---|---|---|---|---|---|")
        values = (
            *quantiles(filters),
            len(filters) / filtering,
            *quantiles(binds),
            len(binds) / binding_seconds,
            rss_mib(pod.processes["extender"].pid),
        )
        print(f"| {' | '.join(f'{value:.1f}' for value in values)} |")
        bench.nodes.clear()  # they end with the cluster
        release_namespaces(bench)
    print(f"load: {os.getloadavg()}")


def add_node(bench: Bench, name: str) -> None:
    """Adds a node that nobody plays: the extender reads its labels, its capacity and its devices alone."""
    resources = {NAMES.gpumem: str(DEVICES * DEVICE_MIB)}
    bench.cluster.api.create("/api/v1/nodes", simulated.node(name, labels={"pool": "cards"}, resources=resources))
    bench.nodes[name] = (DEVICE_MIB,) * DEVICES
    bench.publish(name)


def connector(pod: SchedulerPod) -> Callable[[], http.client.HTTPConnection]:
    """Opens connections to the extender's verbs with kube-scheduler's certificate."""
    keys = pod.folder / "certificates"
    tls = ssl.create_default_context(cafile=keys / "ca.crt")
    tls.load_cert_chain(keys / "client.crt", keys / "client.key")
    port = int(pod.environment["VERBS_PORT"])
    return lambda: http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=60)


def create_pod(bench: Bench, number: int) -> Object:
    """A pod that no scheduler places."""
    container = {"name": "main", "image": "busybox:1.37.0", "resources": {"limits": {NAMES.gpumem: str(POD_MIB)}}}
    return bench.cluster.api.create(
        f"/api/v1/namespaces/{TENANT}/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"asked-{number}"},
            "spec": {"schedulerName": "nobody", "containers": [container]},
        },
    )


def binding(pod: Object, node: str) -> Object:
    metadata = pod["metadata"]
    names = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"]}
    return {**names, "Node": node}


def timed(
    bodies: Sequence[Object], connect: Callable[[], http.client.HTTPConnection], verb: str, at_once: int
) -> tuple[list[float], float]:
    """Returns the seconds of each request, and of all together. Each thread has its own connection."""
    connections = [connect() for _ in range(at_once)]
    for connection in connections:
        connection.connect()

    def ask(lane: int) -> list[float]:
        seconds = []
        for body in bodies[lane::at_once]:
            content = json.dumps(body)
            started = time.perf_counter()
            connections[lane].request("POST", f"/{verb}", content, {"Content-Type": "application/json"})
            answer = json.loads(connections[lane].getresponse().read())
            seconds.append(time.perf_counter() - started)
            if problem := answer.get("Error"):
                raise SystemExit(f"{verb}: {problem}")
        return seconds

    started = time.perf_counter()
    with ThreadPoolExecutor(at_once) as threads:
        lanes = list(threads.map(ask, range(at_once)))
    total = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return [each for lane in lanes for each in lane], total


def quantiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile, in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return cuts[49] * 1000, cuts[98] * 1000


def rss_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def release_namespaces(bench: Bench) -> None:
    """Deletes the namespaces, since no controller runs that would empty and end them."""
    for name in (SYSTEM, TENANT):
        path = f"/api/v1/namespaces/{name}"
        bench.cluster.api.request("DELETE", path)
        ending = {**(bench.cluster.api.get(path) or {}), "spec": {"finalizers": []}}
        bench.cluster.api.request("PUT", f"{path}/finalize", ending)


if __name__ == "__main__":
    main()
