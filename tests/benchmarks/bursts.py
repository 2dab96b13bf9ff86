"""Compares how fast kube-scheduler places pods with our extender and alone. Run `python -m tests.benchmarks.bursts
[--nodes 64] [--pods 100] [--bursts 16]`. The table is in docs/choosing/benchmarks.md.

kwok simulates the nodes. The API server, both kube-schedulers and the extender are real. A burst of one scheduler
follows a burst of the other.
"""

import argparse
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tenancy import names
from tests.support.e2e.extending import POOL, TENANT, Bench, advertised, placement
from tests.support.e2e.rollout import Object
from tests.support.waiting import eventually
from toolchain.cluster import cluster, simulated
from toolchain.cluster.extent import Extent

UNBOUND = f"/api/v1/namespaces/{TENANT}/pods?fieldSelector=spec.nodeName%3D&limit=1"
MIB, DEVICES_MIB = 3000, (24576,) * 4
SCHEDULERS = {"kube-scheduler with the extender": names.SCHEDULER_NAME, "kube-scheduler alone": "default-scheduler"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bursts", description=__doc__)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--bursts", type=int, default=16)
    given = parser.parse_args()
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in SCHEDULERS}
    with tempfile.TemporaryDirectory() as folder, cluster.running(Path(folder), extent=Extent.SIMULATED) as started:
        (work := Path(folder) / "placing").mkdir()
        with placement(started, work) as bench:
            add_nodes(bench, given.nodes)
            bench.start_pod("gpu-tenancy-scheduler-0")
            for number in range(given.bursts + 1):
                for name, scheduler in SCHEDULERS.items():
                    found = burst(bench, scheduler, given.pods)
                    if number:  # The first bursts warm up.
                        took[name].append(found)
            bench.nodes.clear()  # The cluster ends with its nodes.
    print(f"| {given.pods} pods on {given.nodes} nodes, median of {given.bursts} | pods a second | CPU ms of a pod |")
    print("|---|---|---|")
    rates = {}
    for name, bursts in took.items():
        rates[name] = statistics.median(given.pods / seconds for seconds, _ in bursts)
        print(f"| {name} | {rates[name]:.0f} | {statistics.median(cpu for _, cpu in bursts) / given.pods * 1000:.1f} |")
    ratios = [alone / ours for (ours, _), (alone, _) in zip(*took.values(), strict=True)]
    print(f"| ratio, median of the pairs | {statistics.median(ratios):.2f} | |")


def add_nodes(bench: Bench, count: int) -> None:
    def add(name: str) -> None:
        resources = advertised(name, DEVICES_MIB)
        node = simulated.node(name, labels=POOL.node_selector, resources=resources)
        bench.cluster.api.create("/api/v1/nodes", node)
        bench.nodes[name] = DEVICES_MIB
        bench.publish(name)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, (f"cards-{number}" for number in range(count))))
    eventually(lambda: all(map(simulated.is_ready, listed(bench, "/api/v1/nodes"))), "all nodes are Ready")


def burst(bench: Bench, scheduler: str, pods: int) -> tuple[float, float]:
    """Returns the seconds from the first creation to the last binding, and the CPU seconds of the whole machine."""
    began, before = time.monotonic(), busy_seconds()
    bench.create_all({f"burst-{number}": MIB for number in range(pods)}, schedulerName=scheduler)
    eventually(lambda: not listed(bench, UNBOUND), f"{pods} pods are bound", pause_seconds=0.02)
    found = time.monotonic() - began, busy_seconds() - before
    bench.clear()
    time.sleep(2)  # The extender and both schedulers forget the pods.
    return found


def listed(bench: Bench, path: str) -> list[Object]:
    return list((bench.cluster.api.get(path) or {"items": ()})["items"])


def busy_seconds() -> float:
    """Returns the seconds that all processors have computed (proc_stat(5): user, nice and system)."""
    fields = Path("/proc/stat").read_text().split(maxsplit=4)[1:4]
    return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
