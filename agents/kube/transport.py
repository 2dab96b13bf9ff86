"""Connections to the API server over verified TLS. One persistent connection is for requests, and each stream has a
connection of its own.
"""

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
# The maximum size of an object as JSON. etcd stores at most 1.5 MiB. JSON may need six bytes for a character, such as
# \u003c for "<".
OBJECT_BYTES = 10 * 2**20
_READ_BYTES = 64 * 2**10


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The API server's address, and the files with the agent's token and the API server's CA."""

    host: str
    port: int
    token_file: Path
    ca_file: Path


@dataclass(frozen=True, kw_only=True)
class ApiRequest:
    """A request. `path` includes the query of the URL.

    From a larger body, the transport reads only `most_bytes` and one additional byte. The additional byte shows that
    the body is too large.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: str | None = None
    most_bytes: int = OBJECT_BYTES

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"


@dataclass(frozen=True, kw_only=True)
class ApiResponse:
    """A response of the API server with any status. The names of headers are in lower case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    def read(self, seconds: float) -> bytes:
        """Returns the next bytes of the stream, or b"" at its end or after the timeout. Raises OSError and
        HTTPException.
        """

    def stop(self) -> None:
        """Ends the stream. Any thread may call this method. The reader of the stream then gets the end of the stream or
        an error.
        """

    def close(self) -> None:
        """Closes the stream. Only the reading thread of the stream may call this method."""


class Transport(Protocol):
    """Sends requests to the API server. One thread calls `send` and `close`. Any thread may call `open`.

    Every method may raise OSError and http.client.HTTPException.
    """

    def send(self, request: ApiRequest) -> ApiResponse:
        """Sends a request. Returns the response with its body. The body has at most one byte more than `most_bytes`."""

    def open(self, request: ApiRequest) -> Stream | ApiResponse:
        """Sends a request. Returns a stream, or a response with status 400 or above. The caller must close
        the stream.
        """

    def close(self) -> None:
        """Closes the connection. The next request of the transport opens a new connection."""


@dataclass(frozen=True)
class HttpsStream:
    """A stream of the API server on its own connection."""

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
        with suppress(OSError):  # The API server may have closed the connection.
            # The transport does not call SSLSocket.shutdown, because this call removes the TLS session while another
            # thread still reads.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self.response.close()
        self.connection.close()


class Https:
    """The Transport for a real API server. Raises AgentError if the CA certificate cannot be read."""

    def __init__(self, endpoint: Endpoint, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._tls = tls_context(endpoint.ca_file)
        self._connection = self._connect()

    def send(self, request: ApiRequest) -> ApiResponse:
        try:
            response = _whole(_response(self._connection, request), request.most_bytes)
            if len(response.body) > request.most_bytes:
                self.close()  # drops the rest of the response's body
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
    # Only a read of the whole body raises an error for an incomplete body.
    whole = response.length is not None and response.length <= most_bytes
    body = response.read() if whole else response.read(most_bytes + 1)
    return ApiResponse(status=response.status, reason=response.reason, headers=headers, body=body)


def tls_context(ca_file: Path) -> ssl.SSLContext:
    """Returns a TLS context that trusts only the cluster's CA. Raises AgentError."""
    try:
        context = ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise AgentError(f"{ca_file}: the cluster's CA certificate cannot be read: {error}") from None
    # The TLS context still verifies the certificate chain, the name and the dates. The strict mode of Python 3.13 would
    # also require key identifiers. The CAs of many clusters have no key identifiers (kubernetes-client/python#2394).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
