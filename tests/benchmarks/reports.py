"""Measures `kubectl gpumem` beside `kubectl get pods -A`, in turns on one API server: `python -m
tests.benchmarks.reports [--runs 9]`.

The table is in docs/choosing/benchmarks.md. The cluster has 256 pods on eight nodes, and no exporters, because nothing
runs the pods.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.benchmarks.__main__ import Took
from tests.support.e2e.server import NAMESPACES, ApiServer
from tests.support.fake_cluster import SYSTEM, T4
from tests.support.kubectl import LEDGER_OF_PROD, api, device_slice, node, pod
from toolchain import plugin
from toolchain.cluster import cluster
from toolchain.cluster.api import MERGE
from toolchain.cluster.extent import Extent
from toolchain.cluster.paths import TOOLCHAIN

NODES, PODS = 8, 256
BASELINE = ("kubectl", "get", "pods", "-A")
COMMANDS = (
    ("kubectl-gpumem", "who"),
    ("kubectl-gpumem", "why", "-n", "immich", "waits"),
    ("kubectl-gpumem", "status"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.reports", description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="counted runs of each command, after one warm-up")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plugin.main(Path(folder, "bin"))
        with cluster.running(Path(folder, "cluster"), extent=Extent.API_SERVER) as started:
            fill(ApiServer(started.api, started.kubeconfig))
            programs = (str(Path(folder, "bin")), str(Path(sys.executable).parent), str(TOOLCHAIN / "bin"))
            path = os.pathsep.join((*programs, os.environ["PATH"]))
            env = {**os.environ, "PATH": path, "KUBECONFIG": str(started.kubeconfig)}
            print("| command | seconds | kubectl get pods -A | ratio | CPU seconds | ratio of CPU |")
            print("|---|---|---|---|---|---|")
            for command in COMMANDS:
                pairs = [(took(command, env), took(BASELINE, env)) for _ in range(given.runs + 1)][1:]
                print(row(command, pairs), flush=True)


def took(command: Sequence[str], env: dict[str, str]) -> Took:
    """Runs one command. Its exit code may say that a pod waits, but not that the command failed."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode in (1, 2):
        raise SystemExit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(time.monotonic() - start, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def row(command: Sequence[str], pairs: Sequence[tuple[Took, Took]]) -> str:
    ours, theirs, cpu = (
        statistics.median(found)
        for found in (
            [each.seconds for each, _ in pairs],
            [each.seconds for _, each in pairs],
            [each.cpu_seconds for each, _ in pairs],
        )
    )
    ratio = statistics.median(a.seconds / b.seconds for a, b in pairs)
    of_cpu = statistics.median(a.cpu_seconds / b.cpu_seconds for a, b in pairs)
    return f"| {command[1]} | {ours:.2f} | {theirs:.2f} | {ratio:.1f} | {cpu:.2f} | {of_cpu:.1f} |"


def fill(server: ApiServer) -> None:
    """Creates a ledger, its nodes with their devices, and pods with and without a GPU."""
    names = [f"node-{number}" for number in range(NODES)]
    ledger = replace(LEDGER_OF_PROD, pools=(replace(T4, nodes=NODES), *LEDGER_OF_PROD.pools[1:]), queue_tenants=())
    pods = [pod("waits", 3000)]
    pods += [pod(f"web-{number}", on=names[number % NODES], namespace=f"web-{number % 16}") for number in range(PODS)]
    pods += [pod(f"seat-{number}", 3000, on=name) for number, name in enumerate(names)]
    for namespace in sorted({SYSTEM, *(each["metadata"]["namespace"] for each in pods)}):
        server.create(NAMESPACES, {"metadata": {"name": namespace}})
    for path, item in api(ledger=ledger).objects.items():
        if "/configmaps/" in path:
            create(server, path.rpartition("/")[0], item)
    for name in names:
        create(server, "/api/v1/nodes", node(name))
        create(server, "/apis/resource.k8s.io/v1/resourceslices", device_slice(name, 15360))
    for each in pods:
        containers = [{**container, "image": "busybox"} for container in each["spec"]["containers"]]
        path = f"{NAMESPACES}/{each['metadata']['namespace']}/pods"
        create(server, path, {**each, "spec": {**each["spec"], "containers": containers}})


def create(server: ApiServer, path: str, item: dict[str, Any]) -> None:
    metadata = {key: item["metadata"][key] for key in ("name", "labels", "annotations") if key in item["metadata"]}
    server.create(path, {**item, "metadata": metadata})
    if status := item.get("status"):
        server.request("PATCH", f"{path}/{metadata['name']}/status", {"status": status}, content_type=MERGE)


if __name__ == "__main__":
    main()
