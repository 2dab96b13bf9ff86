"""Serves metrics and health to Prometheus, the kubelet and other agents, in one thread.

Without a NetworkPolicy, any pod of the cluster can reach the agents' open ports. The agents have little host memory, so
the server limits the connections in total and from one address. The server also limits the time of each connection and
the size of each request. The server limits its CPU time, and makes each response at most once in AGAIN_SECONDS. When
too many connections are open, a new connection replaces the oldest, so that no client can block all others.
"""

import http.client
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, Self

from agents.runtime.errors import AgentError
from agents.runtime.http_message import (
    HEAD_BYTES,
    HEAD_END,
    SAMPLES,
    HttpRequest,
    HttpResponse,
    RequestError,
    read_head,
    text_response,
)
from agents.runtime.http_server import EXHAUSTED, EXHAUSTED_SECONDS

CONNECTIONS = 64
# The maximum number of connections from one address. Several clients can have the same address because of NAT.
CONNECTIONS_A_SOURCE = 8
# A client must send its whole request within this time, and then read the whole response within the same time.
STEP_SECONDS = 5.0
# The seconds for which the server repeats a stored response instead of making a new response.
AGAIN_SECONDS = 0.1
# The fraction of one CPU that the server may use. The second number is the maximum CPU time in seconds that the server
# can save or owe.
CPU_SHARE = 0.5
CPU_SECONDS = 0.1
_AT_ONCE = 32
# The sizes of a connection's kernel buffers, which count as host memory of the container.
_RECEIVE_BYTES = HEAD_BYTES
_SEND_BYTES = 64 * 2**10
_REPEATED = (http.client.OK, http.client.SERVICE_UNAVAILABLE)


@dataclass(eq=False, kw_only=True)
class _Connection:
    """A client of the server, and its address. The client must send or read before the monotonic time `due`."""

    socket: socket.socket
    source: str
    due: float
    received: bytearray = field(default_factory=bytearray)
    to_send: memoryview = field(default_factory=lambda: memoryview(b""))


class OpenServer:
    """Answers one request after the other with `answer`. Each connection has only one request, without a body.

    With the host "", the server listens on every address. Raises AgentError if the port is in use. With `names`, the
    server refuses a request for a host with another name. A web page of an attacker can resolve its own host name to
    the server's address, and could then read the response (DNS rebinding).
    """

    def __init__(
        self, host: str, port: int, answer: Callable[[HttpRequest], HttpResponse], names: Collection[str] = ()
    ) -> None:
        self._answer = answer
        self._names = names
        self._pages: dict[HttpRequest, HttpResponse] = {}
        self._pages_at = 0.0
        self._connections: dict[_Connection, None] = {}  # sorted by `due`
        self._selector = selectors.DefaultSelector()
        self._stopping, self._rests = threading.Event(), threading.Event()
        self._rests.set()
        dual = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=512, dualstack_ipv6=dual)
        except OSError as error:
            raise AgentError(f"cannot listen on port {port}: {error}") from None
        self._listener.setblocking(False)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.server_address = self._listener.getsockname()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        for each in list(self._connections):
            self._close(each)
        self._selector.close()
        self._listener.close()

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Serves until `shutdown`. Sleeps after the server has used more CPU time than allowed."""
        self._rests.clear()
        saved, at = CPU_SECONDS, time.monotonic()
        try:
            while not self._stopping.is_set():
                before = time.thread_time()
                self._turn(poll_interval)
                now = time.monotonic()
                saved += (now - at) * CPU_SHARE - (time.thread_time() - before)
                saved, at = max(-CPU_SECONDS, min(saved, CPU_SECONDS)), now
                if saved < 0:
                    time.sleep(-saved / CPU_SHARE)
        finally:
            self._rests.set()

    def shutdown(self) -> None:
        """Ends `serve_forever`, and waits for its end. Any thread may call this method. The end of the server's `with`
        block also calls this method.
        """
        self._stopping.set()
        self._rests.wait(STEP_SECONDS)

    def _turn(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept()
            elif key.data in self._connections:  # a new connection may have replaced this connection
                self._advance(key.data)
        now = time.monotonic()
        while (oldest := next(iter(self._connections), None)) and oldest.due < now:
            self._close(oldest)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, address = self._listener.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    # If no file descriptor is free, new clients wait in the kernel's queue. A closed connection frees a
                    # file descriptor.
                    if oldest := next(iter(self._connections), None):
                        self._close(oldest)
                    time.sleep(EXHAUSTED_SECONDS)
                return
            self._admit(client, address[0])

    def _admit(self, client: socket.socket, source: str) -> None:
        """Adds the connection of a client. If too many connections are open, in total or from one address, closes the
        oldest connection.
        """
        same = [each for each in self._connections if each.source == source]
        if len(same) >= CONNECTIONS_A_SOURCE:
            self._close(same[0])
        elif len(self._connections) >= CONNECTIONS:
            self._close(next(iter(self._connections)))
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(socket=client, source=source, due=0)
        self._selector.register(client, selectors.EVENT_READ, connection)
        self._renew(connection)
        self._advance(connection)  # the request may have arrived already

    def _advance(self, connection: _Connection) -> None:
        """Reads or sends once without waiting, and closes the connection after the response."""
        try:
            if not connection.to_send:
                received = connection.socket.recv(HEAD_BYTES)
                connection.received += received
                if (response := self._response(bytes(connection.received))) is None:
                    if not received:
                        self._close(connection)
                    return
                connection.to_send = memoryview(response.encoded(last=True))
                self._renew(connection)
                self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
            connection.to_send = connection.to_send[connection.socket.send(connection.to_send) :]
            if not connection.to_send:
                self._close(connection)
        except BlockingIOError:
            pass
        except OSError:  # the client has closed the connection
            self._close(connection)

    def _response(self, received: bytes) -> HttpResponse | None:
        text, end, _ = received.partition(HEAD_END)
        try:
            if len(text) > HEAD_BYTES:
                raise RequestError(f"the headers are over {HEAD_BYTES} bytes")
            if not end:
                return None
            head = read_head(text, 0)
        except RequestError as error:
            return text_response(http.client.BAD_REQUEST, str(error))
        if self._names and head.host not in self._names:
            return text_response(http.client.MISDIRECTED_REQUEST, f"the host must be {' or '.join(self._names)}")
        return self._page(HttpRequest(head.method, head.path))

    def _page(self, request: HttpRequest) -> HttpResponse:
        """Returns the response to the request. For AGAIN_SECONDS, returns the stored response to an equal request.

        Stores only responses with status 200 or 503, so that requests for many unknown paths do not fill the host
        memory.
        """
        now = time.monotonic()
        if now - self._pages_at > AGAIN_SECONDS:
            self._pages, self._pages_at = {}, now
        if (kept := self._pages.get(request)) is not None:
            return kept
        try:
            response = self._answer(request)
        except Exception:  # noqa: BLE001 (a page that cannot be made must not end the other pages)
            traceback.print_exc()
            return text_response(
                http.client.INTERNAL_SERVER_ERROR, "this page could not be made; the agent's log says why"
            )
        if response.status in _REPEATED:
            self._pages[request] = response
        return response

    def _renew(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)
        connection.due = time.monotonic() + STEP_SECONDS
        self._connections[connection] = None

    def _close(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)
        self._selector.unregister(connection.socket)
        connection.socket.close()


class MetricsSource(Protocol):
    """An agent that serves metrics and health. Both methods return an HTTP status and a body."""

    def metrics(self) -> tuple[int, str]: ...

    def health(self) -> tuple[int, str]: ...


class MetricsServer(OpenServer):
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
