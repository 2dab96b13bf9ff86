"""Serves the page of `kubectl gpumem board`. A thread reads the cluster, and only while somebody reads the page."""

import argparse
import gc
import http.client
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from agents.kube.kubectl import Kubectl
from agents.runtime.errors import AgentError
from agents.runtime.http_message import HttpRequest, HttpResponse, text_response
from agents.runtime.http_server import Server
from gpumem import board
from gpumem.board import Board
from gpumem.cluster import check_namespace
from gpumem.draw_board import CONTENT_SECURITY_POLICY, board_page

_LOOPBACK = "127.0.0.1"
_IDLE_INTERVALS = 4  # without a reader for this time, the board no longer reads the cluster
_PATIENCE_SECONDS = 3.0  # the time that the first reader after an idle time waits for new numbers
_HEADERS = (
    f"Content-Security-Policy: {CONTENT_SECURITY_POLICY}",
    "Cache-Control: no-store",
    "Cross-Origin-Resource-Policy: same-origin",
    "Referrer-Policy: no-referrer",
    "X-Content-Type-Options: nosniff",
)


@dataclass(kw_only=True)
class BoardPage:
    """The page at `path`, or at every path. Any number of readers cause one reading of the cluster in `seconds`, made
    by `read`.
    """

    read: Callable[[], Board]
    path: str | None
    seconds: int = 5
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        """Reads the cluster for the first page. Raises AgentError."""
        self._changed = threading.Condition()
        self._asked_at = self.clock()
        self._board = self.read()
        self._page = board_page(self._board, self.seconds).encode()

    def answer(self, request: HttpRequest) -> HttpResponse:
        if request.method != "GET":
            return text_response(http.client.METHOD_NOT_ALLOWED, "only GET is allowed")
        if self.path is None and request.path == "/healthz":
            return text_response(http.client.OK, "ok")
        if self.path not in (None, request.path):
            return text_response(http.client.NOT_FOUND, "the output of kubectl gpumem board has the URL of the page")
        with self._changed:
            was_idle, self._asked_at = self._is_idle(), self.clock()
            if was_idle:
                self._changed.notify_all()
                self._changed.wait(_PATIENCE_SECONDS)
            return HttpResponse(http.client.OK, self._page, "text/html; charset=utf-8", _HEADERS)

    def serve(self, host: str, port: int) -> None:
        """Serves the page, and prints the URL of a page with a path. Does not return."""
        with Server(host, port, self.answer) as server:
            if self.path is not None:
                print(f"http://{host}:{server.server_address[1]}{self.path}", flush=True)
            threading.Thread(target=self.keep, daemon=True).start()
            server.serve_forever()

    def refresh(self) -> None:
        """Reads the cluster once. After an error, the page has the last numbers and the error."""
        problem = ""
        try:
            self._board = self.read()
        except AgentError as error:
            problem = str(error)
            print(f"board: {error}", file=sys.stderr)
        except Exception as error:  # noqa: BLE001 (an error in one report must not end the page)
            problem = repr(error)
            traceback.print_exc()
        if problem and not self._board.named:  # the error can have the name of a pod
            problem = "the cluster could not be read; the log of the board has the reason"
        page = board_page(self._board, self.seconds, problem).encode()
        with self._changed:
            self._page = page
            self._changed.notify_all()

    def keep(self) -> None:
        """Reads the cluster every few seconds, while the page has readers. Does not return."""
        while True:
            time.sleep(self.seconds)
            with self._changed:
                self._changed.wait_for(lambda: not self._is_idle())
            self.refresh()
            gc.collect()

    def _is_idle(self) -> bool:
        return self.clock() - self._asked_at > _IDLE_INTERVALS * self.seconds


def serve(given: argparse.Namespace, kubectl: Kubectl) -> None:
    """Serves the board on the loopback address, for the user with the URL. Other users of the machine lack the URL."""
    if given.namespace:
        check_namespace(kubectl, given.namespace)

    def read() -> Board:
        own = given.namespace
        return board.read(kubectl, given.system_namespace, lambda: own or kubectl.namespace(), own)

    page = BoardPage(read=read, path=f"/{secrets.token_urlsafe(12)}/", seconds=given.interval)
    page.serve(_LOOPBACK, given.port)
