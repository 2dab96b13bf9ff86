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
ARCHIVE = "agents.pyz"
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
    inode: int
    start: int

    @classmethod
    def of(cls, cluster: Cluster) -> "Audit":
        log = cluster.log(AUDIT)
        found = log.stat()
        return cls(log, found.st_ino, found.st_size)

    def requests(self, user: str) -> Counter[str]:
        """Those of one user, by verb and resource; without this benchmark's own, which are not the subject."""
        asked: Counter[str] = Counter()
        for line in self._lines(f'"{user}"'.encode()):
            entry = json.loads(line)
            counted = entry["stage"] == ("ResponseStarted" if entry["verb"] == "watch" else "ResponseComplete")
            ours = entry.get("userAgent") == USER_AGENT
            if counted and not ours and entry["user"]["username"] == user:
                asked[f"{entry['verb']} {_resource(entry)}"] += 1
        return asked

    def _lines(self, wanted: bytes) -> Iterator[bytes]:
        """Whole ones that hold `wanted`. A log that has grown large goes on in a new file, and is renamed itself."""
        for log in sorted(self.log.parent.glob(f"{self.log.stem}*"), key=lambda log: log.stat().st_mtime):
            begun = log.stat().st_ino == self.inode
            if not begun and log != self.log:
                continue  # it ended before
            with log.open("rb") as lines:
                lines.seek(self.start if begun else 0)
                yield from (line for line in lines if wanted in line and line.endswith(b"\n"))


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

    def mounted(self, cluster: Cluster, folder: Path) -> Path:
        """A folder in this one that has what a pod of the account has: its credentials and the code."""
        mount = folder / self.name
        mount.mkdir(exist_ok=True)
        if not (mount / ARCHIVE).exists():  # another process of the account may be reading it
            (mount / ARCHIVE).write_bytes(zipapp.build().content)
        (mount / "token").write_text(self.token(cluster))
        (mount / "ca.crt").write_bytes(cluster.folder.ca.read_bytes())
        return mount


def run(cluster: Cluster, folder: Path, agent: str, account: Account, environ: Mapping[str, str]) -> Run:
    """Runs `agent` under a token of the account and waits for its end. Raises SystemExit."""
    server = urlsplit(cluster.api.server)
    assert server.hostname
    assert server.port
    meter, audit = Meter((server.hostname, server.port)), Audit.of(cluster)
    mount = account.mounted(cluster, folder)
    command = [sys.executable, "-I", "-c", _MEASURE, str(mount / ARCHIVE), agent]
    with meter.serving():
        start = time.monotonic()
        env = {**_own(mount, meter.port), **environ}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
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


@contextmanager
def running(
    cluster: Cluster, folder: Path, agent: str, account: Account, environ: Mapping[str, str]
) -> Iterator["subprocess.Popen[bytes]"]:
    """An agent that serves, as a process under a token of the account, until the block ends."""
    mount = account.mounted(cluster, folder)
    env = {**_own(mount, urlsplit(cluster.api.server).port), **environ}
    with subprocess.Popen(
        [sys.executable, "-I", mount / ARCHIVE, agent], env=env, stdout=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def _own(mount: Path, port: int | None) -> dict[str, str]:
    """What a pod is given beside its manifest's variables."""
    return {
        "PATH": os.environ["PATH"],
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(port),
        "SERVICE_ACCOUNT_DIRECTORY": str(mount),
    }


def variables(container: Mapping[str, Any]) -> dict[str, str]:
    """What the manifest gives an agent's container, but for what only its pod knows."""
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def peak_mib(process: Path) -> float:
    """The most memory that a process has held so far, by its folder in /proc; raises OSError where it has ended."""
    peak = re.search(r"VmHWM:\s+(\d+)", (process / "status").read_text())
    return int(peak[1]) / 1024 if peak else 0.0


def peaks_mib(pod_uid: str, program: str) -> Iterator[float]:
    """The most memory that each process of an agent's program in a pod of the real node has held so far."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            ours = (process / "cmdline").read_text().rstrip("\0").endswith(f"\0{program}")
            if ours and pod_uid in (process / "cgroup").read_text():
                yield peak_mib(process)


def _resource(entry: Mapping[str, Any]) -> str:
    about = entry.get("objectRef")
    if about is None:
        return str(urlsplit(entry["requestURI"]).path)
    return "/".join(about[part] for part in ("resource", "subresource") if part in about)
