"""Destroys a stack many times, and reports lost objects (`python -m tests.e2e.destroys`).

Each round kills one to three runs of `up`. Half of the rounds also kill a run of `destroy`.
"""

import argparse
import secrets
import tempfile
import time
from pathlib import Path

from tests.support.e2e.history import history
from tests.support.e2e.interrupted_stack import InterruptedStack
from tests.support.e2e.lab import Lab
from tests.support.e2e.records_world import records_world
from tests.support.workspace import workspace
from toolchain.cluster import cluster
from toolchain.cluster.extent import Extent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.destroys", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lost = rounds(Path(folder), given.rounds, given.seed)
    print(f"seed {given.seed}: {given.rounds} destroys, {lost} objects lost or changed")
    if lost:
        raise SystemExit(1)


def rounds(folder: Path, count: int, seed: int) -> int:
    for made in ("files", "project"):
        (folder / made).mkdir()
    with (
        cluster.running(folder / "cluster", extent=Extent.REAL_NODE) as running,
        records_world(running, folder / "files") as world,
    ):
        lab = Lab(running, workspace(folder / "project"), "mine")
        with history(world) as address:
            done = lab.gpumem("init", "--stack", "mine", "--from", address)
        assert done.code == 0, done.text
        lab.succeed("preview")
        stack, before, lost = InterruptedStack.seeded(lab, seed), world.snapshot(), 0
        for number in range(1, count + 1):
            began = time.monotonic()
            kills = stack.destroyed_after_kills()
            changes = before.changes(world.snapshot())
            lost += len(changes)
            print(f"{number}: {'; '.join([*kills, *changes])} ({time.monotonic() - began:.0f} s)", flush=True)
    return lost


if __name__ == "__main__":
    main()
