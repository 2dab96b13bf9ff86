"""An agent as a process under its own account, metered: what it asked, what came over the wire, what it took."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from components.base import zipapp
from toolchain.cluster.api import USER_AGENT
from toolchain.cluster.cluster import Cluster
from toolchain.cluster.control_plane import AUDIT

TOKEN_SECONDS = 3600
_CHUNK = 1 << 16

# Runs the zipapp and says on stderr what it took. The kernel's own count of a child's memory starts with its parent's.
_MEASURE = """
import json, os, re, runpy, sys
zipapp, *arguments = sys.argv[1:]
sys.argv = [zipapp, *arguments]
try:
    runpy.run_path(zipapp, run_name="__main__")
finally:
    peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
    times = os.times()
    print(json.dumps({"peak_kib": int(peak[1]), "cpu_seconds": times.user + times.system}), file=sys.stderr)
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of an agent. `requests` counts by verb and resource, from the API server's audit log."""

    seconds: float
    cpu_seconds: float
    peak_mib: float
    received_bytes: int
    requests: Counter[str]
    lines: list[dict[str, Any]]


@dataclass(frozen=True)
class Audit:
    """What was asked since this was made, as the API server logged it."""

    log: Path
    start: int

    @classmethod
    def of(cls, cluster: Cluster) -> "Audit":
        log = cluster.log(AUDIT)
        return cls(log, log.stat().st_size)

    def requests(self, user: str) -> Counter[str]:
        """Those of one user, by verb and resource; without this benchmark's own, which are not the subject."""
        asked: Counter[str] = Counter()
        with self.log.open("rb") as lines:
            lines.seek(self.start)
            for line in lines:
                entry = json.loads(line)
                counted = entry["stage"] == ("ResponseStarted" if entry["verb"] == "watch" else "ResponseComplete")
                ours = entry.get("userAgent") == USER_AGENT
                if counted and not ours and entry["user"]["username"] == user:
                    asked[f"{entry['verb']} {_resource(entry)}"] += 1
        return asked


@dataclass
class Meter:
    """Bytes that the API server sent through here; TLS goes through untouched."""

    server: tuple[str, int]
    received_bytes: int = 0
    _listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    @contextmanager
    def serving(self) -> Iterator[None]:
        threading.Thread(target=self._accept, daemon=True).start()
        yield
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:  # closed
                return
            far = socket.create_connection(self.server)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a request's two packets must not wait
            for source, sink, counted in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._copy, args=(source, sink, counted), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with sink, suppress(OSError):  # the other direction has closed both
            while chunk := source.recv(_CHUNK):
                sink.sendall(chunk)
                if counted:
                    self.received_bytes += len(chunk)


@dataclass(frozen=True)
class Account:
    """A ServiceAccount."""

    namespace: str
    name: str

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def token(self, cluster: Cluster) -> str:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.name}/token"
        token: str = cluster.api.create(path, body)["status"]["token"]
        return token


def run(cluster: Cluster, folder: Path, agent: str, account: Account, environ: Mapping[str, str]) -> Run:
    """Runs `agent` under a token of the account and waits for its end. Raises SystemExit."""
    mount = folder / account.name
    mount.mkdir(exist_ok=True)
    path = mount / "agents.pyz"
    path.write_bytes(zipapp.build().content)
    (mount / "token").write_text(account.token(cluster))
    (mount / "ca.crt").write_bytes(cluster.folder.ca.read_bytes())
    server = urlsplit(cluster.api.server)
    assert server.hostname
    assert server.port
    meter, audit = Meter((server.hostname, server.port)), Audit.of(cluster)
    given = {
        "PATH": os.environ["PATH"],
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(meter.port),
        "SERVICE_ACCOUNT_DIRECTORY": str(mount),
        **environ,
    }
    command = [sys.executable, "-I", "-c", _MEASURE, str(path), agent]
    with meter.serving():
        start = time.monotonic()
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - start
    if done.returncode:
        raise SystemExit(f"{agent} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    taken = json.loads(done.stderr.splitlines()[-1])
    return Run(
        seconds=seconds,
        cpu_seconds=taken["cpu_seconds"],
        peak_mib=taken["peak_kib"] / 1024,
        received_bytes=meter.received_bytes,
        requests=audit.requests(account.user),
        lines=[json.loads(line) for line in done.stdout.splitlines()],
    )


def peaks_mib(pod_uid: str) -> Iterator[float]:
    """The most memory that each process of a pod of the real node has held so far."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if pod_uid in (process / "cgroup").read_text():
                peak = re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())
                yield int(peak[1]) / 1024 if peak else 0.0


def _resource(entry: Mapping[str, Any]) -> str:
    about = entry.get("objectRef")
    if about is None:
        return str(urlsplit(entry["requestURI"]).path)
    return "/".join(about[part] for part in ("resource", "subresource") if part in about)
