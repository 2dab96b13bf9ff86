"""Sends requests to the API server over TLS, as the administrator or as an impersonated user."""

import json
import select
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from toolchain.cluster.errors import ClusterError

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
CONFLICT, NOT_FOUND = 409, 404
ANSWER_SECONDS = 65  # The API server itself ends a request after 60 s (--request-timeout).
PAUSE_SECONDS = 0.2
_FIRST_PAUSE_SECONDS = 0.01


@dataclass(frozen=True)
class ApiAnswer:
    """A response of the API server: the HTTP status code, the body (an object or a Status), and the Warning headers."""

    code: int
    body: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def refusal(self) -> str | None:
        """The message of the API server if it refused the request, or None if it accepted the request."""
        return None if self.code < 300 else str(self.body.get("message", self.body))


@dataclass(frozen=True)
class ClusterApi:
    """A client of the API server that uses the client certificate of a kubeconfig."""

    kubeconfig: Path

    @cached_property
    def server(self) -> str:
        return str(self._config["clusters"][0]["cluster"]["server"])

    @cached_property
    def _config(self) -> Mapping[str, Any]:
        config: Mapping[str, Any] = json.loads(self.kubeconfig.read_text())
        return config

    @cached_property
    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self._config["clusters"][0]["cluster"]["certificate-authority"])
        user = self._config["users"][0]["user"]
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        return context

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> ApiAnswer:
        """Sends one request. If `user` is given, the request impersonates that user.

        Raises OSError if the server cannot be reached.
        """
        headers = {"Content-Type": content_type, "Accept": accept}
        if user is not None:
            headers["Impersonate-User"] = user
            if user.startswith("system:node:"):
                headers["Impersonate-Group"] = "system:nodes"
        connection = self._connection()
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            answer = connection.getresponse()
            warnings = tuple(answer.headers.get_all("Warning") or ())
            return ApiAnswer(answer.status, _decoded(answer.read()), warnings)
        except BaseException:
            # After an incomplete read, the next request on the connection would read the rest of the response.
            connection.close()
            raise

    def _connection(self) -> "_Connection":
        """Returns the connection of the current thread.

        Requests of a thread share a connection, because a TLS handshake takes longer than most requests. If the server
        has closed a thread's connection, the thread's next request opens a new connection.
        """
        kept: _Connection | None = getattr(self._kept, "connection", None)
        if kept is None:
            address = self.server.removeprefix("https://")
            kept = self._kept.connection = _Connection(address, context=self._context, timeout=ANSWER_SECONDS)
        elif kept.sock is not None and select.select([kept.sock], [], [], 0)[0]:
            kept.close()
        return kept

    @cached_property
    def _kept(self) -> threading.local:
        return threading.local()

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Returns the object or the list at this path, or None if the path does not exist.

        Raises ClusterError if the API server refuses the request for another reason.
        """
        answer = self.request("GET", path)
        return None if answer.code == NOT_FOUND else _accepted(answer)

    def create(self, collection: str, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Creates the object with strict field validation. Raises ClusterError if the API server refuses the object."""
        return _accepted(self.request("POST", f"{collection}?fieldValidation=Strict", dict(manifest)))

    def patch(self, path: str, patch: object, content_type: str = MERGE) -> Mapping[str, Any]:
        """Patches the object and returns the new object. Raises ClusterError if the API server refuses the patch."""
        return _accepted(self.request("PATCH", path, patch, content_type=content_type))


class _Connection(HTTPSConnection):
    def __del__(self) -> None:
        self.close()  # A thread's connection is closed when the thread ends.


def wait_until(
    holds: Callable[[], Any],
    seconds: float,
    what: str,
    state: Callable[[], object] | None = None,
    *,
    pause_seconds: float = PAUSE_SECONDS,
) -> Any:
    """Calls `holds` repeatedly until it returns a true value, and returns this value.

    The pauses between the calls are short at first, and grow to `pause_seconds`. If `holds` raises an OSError, the
    result counts as false. If `seconds` pass without a true value, raises ClusterError with a message that contains
    the result of `state`.
    """
    deadline = time.monotonic() + seconds
    last: object = None
    pause = 0.0
    while time.monotonic() < deadline:
        try:
            if found := holds():
                return found
        except OSError as error:
            last = error
        pause = min(pause * 1.5 + _FIRST_PAUSE_SECONDS, pause_seconds)
        time.sleep(pause)
    raise ClusterError(f"{what}: not within {seconds:g} s{_so_far(state)}" + (f" ({last})" if last else ""))


def _so_far(state: Callable[[], object] | None) -> str:
    try:
        return "" if state is None else f"; so far: {state()}"
    except OSError as error:
        return f"; so far: {error}"


def _accepted(answer: ApiAnswer) -> Mapping[str, Any]:
    if answer.refusal is not None:
        raise ClusterError(answer.refusal)
    return answer.body


def _decoded(content: bytes) -> Mapping[str, Any]:
    """Returns the response's JSON object.

    If the response is a plain text such as "ok" or "Forbidden", returns the text under the key `message`.
    """
    try:
        decoded = json.loads(content or b"{}")
    except ValueError:
        decoded = None
    return decoded if isinstance(decoded, dict) else {"message": content.decode(errors="replace").strip()}
