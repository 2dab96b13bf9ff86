"""Reads pods by `kubectl port-forward`, through their kubelets.

This is for clusters in which the API server cannot reach pods, because of a NetworkPolicy or a separate network. Each
pod takes a process, so it is for a few pods only.
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
    """Holds a local port that leads to a pod."""

    process: "subprocess.Popen[str]"
    port: int

    def get(self, path: str) -> bytes:
        """Reads the path from the pod. Raises ApiError."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=_ANSWER_SECONDS) as answer:
                body: bytes = answer.read()
        except OSError as error:  # also URLError and HTTPError
            raise unanswered(f"GET {path}", error) from None
        return body


class Forwards:
    """Holds the open ports, and is safe for any thread. `kubectl` is the command with the flags of its connection."""

    def __init__(self, kubectl: Sequence[str]) -> None:
        self._kubectl = kubectl
        self._open: dict[tuple[str, str, int], Forward | None] = {}
        self._lock = threading.Lock()

    def to(self, namespace: str, pod: str, port: int) -> Forward | None:
        """Returns the port to a pod, or None if there are too many ports, or if kubectl has no right to the pod."""
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
        """Ends all processes of kubectl."""
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
    """Ends a process and waits until it has ended."""
    process.terminate()
    process.wait()
    if process.stdout:
        process.stdout.close()
