"""Reads HTTP/1.1 requests and writes responses for the agents' servers. Does no I/O."""

import http.client
import re
from dataclasses import dataclass

HEAD_BYTES = 16 * 2**10  # the maximum size in bytes of the request line and all headers
HEAD_END = b"\r\n\r\n"
PLAIN = "text/plain; charset=utf-8"
SAMPLES = "text/plain; version=0.0.4; charset=utf-8"  # for Prometheus
JSON = "application/json"


@dataclass(frozen=True)
class HttpRequest:
    """A client's request. `path` does not include the query of the URL."""

    method: str
    path: str
    body: bytes = b""


@dataclass(frozen=True)
class HttpResponse:
    status: int
    body: bytes
    kind: str = JSON
    headers: tuple[str, ...] = ()  # further headers

    def encoded(self, *, last: bool) -> bytes:
        """Returns the bytes of the response. After the `last` response, the server closes the connection."""
        head = (
            f"HTTP/1.1 {self.status} {http.client.responses[self.status]}\r\n"
            f"Content-Type: {self.kind}\r\nContent-Length: {len(self.body)}\r\n"
        ) + "".join(f"{header}\r\n" for header in self.headers)
        return (head + ("Connection: close\r\n\r\n" if last else "\r\n")).encode("ascii") + self.body


def text_response(status: int, text: str) -> HttpResponse:
    return HttpResponse(status, f"{text}\n".encode(), PLAIN)


class RequestError(ValueError):
    """The server refuses the request, for the reason in the message."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The request line and the headers of a request. `last` is True if this request is the last one on its
    connection. `host` is the host in the client's URL, without the port.
    """

    method: str
    path: str
    host: str
    body_bytes: int
    last: bool


def read_head(text: bytes, most_body_bytes: int) -> Head:
    """Reads the request line and the headers. Raises RequestError, for example for a body that is too long."""
    first, *lines = text.split(b"\r\n")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise RequestError("a header is malformed")
        headers[name.lower()] = value.strip()
    words = first.decode("ascii", errors="replace").split()
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise RequestError("is not an HTTP/1.1 request")
    length = headers.get(b"content-length", b"0")
    # The code first checks the number of digits, because int() refuses very long numbers.
    if b"transfer-encoding" in headers or not length.isdigit() or len(length) > 18 or int(length) > most_body_bytes:
        raise RequestError(f"the body must have a Content-Length of at most {most_body_bytes}")
    last = words[2] == "HTTP/1.0" or headers.get(b"connection", b"").lower() == b"close"
    host = re.sub(r":\d*$", "", headers.get(b"host", b"").decode("ascii", errors="replace"))
    return Head(method=words[0], path=words[1].partition("?")[0], host=host, body_bytes=int(length), last=last)
