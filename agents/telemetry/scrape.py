"""Scrapes many exporters at the same time, in one thread. Limits the time and the size of each response."""

import http.client
import io
import re
import selectors
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import urlsplit

from agents.runtime import http_client
from agents.runtime.http_client import FetchError
from agents.runtime.items import Unjudged, judged

# The maximum number of open connections. All their responses are in host memory at the same time.
AT_ONCE = 64
_CHUNK_BYTES = 64 * 2**10
_HEAD_BYTES = 16 * 2**10  # the maximum size of the status line and all headers
# The head of an exporter's response without a proxy in between (agents/runtime/http_message.py). For any other head,
# http.client reads the response, and needs more CPU time than the rest of the scrape.
_USUAL_HEAD = re.compile(
    rb"HTTP/1\.1 200 OK\r\nContent-Type: [^\r\n]*\r\nContent-Length: (\d{1,9})\r\nConnection: close\r\n\r\n"
)

Page = bytes | Unjudged


def scrape(urls: Iterable[str]) -> Iterator[tuple[str, Page]]:
    """Yields each URL with its body, or with the error. Takes a URL from `urls` when its request can start.

    The host in a URL must be an IP address, because a name's resolution would block all scrapes. The time that the
    caller needs between two results does not count for the timeouts.
    """
    waiting = iter(urls)
    with closing(_Connections()) as connections:
        while True:
            started = [(url, connections.start(url)) for url in islice(waiting, AT_ONCE - len(connections))]
            yield from ((url, error) for url, error in started if error is not None)
            if connections:
                yield from connections.step()
            elif not started:
                return


@dataclass(eq=False, kw_only=True)
class _Connection:
    """A request to an exporter. `request` is empty after the request is sent. `due` is the time of the timeout."""

    url: str
    socket: socket.socket
    request: bytes
    due: float
    received: bytearray = field(default_factory=bytearray)

    def receive(self) -> bytes | None:
        """Receives all bytes that have arrived. Returns the body after the end of the response. Raises FetchError,
        OSError, HTTPException.
        """
        try:
            while chunk := self.socket.recv(_CHUNK_BYTES):
                self.received += chunk
                if len(self.received) > _HEAD_BYTES + http_client.LIMIT_BYTES:
                    raise self._too_large()
        except BlockingIOError:
            return None
        return self._page()

    def _page(self) -> bytes:
        usual = _USUAL_HEAD.match(self.received)
        if usual and int(usual[1]) == len(self.received) - usual.end():
            body = bytes(self.received[usual.end() :])
        else:
            response = http.client.HTTPResponse(self)  # type: ignore[arg-type]  # it needs only `makefile`
            response.begin()
            body = response.read()
            if response.status != http.client.OK:
                detail = body[:200].decode(errors="replace").strip()
                raise FetchError(f"{self.url}: HTTP {response.status}: {detail or response.reason}")
        if len(body) > http_client.LIMIT_BYTES:
            raise self._too_large()
        return body

    def makefile(self, mode: str) -> io.BytesIO:
        """Returns the received bytes. HTTPResponse calls this method."""
        return io.BytesIO(self.received)

    def _too_large(self) -> FetchError:
        return FetchError(f"{self.url}: the answer is over {http_client.LIMIT_BYTES} bytes")


class _Connections:
    """The open connections. The time stands still between two calls of `step`."""

    def __init__(self) -> None:
        self._open: dict[_Connection, None] = {}  # sorted by `due`
        self._selector = selectors.DefaultSelector()
        self._now = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        for each in self._open:
            each.socket.close()
        self._selector.close()

    def start(self, url: str) -> Unjudged | None:
        """Opens a connection. Returns an error if the URL is invalid or no route leads to its host."""
        try:
            parts = urlsplit(url)
            request = f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode("ascii")
            client = _connecting(parts.hostname or "", parts.port or 80)
        except (OSError, ValueError) as error:
            return Unjudged(FetchError(f"{url}: {error}"))
        due = self._now + http_client.TOTAL_SECONDS
        connection = _Connection(url=url, socket=client, request=request, due=due)
        self._open[connection] = None
        self._selector.register(client, selectors.EVENT_WRITE, connection)
        return None

    def step(self) -> list[tuple[str, Page]]:
        """Waits until a connection is ready or late. Returns the results of all connections that have ended."""
        ended: list[tuple[str, Page]] = []
        began = time.monotonic()
        for key, _ in self._selector.select(max(0.0, next(iter(self._open)).due - self._now)):
            page = self._advance(key.data)
            if page is not None:
                ended.append(self._end(key.data, page))
        # `_now` is the time before `select`, so a response that arrived in time counts even if this process was slow.
        while self._open and (oldest := next(iter(self._open))).due <= self._now:
            late = f"{oldest.url}: no complete answer within {http_client.TOTAL_SECONDS:g} s"
            ended.append(self._end(oldest, Unjudged(FetchError(late))))
        self._now += time.monotonic() - began
        return ended

    def _advance(self, connection: _Connection) -> Page | None:
        """Returns the body or the error after the end of the response, and None before."""
        page = judged(lambda: self._exchange(connection))
        if isinstance(page, Unjudged) and not isinstance(page.error, FetchError):
            return Unjudged(FetchError(f"{connection.url}: {page.why}"))
        return page

    def _exchange(self, connection: _Connection) -> bytes | None:
        """Sends the request, or receives. Returns the body after the end of the response. Raises FetchError, OSError,
        HTTPException.
        """
        if not connection.request:
            return connection.receive()
        connection.socket.send(connection.request)
        connection.request = b""
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)
        return None

    def _end(self, connection: _Connection, page: Page) -> tuple[str, Page]:
        del self._open[connection]
        self._selector.unregister(connection.socket)
        connection.socket.close()
        return connection.url, page


def _connecting(host: str, port: int) -> socket.socket:
    """Begins to connect to an IP address. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    family, kind, protocol, _, address = found[0]
    client = socket.socket(family, kind, protocol)
    client.setblocking(False)
    try:
        with suppress(BlockingIOError):
            client.connect(address)
    except OSError:
        client.close()
        raise
    return client
