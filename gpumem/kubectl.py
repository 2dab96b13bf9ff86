"""Reads the API through one `kubectl proxy`, so that kubectl authenticates.

The proxy listens on a socket in a folder that nobody else may open, and ends with this process. `kubectl get --raw`
would start a process and a credential plugin for each request, which may take a second.
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
from urllib.parse import urlencode

from agents.kube.errors import ApiError, Object, refusal_in, unanswered
from agents.kube.transport import ApiResponse
from agents.runtime.errors import AgentError
from gpumem.forward import Forwards, end_process

TIMEOUT_SECONDS = 10.0
# The timeout of a request to a pod, which may be out of the API server's reach.
POD_SECONDS = 3.0
_STARTED_SECONDS = 30.0  # a credential plugin may ask its user something
_PAGE = 500


class KubectlError(AgentError):
    """kubectl does not run; the message is kubectl's own."""


class Kubectl:
    """The API of the cluster that kubectl's `flags` choose, within a `with`; for any thread. Raises KubectlError, also
    for a request. `now` is the API server's time at its last answer."""

    def __init__(self, flags: Sequence[str], program: str = "kubectl") -> None:
        self._flags = flags
        self._program = program
        self._connections = threading.local()
        self.now: datetime | None = None
        self._forwards = Forwards([program, *flags])
        self._reaches_pods = False
        self._unreached: ApiError | None = None
        self._starting = threading.Lock()
        self._failure: str | None = None  # "" once the proxy listens

    def __enter__(self) -> "Kubectl":
        """Starts the proxy. The first request waits until it listens."""
        found = shutil.which(self._program)
        if found is None:
            raise KubectlError(f"{self._program} is not on PATH")
        self._folder = tempfile.TemporaryDirectory(prefix="gpumem-")  # of mode 0700
        self._socket = Path(self._folder.name) / "api"
        self._stderr = (Path(self._folder.name) / "stderr").open("w+b")
        self._process = subprocess.Popen(
            [found, "proxy", f"--unix-socket={self._socket}", *self._flags], stdout=subprocess.PIPE, stderr=self._stderr
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forwards.close()
        end_process(self._process)
        self._stderr.close()
        self._folder.cleanup()

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
        """A pod's answer to a GET. If the API server does not reach pods, the first few are read through their
        kubelets. Raises ApiError."""
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
        """The pod's answer through the API server. After a first failure no other pod is tried, as each try may take
        seconds."""
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
        """Raises KubectlError, the same in every thread."""
        with self._starting:
            if self._failure is None:
                self._failure = self._await_start()
            if self._failure:
                raise KubectlError(self._failure)

    def _await_start(self) -> str:
        """The reason for which the proxy does not listen; "" once it does."""
        output = self._process.stdout
        assert output is not None  # noqa: S101 (it was asked for)
        readable, _, _ = select.select([output], [], [], _STARTED_SECONDS)
        if not readable:
            return f"kubectl proxy did not start within {_STARTED_SECONDS:g} s"
        if output.readline():
            return ""
        self._process.wait()
        self._stderr.seek(0)
        message = self._stderr.read().decode(errors="replace").strip()
        return message or f"kubectl proxy ended with status {self._process.returncode}"


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
