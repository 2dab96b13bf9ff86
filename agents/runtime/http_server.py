"""The agents' HTTP server, with a thread for each connection.

NetworkPolicies let only the platform reach it, so a bound on the threads and a timeout are enough.
"""

import http.client
import socket
import socketserver
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from agents.runtime.errors import AgentError
from agents.runtime.http_message import SAMPLES, HttpRequest, HttpResponse, text_response

CONNECTIONS = 32
_SILENT_SECONDS = 5.0  # A client of which nothing arrives for so long within a request is left.


class Server(ThreadingHTTPServer):
    """Answers each GET and POST with `answer`, in the thread of its connection.

    With the host "", the server listens on every address. Closes a new connection while `connections` others are open.
    After a response, a connection stays open for `idle_seconds`. Refuses a request with a body of more than
    `body_bytes` without reading the body. Raises AgentError if the port is in use.
    """

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[HttpRequest], HttpResponse],
        *,
        connections: int = CONNECTIONS,
        idle_seconds: float = 0.0,
        body_bytes: int = 0,
    ) -> None:
        self.answer = answer
        self.idle_seconds = idle_seconds
        self.body_bytes = body_bytes
        self.request_queue_size = connections
        self._slots = threading.Semaphore(connections)
        if not host and socket.has_dualstack_ipv6():
            self.address_family = socket.AF_INET6
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise AgentError(f"cannot listen on port {port}: {error}") from None

    def server_bind(self) -> None:
        """Binds to IPv4 and IPv6, and doesn't look up the host's name in DNS, as the base class does."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: object, client_address: object) -> None:
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)  # type: ignore[arg-type]  # as it was handed in
            return
        try:
            super().process_request(request, client_address)  # type: ignore[arg-type]
        except RuntimeError:  # the process cannot start another thread
            self._slots.release()
            raise

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores the errors of a closed connection."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as it was handed in


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    rbufsize = 64 * 2**10

    def setup(self) -> None:
        self.request.settimeout(self.server.idle_seconds or _SILENT_SECONDS)
        super().setup()

    def do_GET(self) -> None:
        request = self._request()
        self.close_connection |= request is None or not self.server.idle_seconds
        if request is None:
            response = text_response(
                http.client.BAD_REQUEST, f"the body must have a Content-Length of at most {self.server.body_bytes}"
            )
        else:
            response = self._response(request)
        self.wfile.write(response.encoded(last=self.close_connection))

    def do_POST(self) -> None:
        self.do_GET()

    def _request(self) -> HttpRequest | None:
        """Reads the body. Returns None if the body is too long, or has no valid length, or breaks off."""
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > self.server.body_bytes:
            return None
        body = self.rfile.read(int(length))
        return HttpRequest(self.command, self.path.partition("?")[0], body) if len(body) == int(length) else None

    def _response(self, request: HttpRequest) -> HttpResponse:
        try:
            return self.server.answer(request)
        except Exception:  # noqa: BLE001 (the client shall have an answer, and the log the error)
            traceback.print_exc()
            return text_response(
                http.client.INTERNAL_SERVER_ERROR, "this page could not be made; the agent's log says why"
            )

    def log_message(self, *_: object) -> None:
        """Doesn't log requests."""


class MetricsSource(Protocol):
    """An agent that serves metrics and health. Both methods return an HTTP status and a body."""

    def metrics(self) -> tuple[int, str]: ...

    def health(self) -> tuple[int, str]: ...


class MetricsServer(Server):
    """Serves GET /metrics for Prometheus and GET /healthz for the kubelet, on every address."""

    def __init__(self, port: int, source: MetricsSource) -> None:
        super().__init__("", port, partial(answer_scrape, source))


def answer_scrape(source: MetricsSource, request: HttpRequest) -> HttpResponse:
    if request.method != "GET":
        status, body = http.client.METHOD_NOT_ALLOWED, "only GET is allowed\n"
    elif request.path == "/healthz":
        status, body = source.health()
    elif request.path == "/metrics":
        status, body = source.metrics()
    else:
        status, body = http.client.NOT_FOUND, "there are /metrics and /healthz\n"
    return HttpResponse(status, body.encode(), SAMPLES)
