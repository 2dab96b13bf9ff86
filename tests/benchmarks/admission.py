"""Measures the CPU time that the API server needs to create a pod or to update a pod's status, with and without prod's
admission policies. Run `python -m tests.benchmarks.admission [--pods 100]`.

The table is in docs/choosing/benchmarks.md.

The API server makes a dry run of each request, so that the storage and the number of pods have no influence.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.e2e.admitted import GPUMEM, Pod, container, create, pod, put_into_force
from tests.support.e2e.server import NAMESPACES, ApiServer
from toolchain.cluster import cluster
from toolchain.cluster.api import MERGE, ApiAnswer
from toolchain.cluster.extent import Extent

ROUNDS, SETTLES_SECONDS = 9, 10
SEAT = pod(container(limits={GPUMEM: "3000"}))
CREATED = {
    "a seat's pod in an exempt namespace": ("nvidia", SEAT),
    "a seat's pod in its tenant": ("immich", SEAT),
    "a pod without a GPU in a tenant": ("signoz", pod()),
}
UPDATED = {
    "the status of a seat's pod in an exempt namespace": ("nvidia", SEAT),
    "the status of a seat's pod in its tenant": ("immich", SEAT),
}
Request = Callable[[], ApiAnswer]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.admission", description=__doc__)
    parser.add_argument("--pods", type=int, default=100)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.running(Path(folder), extent=Extent.API_SERVER) as started,
    ):
        server, process = ApiServer(started.api, started.kubeconfig), started.pid_of("kube-apiserver")
        put_into_force(server)
        time.sleep(SETTLES_SECONDS)
        requests = {
            **{f"create {case}": creation(server, *made) for case, made in CREATED.items()},
            **{f"update {case}": update(server, *made) for case, made in UPDATED.items()},
        }
        took: dict[str, list[float]] = {case: [] for case in requests}
        for number in range(ROUNDS + 1):
            for case, request in requests.items():
                seconds = answering(process, request, given.pods)
                if number:  # The first round warms up.
                    took[case].append(seconds / given.pods * 1000)
    print(f"| CPU of the API server for a request, median of {ROUNDS} times {given.pods} | ms |\n|---|---|")
    for case, found in took.items():
        print(f"| {case} | {statistics.median(found):.1f} |")


def creation(server: ApiServer, namespace: str, created: Pod) -> Request:
    return lambda: create(server, namespace, created)


def update(server: ApiServer, namespace: str, created: Pod) -> Request:
    path = f"{NAMESPACES}/{namespace}/pods"
    server.create(path, {**created, "metadata": {**created["metadata"], "name": "updated"}})
    status = {"status": {"phase": "Running"}}
    return lambda: server.request("PATCH", f"{path}/updated/status?dryRun=All", status, content_type=MERGE)


def answering(process: int, request: Request, times: int) -> float:
    before = cpu_seconds(process)
    for _ in range(times):
        answer = request()
        if answer.refusal is not None:
            raise SystemExit(answer.refusal)
    return cpu_seconds(process) - before


def cpu_seconds(process: int) -> float:
    """Returns the seconds that the process has computed (proc_pid_stat(5), utime and stime)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
