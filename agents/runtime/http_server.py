"""A small HTTP/1.1 server: a thread a connection, connections kept alive, answers in one packet, TLS where it is given.

Not http.server, which reads 100 headers of 64 KiB before it refuses them: anybody in the cluster reaches the port, and
20 connections take 120 MiB of an agent that may have 64. It also takes twice the CPU for a request.
"""

import http.client
import socket
import socketserver
import ssl
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from agents.runtime.errors import AgentError

_LINE_BYTES = 8 * 2**10
_HEADERS = 64
_SCRAPE_SECONDS = 5.0  # a client that says nothing
PLAIN = "text/plain; charset=utf-8"
SAMPLES = "text/plain; version=0.0.4; charset=utf-8"  # for Prometheus
JSON = "application/json"


@dataclass(frozen=True)
class HttpRequest:
    """What a client asks; `path` is without a query."""

    method: str
    path: str
    body: bytes = b""


@dataclass(frozen=True)
class HttpResponse:
    """The request that was sent."""

    status: int
    body: bytes
    kind: str = JSON

    def encoded(self, *, last: bool) -> bytes:
        """As it travels; after the `last` one the connection ends."""
        head = (
            f"HTTP/1.1 {self.status} {http.client.responses[self.status]}\r\n"
            f"Content-Type: {self.kind}\r\nContent-Length: {len(self.body)}\r\n"
        )
        return (head + ("Connection: close\r\n\r\n" if last else "\r\n")).encode("ascii") + self.body


def sentence(status: int, text: str) -> HttpResponse:
    """An answer for people."""
    return HttpResponse(status, f"{text}\n".encode(), PLAIN)


class Server(socketserver.ThreadingTCPServer):
    """Hands each request to `answer`, in the thread of its connection; host "" is every address of the machine.

    A request with a longer body than `body_bytes` is refused unread. Raises AgentError where the port is taken.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512  # a burst of binds opens as many connections

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[HttpRequest], HttpResponse],
        *,
        tls: ssl.SSLContext | None = None,
        idle_seconds: float,
        body_bytes: int = 0,
    ) -> None:
        if not host and socket.has_dualstack_ipv6():
            self.address_family = socket.AF_INET6
        self.answer = answer
        self.tls = tls
        self.idle_seconds = idle_seconds
        self.body_bytes = body_bytes
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise AgentError(f"cannot listen on port {port}: {error}") from None

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went, or that has no certificate of ours, is no error of the server's."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # as it was handed in


class MetricsSource(Protocol):
    """What a node agent serves: each answer is a status and a body."""

    def metrics(self) -> tuple[int, str]: ...

    def health(self) -> tuple[int, str]: ...


class MetricsServer(Server):
    """GET /metrics for Prometheus and GET /healthz for the kubelet, on every address."""

    def __init__(self, port: int, source: MetricsSource) -> None:
        super().__init__("", port, partial(answer_scrape, source), idle_seconds=_SCRAPE_SECONDS)


def answer_scrape(source: MetricsSource, request: HttpRequest) -> HttpResponse:
    """What the source answers to a request."""
    if request.method != "GET":
        status, body = http.client.METHOD_NOT_ALLOWED, "only GET is allowed\n"
    elif request.path == "/healthz":
        status, body = source.health()
    elif request.path == "/metrics":
        status, body = source.metrics()
    else:
        status, body = http.client.NOT_FOUND, "there are /metrics and /healthz\n"
    return HttpResponse(status, body.encode(), SAMPLES)


class _Handler(socketserver.StreamRequestHandler):
    server: Server
    disable_nagle_algorithm = True
    rbufsize = 64 * 2**10

    def setup(self) -> None:
        self.request.settimeout(self.server.idle_seconds)
        if self.server.tls is not None:
            # Here and not in the accepting thread, which a client without a word would hold.
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        last = False
        while not last:
            try:
                head = self._head()
                if head is None:
                    return
                request, last = self._request(*head)
            except ValueError as error:
                self.wfile.write(sentence(http.client.BAD_REQUEST, str(error)).encoded(last=True))
                return
            self.wfile.write(self.server.answer(request).encoded(last=last))

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def _head(self) -> tuple[bytes, Mapping[bytes, bytes]] | None:
        """The request line and the headers, their names in lower case; None where the client has no more to ask."""
        first = self._line()
        if not first:
            return None
        headers: dict[bytes, bytes] = {}
        for _ in range(_HEADERS):
            name, colon, value = self._line().rstrip(b"\r\n").partition(b":")
            if not name:
                return first, headers
            if not colon:
                raise ValueError("a header is malformed")
            headers[name.lower()] = value.strip()
        raise ValueError(f"there are over {_HEADERS} headers")

    def _line(self) -> bytes:
        line = self.rfile.readline(_LINE_BYTES)
        if len(line) == _LINE_BYTES:
            raise ValueError(f"a line is over {_LINE_BYTES} bytes")
        return line

    def _request(self, first: bytes, headers: Mapping[bytes, bytes]) -> tuple[HttpRequest, bool]:
        """The request, and whether it is the connection's last."""
        words = first.decode("ascii", errors="replace").split()
        if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
            raise ValueError("is no HTTP/1.1 request")
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers or not length.isdigit() or int(length) > self.server.body_bytes:
            raise ValueError(f"the body must have a Content-Length of at most {self.server.body_bytes}")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise ValueError("the body breaks off")
        last = words[2] == "HTTP/1.0" or headers.get(b"connection", b"").lower() == b"close"
        return HttpRequest(words[0], words[1].partition("?")[0], body), last
