"""Kills rollouts of many tenants at random moments, and then completes one (`python -m tests.e2e.kills`)."""

import argparse
import random
import secrets
import tempfile
from pathlib import Path

from agents.kube.slices import SLICES
from tests.support.e2e.killed_rollouts import KilledRollouts
from tests.support.e2e.rollout import Rollout
from tests.support.workspace import workspace
from toolchain.cluster import cluster, prod, simulated
from toolchain.cluster.cluster import Cluster
from toolchain.cluster.extent import Extent


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.kills", description=__doc__)
    parser.add_argument("--tenants", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=0, help="simulated nodes with a GPU")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster.running(Path(folder) / "cluster", extent=Extent.REAL_NODE) as running,
    ):
        add_gpu_nodes(running, given.nodes)
        rollout = Rollout(running, workspace(Path(folder)))
        rollout.init()
        moments = random.Random(given.seed)  # noqa: S311 (moments, not secrets)
        rollouts = KilledRollouts(rollout, given.tenants, moments)
        rollouts.declare()
        for number in range(given.kills):
            print(f"{number + 1}: {rollouts.kill(number)}", flush=True)
        print(rollouts.complete())
    print(f"seed {given.seed}: {given.kills} kills; the state and the cluster have the same objects")


def add_gpu_nodes(running: Cluster, count: int) -> None:
    labels, capacity = simulated.gpu_labels(sharing="time-slicing", replicas=100), {"nvidia.com/gpu": "100"}
    domain = prod.cluster_settings()["resource_domain"]
    for name in (f"gpu-{number}" for number in range(count)):
        running.api.create("/api/v1/nodes", simulated.node(name, labels=labels, resources=capacity))
        running.api.create(SLICES, simulated.devices(name, domain))


if __name__ == "__main__":
    main()
