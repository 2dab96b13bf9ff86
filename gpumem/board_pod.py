"""Serves the board in a pod of the cluster, with the rights of the pod's account."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from agents.kube.client import Api, in_cluster
from agents.runtime import settings
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from gpumem import board
from gpumem.board_server import BoardPage
from gpumem.in_cluster import InCluster


@dataclass(frozen=True)
class Settings:
    """The environment variables. With `show_pods`, the page has the names of pods."""

    ledger_namespace: str = settings.variable(settings.text)
    port: int = settings.variable(settings.PORT)
    show_pods: bool = settings.variable(settings.flag)


def main(environ: Mapping[str, str]) -> int:
    """Serves until the process is stopped. If the cluster cannot be read at the start, returns the exit status 1."""
    try:
        given = settings.read(Settings, environ)
        source, system = InCluster(Api(in_cluster(environ), clock=Clock())), given.ledger_namespace
        shown = (lambda found: found) if given.show_pods else board.without_names
        BoardPage(read=lambda: shown(board.read(source, system, lambda: system)), path=None).serve("", given.port)
    except AgentError as error:
        print(f"board: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
