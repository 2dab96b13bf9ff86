"""Starts and stops a temporary Kubernetes cluster on this machine, for `make up` and for tests."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from toolchain.cluster import cluster, node
from toolchain.cluster.cluster import Cluster
from toolchain.cluster.errors import ClusterError
from toolchain.cluster.extent import Extent
from toolchain.cluster.paths import TOOLCHAIN, Folder
from toolchain.cluster.supervisor import Supervisor

FOLDER = TOOLCHAIN / "clusters" / "default"
NO_NODE = "make cluster NODE=no starts a cluster without a real node, on which no agent can run"


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code of the command. After an error, prints the reason on stderr and returns 1."""
    parser = argparse.ArgumentParser(prog="python -m toolchain.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser("start", help="start a cluster, and print how to use it")
    start.add_argument("--no-node", action="store_true", help="without a real node, so no agent can run")
    commands.add_parser("stop", help="end it")
    run = commands.add_parser("run", help="hold a cluster in this process (what start leaves behind)")
    run.add_argument("folder", type=Path)
    run.add_argument("--held", action="store_true", help="end when standard input ends")
    run.add_argument("--extent", choices=[extent.value for extent in Extent], required=True)
    given = parser.parse_args(arguments)
    known = Cluster(Folder(FOLDER))
    try:
        match given.command:
            case "run":
                return Supervisor(Folder(given.folder), extent=Extent(given.extent)).run(until_input_ends=given.held)
            case "start":
                _start(known, with_node=not given.no_node)
            case "stop":
                _stop(known)
        return 0
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1


def _start(known: Cluster, *, with_node: bool) -> None:
    if known.pid is None:
        began = time.monotonic()
        if with_node and (reason := node.why_not()):
            raise ClusterError(f"{reason}\n  {NO_NODE}")
        cluster.start(known.folder.path, extent=Extent.REAL_NODE if with_node else Extent.SIMULATED)
        print(f"cluster: ready after {time.monotonic() - began:.0f} s")
    print(f"""Use it:  export KUBECONFIG={known.kubeconfig}
Logs:    {known.log(cluster.SUPERVISOR).parent}
End it:  make cluster-stop""")


def _stop(known: Cluster) -> None:
    if known.pid is not None:
        print("cluster: ends; Pulumi remembers what make up made on it, so run make refresh before make up on another")
    known.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
