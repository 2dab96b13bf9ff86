"""The API as kubectl reaches it, so that authentication is kubectl's own: one `kubectl proxy` for all requests.

It listens on a socket in a folder that nobody else may open, and ends with us. `kubectl get --raw` would start a
process for each request, and with it the credential plugin, which may take a second.
"""

import http.client
import json
import select
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol
from urllib.parse import urlencode

from agents.kube.errors import ApiError, Object, refusal_in, unanswered
from agents.kube.transport import ApiResponse
from agents.runtime.errors import AgentError
from gpumem.forward import Forwards

TIMEOUT_SECONDS = 10.0
# Of what a pod answers through the API server: it may be out of its reach.
POD_SECONDS = 3.0
_STARTED_SECONDS = 30.0  # a credential plugin may ask its user something
_PAGE = 500


class KubectlError(AgentError):
    """kubectl does not run; the message is its own."""


class ApiReader(Protocol):
    """The API to read from; any thread. Every method raises ApiError."""

    def get(self, path: str) -> Object:
        """One object."""

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        """The objects of a list."""

    def ask(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        """What a pod answers to a GET."""

    @property
    def now(self) -> datetime | None:
        """The API server's time of day at its last answer."""


class Session(ApiReader, Protocol):
    """The API, and the namespace of the context in use."""

    def namespace(self) -> str:
        """Whose pods, where nothing else is said."""


class Kubectl:
    """The API of the cluster that kubectl's `flags` choose, within a `with`. Raises KubectlError, also of a
    request."""

    def __init__(self, flags: Sequence[str], program: str = "kubectl") -> None:
        self._flags = flags
        self._program = program
        self._connections = threading.local()
        self.now: datetime | None = None
        self._forwards = Forwards([program, *flags])
        self._reaches_pods = False
        self._unreached: ApiError | None = None
        self._starting = threading.Lock()
        self._failed: KubectlError | None = None
        self._listens = False

    def __enter__(self) -> "Kubectl":
        """Starts it; the first request waits until it listens."""
        found = shutil.which(self._program)
        if found is None:
            raise KubectlError(f"{self._program} is not on PATH; it is what reaches the cluster")
        self._folder = tempfile.TemporaryDirectory(prefix="gpumem-")  # of mode 0700
        self._socket = Path(self._folder.name) / "api"
        self._said = (Path(self._folder.name) / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [found, "proxy", f"--unix-socket={self._socket}", *self._flags], stdout=subprocess.PIPE, stderr=self._said
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def namespace(self) -> str:
        """The namespace of the context in use."""
        flags = [flag for flag in self._flags if not flag.startswith(("--as=", "--as-group=", "--request-timeout="))]
        done = subprocess.run(
            [self._program, "config", "view", "--minify", "--output=jsonpath={..namespace}", *flags],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or "default"

    def get(self, path: str) -> Object:
        """One object. Raises ApiError."""
        found = json.loads(self._body(path, TIMEOUT_SECONDS))
        if not isinstance(found, dict):
            raise ApiError(f"GET {path}", None, "NoAnswer", "the answer is not a JSON object")
        return found

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        """The objects of a list. Raises ApiError."""
        query = {"limit": str(_PAGE), **parameters}
        while True:
            page = self.get(f"{path}?{urlencode(query)}")
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token

    def ask(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        """What a pod answers to a GET: through the API server; where that does not reach it, through the pod's kubelet,
        for the first few pods. Raises ApiError."""
        try:
            answer = self._through_api(f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}")
        except ApiError as error:
            forward = self._forwards.to(namespace, pod, port)
            if forward is None:
                raise error from None
            return forward.get(path)
        self._reaches_pods = True
        return answer

    def _through_api(self, path: str) -> bytes:
        """Once it reached no pod at all it is not tried again: each try may take seconds."""
        if self._unreached and not self._reaches_pods:
            raise self._unreached
        try:
            return self._body(path, POD_SECONDS)
        except ApiError as error:
            self._unreached = error
            raise

    def _body(self, path: str, seconds: float) -> bytes:
        request = f"GET {path.partition('?')[0]}"
        try:
            answer = self._exchange(path, seconds)
        except (OSError, http.client.HTTPException) as error:
            self._connections.one = None
            raise unanswered(request, error) from None
        if answer.status >= http.client.BAD_REQUEST:
            raise refusal_in(request, answer)
        return answer.body

    def _exchange(self, path: str, seconds: float) -> ApiResponse:
        connection = getattr(self._connections, "one", None)
        if connection is None:
            self._await_listening()
            connection = self._connections.one = _UnixConnection(self._socket)
        connection.set_timeout(seconds)
        connection.request("GET", path, headers={"Accept": "application/json, text/plain"})
        answer = connection.getresponse()
        body = answer.read()
        if date := answer.headers.get("Date"):
            self.now = parsedate_to_datetime(date)
        return ApiResponse(
            status=answer.status,
            reason=answer.reason,
            headers={name.lower(): value for name, value in answer.getheaders()},
            body=body,
        )

    def _await_listening(self) -> None:
        """Raises KubectlError, to every thread the same."""
        with self._starting:
            if self._listens:
                return
            self._failed = self._failed or self._failure()
            if self._failed:
                raise self._failed
            self._listens = True

    def _failure(self) -> KubectlError | None:
        """Why it does not listen; None once it does."""
        output = self._process.stdout
        assert output is not None  # noqa: S101 (it was asked for)
        readable, _, _ = select.select([output], [], [], _STARTED_SECONDS)
        if not readable:
            return KubectlError(f"kubectl proxy did not start within {_STARTED_SECONDS:g} s")
        if output.readline():
            return None
        self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()
        return KubectlError(said or f"kubectl proxy ended with status {self._process.returncode}")

    def _end(self) -> None:
        self._forwards.close()
        self._process.terminate()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._said.close()
        self._folder.cleanup()


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def set_timeout(self, seconds: float) -> None:
        self.timeout = seconds
        if self.sock is not None:
            self.sock.settimeout(seconds)
