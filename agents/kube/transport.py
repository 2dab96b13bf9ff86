"""Transports to the API server: verified TLS on one kept-alive connection, and a connection for each stream."""

import http.client
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 10.0
# No object is larger. etcd takes 1.5 MiB, and JSON may write a character as six bytes ("<" is \u003c).
OBJECT_BYTES = 10 * 2**20
_READ_BYTES = 64 * 2**10


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The API server's address, with the files of our token and of its CA."""

    host: str
    port: int
    token_file: Path
    ca_file: Path


@dataclass(frozen=True, kw_only=True)
class ApiRequest:
    """A request; `path` includes the query. Of a response over `most_bytes`, one byte more is read."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: str | None = None
    most_bytes: int = OBJECT_BYTES

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"


@dataclass(frozen=True, kw_only=True)
class ApiResponse:
    """A response of any status. The names of its headers are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    def read(self, seconds: float) -> bytes:
        """Returns some bytes, or b"" at the end and after the timeout. Raises OSError and HTTPException."""

    def stop(self) -> None:
        """Ends the stream, from any thread. The reader then gets the end of the stream or an error."""

    def close(self) -> None:
        """Closes the stream. Only the reader may call this."""


class Transport(Protocol):
    """Sends requests, in one thread; any thread may call `open`.

    Every method raises OSError and http.client.HTTPException.
    """

    def send(self, request: ApiRequest) -> ApiResponse:
        """Sends a request. Returns the whole response, unless it is larger than the request allows."""

    def open(self, request: ApiRequest) -> Stream | ApiResponse:
        """Returns a stream that the caller closes, or the whole response if its status is 400 or above."""

    def close(self) -> None:
        """Closes the connection. The next request opens a new one."""


@dataclass(frozen=True)
class HttpsStream:
    """A stream on its own connection."""

    connection: http.client.HTTPSConnection
    socket: socket.socket
    response: http.client.HTTPResponse

    def read(self, seconds: float) -> bytes:
        self.socket.settimeout(seconds)
        try:
            return self.response.read1(_READ_BYTES)
        except TimeoutError:
            return b""

    def stop(self) -> None:
        with suppress(OSError):  # the server closed the connection first
            # SSLSocket's own shutdown would take the session away from a thread that reads.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self.response.close()
        self.connection.close()


class Https:
    """The Transport to a real API server. Raises AgentError if the CA's certificate cannot be read."""

    def __init__(self, endpoint: Endpoint, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._tls = tls(endpoint.ca_file)
        self._connection = self._connect()

    def send(self, request: ApiRequest) -> ApiResponse:
        try:
            response = _whole(_response(self._connection, request), request.most_bytes)
            if len(response.body) > request.most_bytes:
                self.close()  # closes the connection, and so drops the rest of the body
            return response
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def open(self, request: ApiRequest) -> Stream | ApiResponse:
        connection = self._connect()
        try:
            connection.connect()
            stream = HttpsStream(connection, connection.sock, _response(connection, request))
            if stream.response.status < http.client.BAD_REQUEST:
                return stream
            refused = _whole(stream.response, request.most_bytes)
        except BaseException:
            connection.close()
            raise
        stream.close()
        return refused

    def close(self) -> None:
        self._connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self._endpoint.host, self._endpoint.port, timeout=self._timeout_seconds, context=self._tls
        )


def _response(connection: http.client.HTTPSConnection, request: ApiRequest) -> http.client.HTTPResponse:
    connection.request(request.method, request.path, request.body, request.headers)
    return connection.getresponse()


def _whole(response: http.client.HTTPResponse, most_bytes: int) -> ApiResponse:
    headers = {name.lower(): value for name, value in response.getheaders()}
    # A body that breaks off is noticed only if all of the body is read.
    whole = response.length is not None and response.length <= most_bytes
    body = response.read() if whole else response.read(most_bytes + 1)
    return ApiResponse(status=response.status, reason=response.reason, headers=headers, body=body)


def tls(ca_file: Path) -> ssl.SSLContext:
    """Returns the TLS context that trusts only the cluster's CA. Raises AgentError."""
    try:
        context = ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise AgentError(f"{ca_file}: the cluster's CA certificate cannot be read: {error}") from None
    # Chain, name and dates stay verified. Python 3.13's strict mode also wants key identifiers, which the CAs of many
    # clusters lack (kubernetes-client/python#2394).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
