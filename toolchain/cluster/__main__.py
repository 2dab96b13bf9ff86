"""`python -m toolchain.cluster`: a throw-away Kubernetes cluster on this machine, for `make up` and for tests."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from toolchain.cluster import cluster, home, node
from toolchain.cluster.cluster import Cluster
from toolchain.cluster.errors import ClusterError
from toolchain.cluster.extent import Extent
from toolchain.cluster.paths import TOOLCHAIN, Folder, program
from toolchain.cluster.supervisor import Supervisor

CLUSTERS = TOOLCHAIN / "clusters"
DEFAULT = "default"


def main(arguments: Sequence[str]) -> int:
    """0, or 1 with the reason on stderr; `status` is 1 where no cluster runs."""
    parser = argparse.ArgumentParser(prog="python -m toolchain.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (("start", "start a cluster"), ("stop", "end it"), ("status", "say whether it runs")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--name", default=DEFAULT, help="of the cluster; several run side by side")
    run = commands.add_parser("run", help="hold a cluster in this process (what start leaves behind)")
    run.add_argument("folder", type=Path)
    run.add_argument("--held", action="store_true", help="end when standard input ends")
    run.add_argument("--extent", choices=[extent.value for extent in Extent], required=True)
    given = parser.parse_args(arguments)
    try:
        match given.command:
            case "run":
                return Supervisor(Folder(given.folder), extent=Extent(given.extent)).run(until_input_ends=given.held)
            case "start":
                return _start(given.name)
            case "stop":
                return _stop(given.name)
            case _:
                return _status(Cluster(Folder(CLUSTERS / given.name)))
    except ClusterError as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1


def _start(name: str) -> int:
    known = Cluster(Folder(CLUSTERS / name))
    if known.pid is None:
        began, reason = time.monotonic(), node.why_not()
        if reason is not None:
            print(f"cluster: without a real node, so no agent will run: {reason}", file=sys.stderr)
        cluster.start(known.folder.path, extent=Extent.SIMULATED if reason else Extent.REAL_NODE)
        print(f"cluster: ready after {time.monotonic() - began:.0f} s")
    if name == DEFAULT:
        home.lend(known.kubeconfig, CLUSTERS, os.environ)
    return _status(known)


def _stop(name: str) -> int:
    known = Cluster(Folder(CLUSTERS / name))
    if known.pid is not None:
        print("cluster: ends; Pulumi remembers what make up made on it, so run make refresh before make up on another")
    known.stop()
    if name == DEFAULT:
        home.take_back(CLUSTERS, os.environ)
    return 0


def _status(known: Cluster) -> int:
    if known.pid is None:
        print("cluster: none runs")
        return 1
    name = known.folder.path.name
    end = "make cluster-stop" if name == DEFAULT else f".venv/bin/python -m toolchain.cluster stop --name {name}"
    print(f"""Use it:  {_use(known)}
Logs:    {known.log(cluster.SUPERVISOR).parent}
End it:  {end}""")
    return 0


def _use(known: Cluster) -> str:
    """How kubectl and make get at the cluster; the pinned kubectl where there is no other."""
    if known.folder.path.name != DEFAULT or not home.leads_to(CLUSTERS, os.environ):
        return f"export KUBECONFIG={known.kubeconfig}"
    kubectl = "kubectl" if shutil.which("kubectl") else program("kubectl")
    return f"make up, {kubectl} get nodes: there was no ~/.kube/config, so it leads here until the cluster is ended"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
