"""What a node agent serves: GET /metrics to Prometheus, GET /healthz to the kubelet."""

import http.client
import socket
import socketserver
from http.server import BaseHTTPRequestHandler
from typing import Protocol


class Source(Protocol):
    """What is served: each answer is a status and a body."""

    def metrics(self) -> tuple[int, str]: ...

    def health(self) -> tuple[int, str]: ...


class Server(socketserver.ThreadingTCPServer):
    """Listens on every address. Not http.server's own, which looks up the host's name in DNS before it listens."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, source: Source) -> None:
        self.address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
        self.source = source
        super().__init__(("", port), _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


class _Handler(BaseHTTPRequestHandler):
    timeout = 5.0  # a client that says nothing
    wbufsize = -1  # headers and body in one packet
    server: Server

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer(*self.server.source.health())
        elif self.path == "/metrics":
            self._answer(*self.server.source.metrics())
        else:
            self._answer(http.client.NOT_FOUND, "there are /metrics and /healthz\n")

    def _answer(self, status: int, body: str) -> None:
        content = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """No line for each scrape."""
