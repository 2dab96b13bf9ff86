"""One small client of the Kubernetes API: TLS verified, token re-read, timeouts, bounded retries, paged lists."""

import http.client
import json
import random
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agents.clock import Clock
from agents.errors import AgentError
from agents.refusals import ApiError, Object, refusal_in, unanswered
from tenancy.names import PROJECT

__all__ = ["PAGE", "Api", "ApiError", "Endpoint", "Object", "Stream", "in_cluster"]

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TIMEOUT_SECONDS = 10.0
ATTEMPTS = 4
BACKOFF_SECONDS = 0.25  # doubles with each attempt, with full jitter
LONGEST_WAIT_SECONDS = 30.0
PAGE = 100  # objects; bounds what a list holds in memory at once


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where the API server is and what proves who we are and who it is."""

    host: str
    port: int
    token_file: Path
    ca_file: Path


def in_cluster(environ: Mapping[str, str]) -> Endpoint:
    """The endpoint that Kubernetes gives every pod. SERVICE_ACCOUNT_DIRECTORY replaces the mount's path."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdigit():
        raise AgentError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: run this agent in a pod of the cluster"
        )
    mount = Path(environ.get("SERVICE_ACCOUNT_DIRECTORY", SERVICE_ACCOUNT))
    return Endpoint(host=host, port=int(port), token_file=mount / "token", ca_file=mount / "ca.crt")


@dataclass(frozen=True)
class Stream:
    """An answer that goes on, on a connection of its own."""

    connection: http.client.HTTPSConnection
    socket: socket.socket
    response: http.client.HTTPResponse

    def stop(self) -> None:
        """Ends the answer, from any thread: who reads it finds its end or an error."""
        with suppress(OSError):  # the server was first
            # Not SSLSocket's: that one takes the session away from a thread that reads.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """By who reads it."""
        self.response.close()
        self.connection.close()


class Api:
    """A client with one kept-alive connection, for one thread; only `open` is for any. Every method raises ApiError."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        clock: Clock,
        jitter: Callable[[], float] = random.random,
        attempts: int = ATTEMPTS,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        self._endpoint = endpoint
        self._attempts = attempts
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._jitter = jitter
        self._tls = _tls(endpoint.ca_file)
        # The server's time of day at its last answer, in whole seconds; None before, and where it tells none.
        self.time: datetime | None = None
        self._connection = self._connect()

    def close(self) -> None:
        """Ends the connection; the next request would open a new one."""
        self._connection.close()

    def get(self, path: str) -> Object:
        """One object."""
        return self._request("GET", path)

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        """The objects of a list, page by page. Raises ApiError 410 when the list expires between two pages."""
        for page in self.pages(path, **parameters):
            yield from page.get("items") or ()
            del page  # as in `pages`

    def pages(self, path: str, **parameters: str) -> Iterator[Object]:
        """The pages of a list; each bears the version of the whole list, from which a watch goes on. As `items`."""
        query = {"limit": str(PAGE), **parameters}
        while True:
            page = self._request("GET", f"{path}?{urlencode(query)}")
            yield page
            token = page.get("metadata", {}).get("continue")
            if not token:
                return
            del page  # before the next one is read: a list holds one page in memory
            query["continue"] = token

    def create(self, path: str, body: Object) -> Object:
        """A new object under the collection at `path`."""
        return self._request("POST", path, body, "application/json")

    def merge_patch(self, path: str, body: Object) -> Object:
        """RFC 7386: null removes a key. With metadata.resourceVersion in it, a concurrent change is a conflict."""
        return self._request("PATCH", path, body, "application/merge-patch+json")

    def delete(self, path: str, *, uid: str, grace_seconds: int | None = None) -> None:
        """Deletes the object with this uid; another one of the same name is a conflict."""
        self._request("DELETE", path, _deletion(uid, grace_seconds), "application/json")

    def evict(self, *, namespace: str, pod: str, uid: str) -> None:
        """Asks for the pod with this uid to be evicted, within its disruption budgets: see ApiError.held_by_budget."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": pod},
            "deleteOptions": _deletion(uid),
        }
        self.create(f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction", body)

    def open(self, path: str) -> Stream:
        """The answer to a GET, unread, on a connection of its own that the caller closes. Not retried."""
        connection, request = self._connect(), _named("GET", path)
        try:
            connection.connect()
            stream = Stream(connection, connection.sock, self._send(connection, "GET", path))
            if stream.response.status >= http.client.BAD_REQUEST:
                raise refusal_in(request, stream.response, stream.response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise unanswered(request, error) from None
        except BaseException:
            connection.close()
            raise
        return stream

    def _request(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        for attempt in range(self._attempts):
            try:
                return self._exchange(method, path, body, content_type)
            except ApiError as error:
                if not error.retried or attempt == self._attempts - 1:
                    raise
                backoff = BACKOFF_SECONDS * 2**attempt * (0.5 + self._jitter())
                wait = backoff if error.retry_after_seconds is None else error.retry_after_seconds
                self._clock.sleep(min(wait, LONGEST_WAIT_SECONDS))
        raise AssertionError("the last attempt returns or raises")

    def _exchange(self, method: str, path: str, body: Object | None, content_type: str) -> Object:
        request = _named(method, path)
        try:
            response = self._send(self._connection, method, path, body, content_type)
            self.time = _date(response.getheader("Date", ""))
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise unanswered(request, error) from None
        if response.status >= http.client.BAD_REQUEST:
            raise refusal_in(request, response, content)
        return _object(request, content)

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            self._endpoint.host, self._endpoint.port, timeout=self._timeout_seconds, context=self._tls
        )

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: Object | None = None,
        kind: str = "",
    ) -> http.client.HTTPResponse:
        """Raises OSError and HTTPException."""
        headers = {
            "Accept": "application/json",
            "Authorization": f"Bearer {self._token()}",
            "User-Agent": PROJECT,  # the name of the field manager and in the audit log
        }
        if body is not None:
            headers["Content-Type"] = kind
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        return connection.getresponse()

    def _token(self) -> str:
        """Read for each request: the kubelet rotates it under a running pod."""
        try:
            return self._endpoint.token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise AgentError(
                f"{self._endpoint.token_file}: the ServiceAccount's token cannot be read: {error}"
            ) from None


def _tls(ca_file: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise AgentError(f"{ca_file}: the cluster's CA certificate cannot be read: {error}") from None
    # Chain, name and dates stay verified. Python 3.13's strict mode also wants key identifiers, which the CAs of many
    # clusters lack (kubernetes-client/python#2394).
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _date(header: str) -> datetime | None:
    try:
        return parsedate_to_datetime(header)
    except ValueError:
        return None


def _named(method: str, path: str) -> str:
    return f"{method} {path.partition('?')[0]}"


def _deletion(uid: str, grace_seconds: int | None = None) -> Object:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    return options if grace_seconds is None else {**options, "gracePeriodSeconds": grace_seconds}


def _object(request: str, content: bytes) -> Object:
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ApiError(request, None, "NoAnswer", "the answer is no JSON object")
    return answer
