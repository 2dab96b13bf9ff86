"""The API server over its own TLS, as administrator or in somebody else's name."""

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
ANSWER_SECONDS = 30
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class ApiAnswer:
    """An answer of the API server: the HTTP status, the object or a Status, and the warnings in its headers."""

    code: int
    body: Mapping[str, Any]
    warnings: tuple[str, ...] = ()

    @property
    def refusal(self) -> str | None:
        """The reason of a refusal; None if the request was accepted."""
        return None if self.code < 300 else str(self.body.get("message", self.body))


@dataclass(frozen=True)
class ClusterApi:
    """Requests under a kubeconfig's client certificate."""

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
    ) -> ApiAnswer:
        """Sends one request, impersonating `user` if given. Raises OSError if the server cannot be reached."""
        headers = {"Content-Type": content_type, "Accept": "application/json"}
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
            connection.close()  # or the next request would read what is left of this one's answer
            raise

    def _connection(self) -> "_Connection":
        """Returns the thread's connection, kept between requests because TLS costs more than most answers.

        A connection that the server has closed is readable, and is opened again.
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
        """Returns the object or list; None if there is none. Raises ClusterError for any other refusal."""
        answer = self.request("GET", path)
        return None if answer.code == NOT_FOUND else _accepted(answer)

    def create(self, collection: str, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Creates the object under strict field validation. Raises ClusterError with the refusal."""
        return _accepted(self.request("POST", f"{collection}?fieldValidation=Strict", dict(manifest)))

    def patch(self, path: str, patch: object, content_type: str = MERGE) -> Mapping[str, Any]:
        """Raises ClusterError with the refusal."""
        return _accepted(self.request("PATCH", path, patch, content_type=content_type))


class _Connection(HTTPSConnection):
    def __del__(self) -> None:
        self.close()  # when its thread ends


def until(
    holds: Callable[[], Any],
    seconds: float,
    what: str,
    state: Callable[[], object] | None = None,
    *,
    pause_seconds: float = PAUSE_SECONDS,
) -> Any:
    """Calls `holds` until the result is true, and returns it. An OSError counts as false.

    Raises ClusterError after `seconds`, with the result of `state`.
    """
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            if found := holds():
                return found
        except OSError as error:
            last = error
        time.sleep(pause_seconds)
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
    """Answers of the server's outer layers, for instance "ok" and "Forbidden", are plain text."""
    try:
        decoded = json.loads(content or b"{}")
    except ValueError:
        decoded = None
    return decoded if isinstance(decoded, dict) else {"message": content.decode(errors="replace").strip()}
