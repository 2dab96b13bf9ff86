"""The requests and responses of the agents' HTTP server. Does no I/O."""

import http.client
from dataclasses import dataclass

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
