"""Reads pods through their kubelets, by `kubectl port-forward`.

The plugin uses port forwarding if the API server cannot reach pods because of a NetworkPolicy or a separate network.
Each pod needs its own process, so port forwarding suits only a few pods.
"""

import re
import select
import subprocess
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.kube.errors import unanswered

MOST = 8
_STARTED_SECONDS = 5.0
_ANSWER_SECONDS = 3.0
_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")


@dataclass(frozen=True)
class Forward:
    """A local port that kubectl forwards to a pod."""

    process: "subprocess.Popen[str]"
    port: int

    def get(self, path: str) -> bytes:
        """Sends a GET request with this path to the pod, and returns the body of the response. Raises ApiError."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=_ANSWER_SECONDS) as answer:
                body: bytes = answer.read()
        except OSError as error:  # URLError and HTTPError are OSErrors too
            raise unanswered(f"GET {path}", error) from None
        return body


class Forwards:
    """The ports that kubectl forwards.

    Several threads may use a Forwards object at the same time. `kubectl` is the command with the flags of the
    connection.
    """

    def __init__(self, kubectl: Sequence[str]) -> None:
        self._kubectl = kubectl
        self._open: dict[tuple[str, str, int], Forward | None] = {}
        self._lock = threading.Lock()

    def to(self, namespace: str, pod: str, port: int) -> Forward | None:
        """Returns the forwarded port of a pod.

        Returns None if too many ports are forwarded, or if kubectl may not forward a port to the pod.
        """
        key = namespace, pod, port
        with self._lock:
            known = self._open.get(key)
            if known is not None and known.process.poll() is None:
                return known
            if key not in self._open and len(self._open) >= MOST:
                return None
            self._open[key] = None
        made = self._start(namespace, pod, port)
        with self._lock:
            self._open[key] = made
        return made

    def close(self) -> None:
        """Ends all kubectl processes."""
        for each in self._open.values():
            if each is not None:
                end_process(each.process)

    def _start(self, namespace: str, pod: str, port: int) -> Forward | None:
        process = subprocess.Popen(
            [*self._kubectl, "port-forward", f"--namespace={namespace}", f"pod/{pod}", f":{port}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None  # noqa: S101 (it was asked for)
        readable, _, _ = select.select([process.stdout], [], [], _STARTED_SECONDS)
        found = _FORWARDING.match(process.stdout.readline()) if readable else None
        if found is None:
            end_process(process)
            return None
        return Forward(process, int(found[1]))


def end_process(process: "subprocess.Popen[Any]") -> None:
    """Ends a process and waits for its end."""
    process.terminate()
    process.wait()
    if process.stdout:
        process.stdout.close()
