"""An attacker of an HTTP server, as a process: `python -m tests.support.flood PORT`.

It holds many connections that never end their request, and opens each one again that the server closes. It also sends
whole requests at a rate, some of them far too large. It prints its counters as JSON.
"""

import argparse
import contextlib
import errno
import itertools
import json
import resource
import selectors
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import ROOT

BUSY = (errno.EINPROGRESS, errno.EAGAIN)
BEGUN = b"GET /metrics HTTP/1.1\r\nX-Slow: "
WHOLE = b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"
OVERSIZED = b"GET /metrics HTTP/1.1\r\nX-Large: " + b"x" * 2**20
DRIP_SECONDS = 1.0
TICK_SECONDS = 0.005


@dataclass
class Attack:
    """`sources` are addresses of the loopback from which it comes; a second it opens at most `reopen` of the slow
    connections, and asks `rate` whole requests."""

    port: int
    slow: int
    reopen: int
    rate: int
    sources: list[str]
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    count: Counter[str] = field(default_factory=Counter)
    held: set[socket.socket] = field(default_factory=set)
    quick: dict[socket.socket, float] = field(default_factory=dict)

    def run(self, seconds: float) -> None:
        """Attacks for so long."""
        addresses, numbers = itertools.cycle(self.sources), itertools.count(1)
        began, dripped, opened, asked = time.monotonic(), 0.0, 0, 0
        while (now := time.monotonic()) < began + seconds:
            for _ in range(min(self.slow - len(self.held), int((now - began) * self.reopen) - opened, 500)):
                opened += 1
                self._open(next(addresses), BEGUN, self.held)
            for _ in range(min(int((now - began) * self.rate) - asked, 500)):
                asked += 1
                self._open(next(addresses), OVERSIZED if next(numbers) % 10 == 0 else WHOLE, None)
            if now - dripped > DRIP_SECONDS:
                dripped = now
                self._drip()
            self._listen(TICK_SECONDS)
            self.count["most held"] = max(self.count["most held"], len(self.held))

    def _open(self, source: str, text: bytes, into: set[socket.socket] | None) -> None:
        client = socket.socket()
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.bind((source, 0))
        if client.connect_ex(("127.0.0.1", self.port)) not in (0, *BUSY):
            client.close()
            return
        self.count["opened"] += 1
        if into is not None:
            into.add(client)
        else:
            self.quick[client] = time.monotonic()
        self.selector.register(client, selectors.EVENT_WRITE, text)

    def _listen(self, seconds: float) -> None:
        for key, events in self.selector.select(seconds):
            client = key.fileobj
            assert isinstance(client, socket.socket)
            try:
                if events & selectors.EVENT_WRITE:
                    client.send(key.data)
                    self.selector.modify(client, selectors.EVENT_READ, None)
                elif not (answer := client.recv(2**16)):
                    self._close(client)
                elif answer.startswith(b"HTTP/1.1 "):
                    self.count[f"status {answer[9:12].decode()}"] += 1
            except OSError:
                self._close(client)
        late = time.monotonic() - 5
        for client in [client for client, since in self.quick.items() if since < late]:
            self._close(client)

    def _drip(self) -> None:
        for client in list(self.held):
            try:
                client.send(b"x")
            except OSError as error:
                if error.errno not in BUSY:
                    self._close(client)

    def _close(self, client: socket.socket) -> None:
        self.selector.unregister(client)
        self.held.discard(client)
        self.quick.pop(client, None)
        client.close()


@dataclass(frozen=True)
class Cost:
    """Of a process: MiB at its peak, threads, descriptors."""

    peak_mib: float
    threads: int
    descriptors: int


def cost(pid: int) -> Cost:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    status = {line[0]: line[1] for line in lines if len(line) > 1}
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Cost(int(status["VmHWM:"]) / 1024, int(status["Threads:"]), descriptors)


# The guard's own sweep over this machine's processes, and its server; it prints what each sweep took.
SWEEPING = """
import resource, sys, threading, time
from pathlib import Path

from agents.guard.main import Sweeper
from agents.guard.processes import ProcessIndex
from agents.runtime.clock import Clock
from agents.runtime.log import Log
try:
    from agents.runtime.open_server import MetricsServer
except ImportError:  # a version of before, in the benchmark
    from agents.runtime.http_server import MetricsServer

# The soft limit that most container runtimes give.
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

class Follower:
    last = {}
    class informer:
        age_seconds = 0.0

clock = Clock()
scan = ProcessIndex(clock, Path("/proc")).scan
sweeper = Sweeper(scan=scan, hold=None, follower=Follower(), tell=None, clock=clock, log=Log("guard", sys.stderr))

def sweep():
    while True:
        began = time.perf_counter()
        sweeper.sweep()
        print(time.perf_counter() - began, sweeper.last.problem, flush=True)
        time.sleep(0.05)

threading.Thread(target=sweep, daemon=True).start()
with MetricsServer(int(sys.argv[1]), sweeper) as server:
    server.serve_forever()
"""


@contextmanager
def attacked(port: int, *, slow: int = 3000, reopen: int = 1000, rate: int = 300, sources: int = 1) -> Iterator[None]:
    """The attack goes on, for as long as the context does."""
    command = [sys.executable, "-m", "tests.support.flood", str(port)]
    given = {"slow": slow, "reopen": reopen, "rate": rate, "sources": sources, "seconds": 600}
    with subprocess.Popen([*command, *(f"--{name}={value}" for name, value in given.items())], cwd=ROOT) as process:
        try:
            yield
            assert process.poll() is None, "the attack ended before its time"
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.flood", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--slow", type=int, default=3000)
    parser.add_argument("--reopen", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=300)
    parser.add_argument("--sources", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sources = [f"127.66.{number // 250}.{number % 250 + 1}" for number in range(given.sources)]
    attack = Attack(given.port, given.slow, given.reopen, given.rate, sources)
    attack.run(given.seconds)
    print(json.dumps(attack.count))


if __name__ == "__main__":
    main()
