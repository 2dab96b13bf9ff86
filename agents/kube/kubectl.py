"""Reads the API through one process of `kubectl proxy`, so that kubectl does the authentication.

The proxy listens on a socket in a directory that no other user may open. It ends with this process, also if that is
killed. `kubectl get --raw` would start one process and one credential plugin for each request, which can take a second.
"""

import http.client
import json
import os
import re
import select
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from agents.kube.errors import ApiError, Object, refusal_in, unanswered
from agents.kube.forward import Forwards, end_process
from agents.kube.transport import ApiResponse
from agents.runtime.errors import AgentError

TIMEOUT_SECONDS = 10.0
# The timeout in seconds of a request to a pod. The API server sometimes has no route to the pod.
POD_SECONDS = 3.0
_STARTED_SECONDS = 30.0  # a credential plugin can wait for input of the user
_PAGE = 500
# Runs a command, and kills it at the end of the pipe $0, which ends with the process that holds the other side.
_TIED = '(read -r _ </dev/fd/"$0"; kill $$) >/dev/null 2>&1 & exec "$@"'


class KubectlError(AgentError):
    """Raised if kubectl does not run. The message of the error is kubectl's error message."""


class Kubectl:
    """A client for the API of the cluster that kubectl's `flags` select.

    The client is used in a `with` statement. Several threads may use the client at the same time. Every request of the
    client can raise KubectlError. `now` is the time of the API server at its last response.
    """

    def __init__(self, flags: Sequence[str], program: str = "kubectl") -> None:
        self._flags = flags
        self._program = program
        self._seconds = request_timeout(flags) or TIMEOUT_SECONDS
        self._connections = threading.local()
        self.now: datetime | None = None
        self._forwards = Forwards([program, *flags])
        self._reaches_pods = False
        self._unreached: ApiError | None = None
        self._starting = threading.Lock()
        self._failure: str | None = None  # "" after the proxy has started to listen

    def __enter__(self) -> "Kubectl":
        """Starts the proxy. The first request waits until the proxy listens."""
        found = shutil.which(self._program)
        if found is None:
            raise KubectlError(f"{self._program} is not on PATH")
        self._folder = tempfile.TemporaryDirectory(prefix="gpumem-")  # the directory has the file mode 0700
        self._socket = Path(self._folder.name) / "api"
        self._stderr = (Path(self._folder.name) / "stderr").open("w+b")
        end, self._alive = os.pipe()
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _TIED, str(end), found, "proxy", f"--unix-socket={self._socket}", *self._flags],
            pass_fds=[end],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        os.close(end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forwards.close()
        os.close(self._alive)
        end_process(self._process)
        self._stderr.close()
        self._folder.cleanup()

    def namespace(self) -> str:
        """Returns the namespace of kubectl's current context."""
        flags = [flag for flag in self._flags if not flag.startswith(("--as=", "--as-group="))]
        done = subprocess.run(
            [self._program, "config", "view", "--minify", "--output=jsonpath={..namespace}", *flags],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or "default"

    def get(self, path: str) -> Object:
        """Returns one object. Raises ApiError."""
        body = self._body(path, self._seconds)
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ApiError(f"GET {path}", None, "NoAnswer", "the answer is not a JSON object")
        return found

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        """Yields the objects of a list. Raises ApiError."""
        query = {"limit": str(_PAGE), **parameters}
        while True:
            page = self.get(f"{path}?{urlencode(query)}")
            yield from page.get("items") or ()
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            query["continue"] = token

    def dry_run(self, path: str, manifest: Mapping[str, Any]) -> None:
        """Asks the API server whether it would create the object, which it does not store. Raises ApiError."""
        self._body(f"{path}?dryRun=All", self._seconds, json.dumps(manifest).encode())

    def ask(self, namespace: str, pod: str, port: int, path: str) -> bytes:
        """Sends a GET request to a pod and returns the response.

        If the API server cannot reach pods, the method reads the first few pods through their kubelets. Raises
        ApiError.
        """
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
        """Returns the pod's response through the API server.

        If the first request to a pod fails, the method sends no request to other pods, because each request can take
        seconds.
        """
        if self._unreached and not self._reaches_pods:
            raise self._unreached
        try:
            return self._body(path, POD_SECONDS)
        except ApiError as error:
            self._unreached = error
            raise

    def _body(self, path: str, seconds: float, sent: bytes | None = None) -> bytes:
        request = f"{'GET' if sent is None else 'POST'} {path.partition('?')[0]}"
        try:
            answer = self._exchange(path, seconds, sent)
        except (OSError, http.client.HTTPException) as error:
            self._connections.one = None
            raise unanswered(request, error) from None
        if answer.status >= http.client.BAD_REQUEST:
            raise refusal_in(request, answer)
        return answer.body

    def _exchange(self, path: str, seconds: float, sent: bytes | None = None) -> ApiResponse:
        connection = getattr(self._connections, "one", None)
        if connection is None:
            self._await_listening()
            connection = self._connections.one = _UnixConnection(self._socket)
        connection.set_timeout(seconds)
        headers = {"Accept": "application/json, text/plain"}
        if sent is None:
            connection.request("GET", path, headers=headers)
        else:
            connection.request("POST", path, body=sent, headers={**headers, "Content-Type": "application/json"})
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
        """Waits until the proxy listens. If the proxy does not start, raises KubectlError in every thread."""
        with self._starting:
            if self._failure is None:
                self._failure = self._await_start()
            if self._failure:
                raise KubectlError(self._failure)

    def _await_start(self) -> str:
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


def request_timeout(flags: Sequence[str]) -> float | None:
    """Returns the seconds of kubectl's flag --request-timeout, or None without the flag or if the flag is 0."""
    given = [value for name, _, value in (flag.partition("=") for flag in flags) if name == "--request-timeout"]
    return seconds(given[-1]) if given else None


def seconds(text: str) -> float:
    """Returns the seconds of a duration such as 5, 500ms, 10s, 2m or 1h. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,6})(ms|s|m|h)?", text, re.ASCII)
    if found is None:
        raise ValueError(text)
    return int(found[1]) * {"ms": 0.001, "m": 60, "h": 3600}.get(found[2], 1)


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
