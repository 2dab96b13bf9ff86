"""The server of what is open to the cluster: pages for Prometheus, probes, other agents. One thread, whoever asks.

Anybody whom no NetworkPolicy keeps away reaches these ports, and the agents behind them have little memory and work to
do. So everything is bounded: how many connections there are, in all and from one address; how long each may take for a
request or for reading its answer; how large a request is; how often a page is made; how much of a CPU it all takes.
Who comes last is let in and the oldest goes, so that nobody who holds connections keeps another one out.
"""

import http.client
import ipaddress
import selectors
import socket
import threading
import time
import traceback
from collections.abc import Callable
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
    sentence,
)
from agents.runtime.http_server import EXHAUSTED, EXHAUSTED_SECONDS

CONNECTIONS = 64
# Not one or two: where a network translates addresses, several clients come from one.
CONNECTIONS_A_SOURCE = 8
# For a whole request, for reading its answer, and until the next one.
STEP_SECONDS = 5.0
# Within it a page is given again as it is.
AGAIN_SECONDS = 0.1
# Of one CPU, and how much of it may be saved up or owed.
CPU_SHARE = 0.5
CPU_SECONDS = 0.1
_AT_ONCE = 32
# The kernel's buffers of a connection: they count as the container's memory.
_RECEIVE_BYTES = HEAD_BYTES
_SEND_BYTES = 64 * 2**10
_REPEATED = (http.client.OK, http.client.SERVICE_UNAVAILABLE)


@dataclass(eq=False, kw_only=True)
class _Connection:
    """A client, from which address, until when it must have done what is next."""

    socket: socket.socket
    source: str
    due: float
    received: bytearray = field(default_factory=bytearray)
    to_send: memoryview = field(default_factory=lambda: memoryview(b""))
    last: bool = False


class OpenServer:
    """Hands each request, which has no body, to `answer`, one after the other; host "" is every address of the machine.

    Raises AgentError where the port is taken.
    """

    def __init__(self, host: str, port: int, answer: Callable[[HttpRequest], HttpResponse]) -> None:
        self._answer = answer
        self._pages: dict[HttpRequest, HttpResponse] = {}
        self._pages_at = 0.0
        self._connections: dict[_Connection, None] = {}  # as they are due
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
        """Until `shutdown`. It rests where it took more than its share of the CPU: the agent's work goes first."""
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
        """Ends `serve_forever`, in whichever thread, and returns after it; the end of the context does it, too."""
        self._stopping.set()
        self._rests.wait(STEP_SECONDS)

    def _turn(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._accept()
            elif key.data in self._connections:  # it may have been closed for another one meanwhile
                self._go_on(key.data)
        now = time.monotonic()
        while (oldest := next(iter(self._connections), None)) and oldest.due < now:
            self._close(oldest)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, address = self._listener.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    # Who waits stays in the kernel's queue. One connection less is one descriptor more.
                    if oldest := next(iter(self._connections), None):
                        self._close(oldest)
                    time.sleep(EXHAUSTED_SECONDS)
                return
            self._admit(client, address[0])

    def _admit(self, client: socket.socket, source: str) -> None:
        """In place of the oldest of the same address where that has its share, or of all where there are too many."""
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
        self._go_on(connection)  # its request is often there already: who is answered at once is pushed out by nobody

    def _go_on(self, connection: _Connection) -> None:
        """As far as it goes without waiting: it sends, else it reads once and answers what is whole."""
        try:
            if not connection.to_send:
                received = connection.socket.recv(HEAD_BYTES)
                if not received:
                    self._close(connection)
                    return
                connection.received += received
            while self._sent(connection) and (response := self._next(connection)):
                connection.to_send = memoryview(response.encoded(last=connection.last))
                self._renew(connection)
        except BlockingIOError:
            pass
        except OSError:  # a client that went is no error of the server's
            self._close(connection)

    def _sent(self, connection: _Connection) -> bool:
        """Whether all is sent and the connection stays."""
        if not connection.to_send:
            return True
        connection.to_send = connection.to_send[connection.socket.send(connection.to_send) :]
        waits = bool(connection.to_send)
        if not waits and connection.last:
            self._close(connection)
            return False
        wanted = selectors.EVENT_WRITE if waits else selectors.EVENT_READ
        if self._selector.get_key(connection.socket).events != wanted:
            self._selector.modify(connection.socket, wanted, connection)
        if not waits:
            self._renew(connection)
        return not waits

    def _next(self, connection: _Connection) -> HttpResponse | None:
        """The answer to the next request that is there as a whole."""
        text, end, rest = connection.received.partition(HEAD_END)
        try:
            if len(text) > HEAD_BYTES:
                raise RequestError(f"the headers are over {HEAD_BYTES} bytes")
            if not end:
                return None
            head = read_head(bytes(text), 0)
        except RequestError as error:
            connection.last = True
            return sentence(http.client.BAD_REQUEST, str(error))
        connection.received, connection.last = rest, head.last
        return self._page(HttpRequest(head.method, head.path, local=_is_loopback(connection.source)))

    def _page(self, request: HttpRequest) -> HttpResponse:
        """The answer, or the one that somebody else had a moment ago. What is nowhere is not kept: paths are many."""
        now = time.monotonic()
        if now - self._pages_at > AGAIN_SECONDS:
            self._pages, self._pages_at = {}, now
        if (kept := self._pages.get(request)) is not None:
            return kept
        try:
            response = self._answer(request)
        except Exception:  # noqa: BLE001 (a page that cannot be made must not end the other pages)
            traceback.print_exc()
            return sentence(http.client.INTERNAL_SERVER_ERROR, "this page could not be made; the agent's log says why")
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


def _is_loopback(source: str) -> bool:
    """Of an IPv4 address as a socket for both families shows it, too."""
    address = ipaddress.ip_address(source)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


class MetricsSource(Protocol):
    """What a node agent serves: each answer is a status and a body."""

    def metrics(self) -> tuple[int, str]: ...

    def health(self) -> tuple[int, str]: ...


class MetricsServer(OpenServer):
    """GET /metrics for Prometheus and GET /healthz for the kubelet, on every address."""

    def __init__(self, port: int, source: MetricsSource) -> None:
        super().__init__("", port, partial(answer_scrape, source))


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
