"""Compares the time of `preflight` with the time of a kubectl command that only lists the pods. Run `python -m
tests.benchmarks.preflight [--pods 500]`. The table is in docs/choosing/benchmarks.md.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.e2e import given_world
from tests.support.e2e.plugin import environ
from tests.support.e2e.server import ApiServer, api_server
from tests.support.given_clusters import GPU, of_deployment, record_0000
from tests.support.paths import ROOT

MOST_SECONDS, RUNS, REPLICAS = 5.0, 5, 5
BARE = """
import sys
from agents.kube.pods import LIVE, PODS
from gpumem.kubectl import Kubectl
with Kubectl(sys.argv[1:]) as kubectl:
    print(sum(1 for _ in kubectl.items(PODS, **LIVE)))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.preflight", description=__doc__)
    parser.add_argument("--pods", type=int, default=2000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, api_server(Path(folder)) as server:
        fill(server, given.pods)
        flags = [f"--kubeconfig={server.kubeconfig}"]
        python(folder, "-m", "gpumem", "init", "--stack", "mine", *flags)
        bare = seconds(folder, "-c", BARE, *flags)
        took = seconds(folder, "-m", "gpumem", "preflight", "--stack", "mine", *flags)
    print(f"| {given.pods} pods, median of {RUNS} runs | seconds |\n|---|---|")
    print(f"| a plain loop that lists the pods | {bare:.1f} |\n| `kubectl gpumem preflight` | {took:.1f} |")
    if took > MOST_SECONDS:
        raise SystemExit(f"that is more than {MOST_SECONDS:g} s")


def fill(server: ApiServer, pods: int) -> None:
    cluster = record_0000()
    cluster.runtime_classes = [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}]
    cluster.namespaces["many"] = {}
    given_world.write(server, cluster)
    more = [
        pod
        for number in range((pods - len(cluster.pods)) // REPLICAS)
        for pod in of_deployment(f"app-{number}", "many", replicas=REPLICAS, limits={} if number % 10 else {GPU: "1"})
    ]
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(given_world.create_pod, server, pod) for pod in more]:
            done.result()


def seconds(folder: str, *arguments: str) -> float:
    found = []
    for _ in range(RUNS):
        began = time.monotonic()
        python(folder, *arguments)
        found.append(time.monotonic() - began)
    return statistics.median(found)


def python(folder: str, *arguments: str) -> None:
    command: Sequence[str] = (sys.executable, *arguments)
    env = {**environ(), "PYTHONPATH": os.fspath(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or done.stderr:
        raise SystemExit(done.stderr)


if __name__ == "__main__":
    main()
