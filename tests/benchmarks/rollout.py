"""Compares `up` with Pulumi alone on a cluster (`python -m tests.benchmarks.rollout [--runs 3]`).

Both commands roll out prod from the same state, with the same program and policy pack, in turns. Pulumi alone is
`pulumi up --yes`, which also previews the stack. The ratios are medians of all pairs. The table is in
docs/choosing/benchmarks.md.
"""

import argparse
import itertools
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.benchmarks.__main__ import Took, adopt
from tests.support.e2e.rollout import Rollout
from tests.support.paths import ROOT
from tests.support.workspace import workspace
from toolchain.cluster import cluster
from toolchain.cluster.extent import Extent

BUDGET_MIB = 4000  # Each run with another budget takes one MiB more.
PLAINLY = ("up", "--yes", "--policy-pack", str(ROOT / "policy"), "--suppress-outputs", "--suppress-progress")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.rollout", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="pairs of each row")
    given = parser.parse_args()
    adopt()
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.running(Path(folder) / "cluster", extent=Extent.REAL_NODE) as running,
    ):
        rollout, budgets = Rollout(running, workspace(Path(folder))), itertools.count(BUDGET_MIB)

        def change_a_budget() -> None:
            mib = next(budgets)
            rollout.workspace.change(lambda config: config["residents"]["llama-swap"].update(gpumem_mib=mib))

        rollout.succeed("up")
        rollout.let_run(())  # The runs of the agents would take CPU time of some pairs.
        print("| `up` of prod | seconds | Pulumi alone | ratio of seconds | ratio of CPU time |\n|---|---|---|---|---|")
        row("without a change", rollout, lambda: None, given.runs)
        row("with one changed budget", rollout, change_a_budget, given.runs)


def row(title: str, rollout: Rollout, change: Callable[[], None], runs: int) -> None:
    def ours() -> None:
        rollout.succeed("up")

    def plain() -> None:
        env = {"KUBECONFIG": str(rollout.cluster.kubeconfig), "PULUMI_SKIP_CHECKPOINTS": "true"}
        outcome = rollout.workspace.pulumi(*PLAINLY, "--stack", "prod", cwd=rollout.workspace.project, **env)
        assert outcome.code == 0, outcome.text

    pairs = []
    for _ in range(runs):
        took = []
        for command in (ours, plain):
            change()
            took.append(timed(command))
        pairs.append(took)
    seconds = [statistics.median(pair[which].seconds for pair in pairs) for which in (0, 1)]
    ratio = statistics.median(first.seconds / second.seconds for first, second in pairs)
    cpu = statistics.median(first.cpu_seconds / second.cpu_seconds for first, second in pairs)
    print(f"| {title} | {seconds[0]:.1f} | {seconds[1]:.1f} | {ratio:.2f} | {cpu:.2f} |", flush=True)


def timed(run: Callable[[], None]) -> Took:
    start, before = time.monotonic(), _cpu_seconds()
    run()
    seconds = time.monotonic() - start
    return Took(seconds, _cpu_seconds() - before)


def _cpu_seconds() -> float:
    """Returns the CPU time of all processes that have ended. The cluster is a child that goes on."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
