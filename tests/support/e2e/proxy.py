"""Runs a TLS proxy between an agent and a real API server. The proxy causes faults, and records all requests."""

import http.client
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from toolchain.cluster import certificates
from toolchain.cluster.paths import Folder

_CHUNK = 1 << 16
_HOP_BY_HOP = {"connection", "content-length", "host", "transfer-encoding"}


@dataclass(kw_only=True)
class Fault:
    method: str
    path: str
    times: int = 1
    meanwhile: Callable[[], None] = lambda: None
    delay_seconds: float = 0
    body_bytes: int | None = None


@dataclass
class Exchange:
    method: str
    path: str
    status: int | None = None


@dataclass
class Proxy:
    port: int
    flows: threading.Event = field(default_factory=threading.Event)
    faults: list[Fault] = field(default_factory=list)
    record: list[Exchange] = field(default_factory=list)
    closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.flows.set()

    def statuses(self, method: str, path: str) -> list[int | None]:
        return [each.status for each in self.record if each.method == method and each.path.startswith(path)]

    def take(self, method: str, path: str) -> Fault:
        for fault in self.faults:
            if fault.times and fault.method == method and path.startswith(fault.path):
                fault.times -= 1
                return fault
        return Fault(method=method, path=path)


@contextmanager
def proxied(folder: Folder, server: str) -> Iterator[Proxy]:
    certificates.issue(folder.pki, "proxy", user="proxy", hosts=("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder.pki / "proxy.crt", folder.pki / "proxy.key")
    with _Listener(server, ssl.create_default_context(cafile=str(folder.ca))) as listener:
        listener.socket = context.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield listener.proxy
        finally:
            listener.proxy.closing.set()
            listener.proxy.flows.set()
            listener.shutdown()
            thread.join()


class _Listener(ThreadingHTTPServer):
    def __init__(self, upstream: str, trust: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = Proxy(int(self.server_address[1]))
        self._upstream, self._trust = urlsplit(upstream), trust

    def connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._upstream.hostname or "", self._upstream.port, context=self._trust)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener
    _exchange: Exchange

    def _serve(self) -> None:
        fault = self.server.proxy.take(self.command, self.path)
        self._exchange = Exchange(self.command, self.path)
        self.server.proxy.record.append(self._exchange)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault.meanwhile()
        self.server.proxy.closing.wait(fault.delay_seconds)
        try:
            self._pass_on(body, fault.body_bytes)
        except (OSError, http.client.HTTPException):
            self.close_connection = True

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve  # noqa: N815 (the base class's names)

    def _pass_on(self, body: bytes, body_bytes: int | None) -> None:
        with closing(self.server.connect()) as upstream:
            upstream.request(self.command, self.path, body or None, _kept(self.headers))
            answer = upstream.getresponse()
            self._head(answer.status, {**_kept(answer.headers), "Transfer-Encoding": "chunked"})
            self._stream(answer, body_bytes)

    def _stream(self, answer: http.client.HTTPResponse, left: int | None) -> None:
        """A delay would delay the events of watches."""
        while piece := answer.read1(_CHUNK):
            shown = piece[:left]
            if "watch=" in self.path:
                self.server.proxy.flows.wait()
            if shown:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(shown), shown))
            if left is not None and (left := left - len(shown)) == 0:
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self._exchange.status = status
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None: ...


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
