"""Kills rollouts of many tenants at random moments, and then completes one (`python -m tests.e2e.kills`)."""

import argparse
import random
import secrets
import tempfile
from pathlib import Path

from tests.support.e2e.killed_rollouts import KilledRollouts
from tests.support.e2e.rollout import Rollout
from toolchain.cluster import cluster
from toolchain.cluster.extent import Extent
from toolchain.workspace import workspace


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.kills", description=__doc__)
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.running(Path(folder) / "cluster", extent=Extent.REAL_NODE) as running,
    ):
        rollout = Rollout(running, workspace(Path(folder)))
        rollout.init()
        moments = random.Random(given.seed)  # noqa: S311 (moments, not secrets)
        rollouts = KilledRollouts(rollout, given.tenants, moments)
        rollouts.declare()
        for number in range(given.kills):
            print(f"{number + 1}: {rollouts.kill(number)}", flush=True)
        rollouts.complete()
    print(f"seed {given.seed}: {given.kills} kills; the state and the cluster have the same objects")


if __name__ == "__main__":
    main()
