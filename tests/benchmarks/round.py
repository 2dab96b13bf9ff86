"""What a round of all exporters costs who reads them: `python -m tests.benchmarks.round`.

As many exporters as a large cluster has nodes, and a ledger of as many seats, in one process without HTTP: how much is
served, and what the watchdog, the gate and the extender each spend on it in CPU. The table goes into
docs/benchmarks.md.
"""

import argparse
import time
from dataclasses import replace

from agents.exporter.attribution import DeviceUse
from agents.exporter.pod_names import OwnNode, Registry
from agents.node.cgroup import Container
from agents.node.pods import NodePod, Roster
from agents.telemetry.reading import parse
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.units import MIB
from tests.support.exporters import card, gauge
from tests.support.fake_cluster import DOMAIN, T4

POOLS = 10
PODS = 10  # on each node, on one device


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.round", description=__doc__)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--seats", type=int, default=1000)
    given = parser.parse_args()
    print("| nodes | pools | seats | series | MiB | CPU seconds a round |")
    print("|---|---|---|---|---|---|")
    for pools in (1, POOLS):
        text = served(pools, given.seats)
        series = sum(not line.startswith("#") for line in text.splitlines())
        size = len(text) * given.nodes / MIB
        seconds = spent(text, given.nodes)
        print(f"| {given.nodes} | {pools} | {given.seats} | {series * given.nodes} | {size:.1f} | {seconds:.2f} |")


def served(pools: int, seats: int) -> str:
    """What one node's exporter answers; the seats are spread over the pools."""
    ledger = Ledger(
        domain=DOMAIN,
        pools=tuple(_pool(number) for number in range(pools)),
        seats=tuple(
            Seat(name=f"seat-{number}", tenant=f"tenant-{number}", pool=f"pool-{number % pools}", gpumem_mib=1300)
            for number in range(seats)
        ),
    )
    pods = tuple(
        NodePod(namespace=f"tenant-{n}", name=f"pod-{n}", uid=f"uid-{n}", group_uid=f"uid-{n}", declared_mib=1300)
        for n in range(PODS)
    )
    use = DeviceUse(device=card(2360), used_bytes={Container(pod.uid, pod.uid): 1300 * MIB for pod in pods})
    node = OwnNode(uid="uid", labels=_pool(0).node_selector)
    status, text = gauge(use, age_seconds=1, registry=Registry(Roster(pods), ledger, (), node)).metrics()
    assert status == 200, text
    return text


def _pool(number: int) -> Pool:
    return replace(T4, name=f"pool-{number}", node_selector={"pool": str(number)})


def spent(text: str, nodes: int) -> float:
    """The least of three rounds."""
    rounds = []
    for _ in range(3):
        began = time.process_time()
        for _ in range(nodes):
            assert parse(text).devices
        rounds.append(time.process_time() - began)
    return min(rounds)


if __name__ == "__main__":
    main()
