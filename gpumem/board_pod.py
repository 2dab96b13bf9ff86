"""Serves the board in a pod of the cluster, with the rights of the pod's account."""

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from agents.kube.client import Api, Object, in_cluster
from agents.kube.paths import ApiPath
from agents.runtime import settings
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.http_client import fetch
from agents.runtime.open_server import OpenServer
from gpumem import board
from gpumem.board import Board
from gpumem.board_server import BoardPage

_SECONDS = 5


class InCluster:
    """Reads the API with one connection, and connects to pods by their addresses. Several threads may use it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._one = threading.Lock()
        self._addresses: dict[str, str] = {}

    @property
    def now(self) -> datetime | None:
        return self._api.time

    def get(self, path: str) -> Object:
        with self._one:
            return self._api.get(ApiPath(path))

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        with self._one:
            found = [*self._api.items(ApiPath(path), **parameters)]
        for each in found:
            if address := (each.get("status") or {}).get("podIP"):
                self._addresses[f"{each['metadata']['namespace']}/{each['metadata']['name']}"] = address
        yield from found

    def ask(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        address = self._addresses[f"{namespace}/{pod}"]
        return fetch(f"http://{f'[{address}]' if ':' in address else address}:{port}{path}")


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
        source = InCluster(Api(in_cluster(environ), clock=Clock()))

        def read() -> Board:
            found = board.read(source, given.ledger_namespace, lambda: given.ledger_namespace)
            return found if given.show_pods else board.without_names(found)

        page = BoardPage(read=read, path=None, seconds=_SECONDS)
        with OpenServer("", given.port, page.answer) as server:
            threading.Thread(target=page.keep, daemon=True).start()
            server.serve_forever()
    except AgentError as error:
        print(f"board: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
