"""Measures the time of a preview (`make bench`, or `make bench ARGS="--tenants 10 100 --runs 3"`).

Each command runs in turn with a baseline, because the speed of the machine changes. The table is in
docs/choosing/benchmarks.md.
"""

import argparse
import copy
import ctypes
import json
import math
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacks.platform import build as build_platform
from stacks.settings import load_file
from tests.support.engine import build
from tests.support.paths import ROOT
from tests.support.workspace import Workspace, workspace

BENCH = Path(__file__).parent
_PR_SET_CHILD_SUBREAPER = 36  # Source: include/uapi/linux/prctl.h.
SEATS_A_DEVICE = 4  # The number of seats of 3000 MiB that fit on a device if 14,000 MiB are for budgets.


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each command, after one warm-up")
    parser.add_argument("--tenants", type=int, nargs="*", default=[10, 100, 1000], help="sizes of the generated stacks")
    parser.add_argument("--queues", type=int, nargs="*", default=[50], help="numbers of ClusterQueues, in 5 cohorts")
    arguments = parser.parse_args()
    adopt()
    with tempfile.TemporaryDirectory() as folder:
        print("| preview of | resources | seconds | baseline | seconds | ratio | ratio of CPU |")
        print("|---|---|---|---|---|---|---|")
        bench = Bench(workspace(Path(folder)), arguments.runs)
        bench.size("prod", lambda config: None)
        for tenants in arguments.tenants:
            bench.size(f"{tenants} tenants", lambda config, tenants=tenants: grow(config, tenants))
        for queues in arguments.queues:
            bench.size(f"{queues} queues", lambda config, queues=queues: add_queues(config, queues))


def grow(config: dict[str, Any], tenants: int) -> None:
    pool = config["pools"]["t4"]
    pool |= {"nodes": math.ceil(tenants / SEATS_A_DEVICE) + 1, "floor_mib": pool["reserve_mib"]}
    for number in range(tenants):
        name = f"tenant-{number}"
        # The engine's limit of 128 KiB leaves no space for 1,000 tenants with groups of people.
        config["tenants"][name] = {}
        config["residents"][name] = {"tenant": name, "pool": "t4", "gpumem_mib": 3000}


def add_queues(config: dict[str, Any], queues: int) -> None:
    config["pools"]["batch"]["nodes"] += queues
    for pool in ("batch", "node-4"):  # prod's selector for the queue batch names a single node
        config["pools"][pool]["node_selector"]["example.com/pool"] = pool
    del config["pools"]["batch"]["node_selector"]["kubernetes.io/hostname"]
    for number in range(queues):
        name = f"queue-{number}"
        config["tenants"][name] = {}
        config["queues"]["cluster_queues"][name] = {
            "quotas": {"gpu-any": {"nvidia.com/gpu": {"nominal": 1, "borrowing_limit": 1}}},
            "cohort": f"cohort-{number % 5}",
            "preemption": {"within_cluster_queue": "LowerPriority", "reclaim_within_cohort": "Any"},
        }
        config["queues"]["local_queues"][name] = {"tenant": name, "cluster_queue": name}


class Bench:
    def __init__(self, space: Workspace, runs: int) -> None:
        self.space = space
        self.runs = runs
        self.stack_file = space.stack_file.read_text()
        # The relative path to the Python environment is valid only in this folder.
        self.bare_project = Path(shutil.copytree(BENCH / "bare", space.folder / "tests" / "benchmarks" / "bare"))
        for name, place in ((".venv", space.folder), (".toolchain", self.bare_project)):
            (place / name).symlink_to(ROOT / name)

    def size(self, title: str, change: Callable[[dict[str, Any]], None]) -> None:
        self.space.stack_file.write_text(self.stack_file)
        self.space.change(copy.copy(change))
        settings = load_file(self.space.stack_file)
        graph = build(lambda: build_platform(settings, ROOT))
        objects = [(r.type, dict(r.inputs)) for r in graph.resources if r.type.startswith("kubernetes:")]
        path = self.space.folder / "objects.json"
        path.write_text(json.dumps(objects))
        count = len(graph.resources) + 1
        self.row(f"{title}, no pack", count, self.ours, "plain program", lambda: self.bare(path))
        if title == "prod":
            self.row(f"{title}, no pack", count, self.ours, "empty program", lambda: self.bare(None))
        pack, empty = ROOT / "policy", BENCH / "empty_pack"
        self.row(f"{title}, our pack", count, lambda: self.ours(pack), "empty pack", lambda: self.ours(empty))

    def row(self, title: str, count: int, ours: Callable[[], None], name: str, baseline: Callable[[], None]) -> None:
        pairs = [(timed(ours), timed(baseline)) for _ in range(self.runs + 1)][1:]
        first, second = (statistics.median(each.seconds for each in column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(a.seconds / b.seconds for a, b in pairs)
        cpu = statistics.median(a.cpu_seconds / b.cpu_seconds for a, b in pairs)
        print(f"| {title} | {count} | {first:.1f} | {name} | {second:.1f} | {ratio:.2f} | {cpu:.2f} |", flush=True)

    def ours(self, pack: Path | None = None) -> None:
        self._preview(self.space.project, "prod", pack)

    def bare(self, objects: Path | None) -> None:
        env = {"BENCH_OBJECTS": str(objects)} if objects else {}
        self._preview(self.bare_project, "bare", None, **env)

    def _preview(self, project: Path, stack: str, pack: Path | None, **env: str) -> None:
        gate: Sequence[str] = ("--policy-pack", str(pack)) if pack else ()
        selected = self.space.pulumi("stack", "select", "--create", "--stack", stack, cwd=project)
        arguments = ("preview", "--stack", stack, "--suppress-outputs", "--suppress-progress", *gate)
        # The SDK of the empty policy pack prints a port without flushing, so the output must be unbuffered.
        outcome = self.space.pulumi(*arguments, cwd=project, PYTHONUNBUFFERED="1", **env)
        if selected.code or outcome.code:
            raise SystemExit(f"the preview failed:\n{selected.text}\n{outcome.text[-4000:]}")


@dataclass(frozen=True)
class Took:
    seconds: float
    cpu_seconds: float


def timed(run: Callable[[], None]) -> Took:
    start, before = time.monotonic(), _cpu_seconds()
    run()
    seconds = time.monotonic() - start
    return Took(seconds, _cpu_seconds() - before)


def adopt() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _cpu_seconds() -> float:
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
