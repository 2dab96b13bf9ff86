"""What `kubectl gpumem` takes: `python -m tests.benchmarks.gpumem`, which fails above 2 s, of the largest above 5 s.

The file that `make plugin` writes and the pinned kubectl before a real API server, whose objects are of
tests/benchmarks/asked.py: nodes with an exporter each, and pods of the 8 KB that real ones have. Next to it
`kubectl get --raw` of the same lists, all at once, and of one exporter's page: kubectl's own time. In turn, and the
least of each, since other work on the machine makes them wait; CPU is of the command with kubectl, and of the API
server with etcd meanwhile. The table goes into docs/benchmarks.md.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tenancy.names import EXPORTER
from tests.benchmarks import asked
from tests.benchmarks.asked import EXPORTERS, PORT, Size
from tests.benchmarks.informers import NODES, PODS, SLICES
from toolchain import plugin
from toolchain.cluster.cluster import Cluster
from toolchain.cluster.paths import program

COMMANDS = ("who", "who -o json", "free", f"why -n team-0 {asked.WAITS}", "fit 20000")
# Of each cluster: what is typed, and how many seconds it may take.
SMALL = Size(nodes=2, devices=4, tenants=2, seats=2, pods=20)
USUAL = Size(nodes=200, devices=4, tenants=20, seats=200, pods=2000)
LARGE = Size(nodes=1000, devices=8, tenants=20, seats=4000, pods=4000)
ASKED = {SMALL: (COMMANDS, 2.0), USUAL: (COMMANDS, 2.0), LARGE: (("fit 20000", "fit 23552 --replicas 4001"), 5.0)}
LISTS = (NODES, PODS, SLICES, f"/api/v1/namespaces/{EXPORTERS}/pods/{EXPORTER}-0:{PORT}/proxy/metrics")
KUBECTL = "`kubectl get --raw` of the same"


@dataclass
class Taken:
    """By try, in seconds: of wall time, of the CPU of the command with kubectl, and of the API server's with etcd's."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)


def measure(made: Cluster, act: Callable[[], object], taken: Taken) -> None:
    def server() -> float:
        return sum(map(asked.cpu_seconds, asked.pids(made)))

    def ours() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before, served, began = ours(), server(), time.perf_counter()
    act()
    taken.wall.append(time.perf_counter() - began)
    taken.cpu.append(ours() - before)
    taken.server.append(server() - served)


def typed(folder: Path, made: Cluster, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join((str(folder), str(Path(program("kubectl")).parent), os.environ["PATH"]))
    env = {"PATH": path, "HOME": str(folder), "KUBECONFIG": str(made.kubeconfig)}
    return subprocess.Popen(arguments, env=env, stdout=subprocess.DEVNULL)


def all_of(folder: Path, made: Cluster, commands: Sequence[Sequence[str]]) -> None:
    """Side by side. Raises SystemExit where one fails."""
    for process in [typed(folder, made, command) for command in commands]:
        if process.wait() not in (0, 3):
            raise SystemExit(f"{process.args}: status {process.returncode}")


def rows(folder: Path, made: Cluster, commands: Sequence[str], tries: int) -> dict[str, Taken]:
    """Each command's, and kubectl's."""
    lists = [["kubectl", "get", "--raw", path] for path in LISTS]
    found = {KUBECTL: (Taken(), lists)}
    found |= {f"`{each}`": (Taken(), [[str(folder / plugin.NAME), *each.split()]]) for each in commands}
    for _ in range(tries):
        for taken, typed in found.values():
            measure(made, lambda typed=typed: all_of(folder, made, typed), taken)  # type: ignore[misc]
    return {name: taken for name, (taken, _) in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.gpumem", description=__doc__)
    parser.add_argument("--tries", type=int, default=7)
    parser.add_argument("--nodes", type=int, help="of one cluster alone: 2, 200 or 1000")
    given, slow = parser.parse_args(), False
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        plugin.main(folder)
        print(
            "| cluster | command | wall, s | beyond kubectl, s | CPU, s | API server's CPU, s |\n"
            "|---|---|---|---|---|---|"
        )
        for size, (commands, limit_seconds) in ASKED.items():
            if given.nodes not in (None, size.nodes):
                continue
            with asked.running(size) as cluster:
                found = rows(folder, cluster, commands, given.tries)
            own = min(found[KUBECTL].wall)
            for name, taken in found.items():
                slow |= min(taken.wall) > limit_seconds
                beyond = "" if name == KUBECTL else f"{min(taken.wall) - own:.2f}"
                cells = [str(size), name, f"{min(taken.wall):.2f}", beyond, f"{min(taken.cpu):.2f}"]
                print(f"| {' | '.join([*cells, f'{min(taken.server):.2f}'])} |", flush=True)
    print(f"\nload: {os.getloadavg()[0]:.0f}")
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
