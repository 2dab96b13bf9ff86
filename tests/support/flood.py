"""Attacks an HTTP server (`python -m tests.support.flood PORT SOURCES`) until the process is killed. The attacker opens
many slow connections, and sends incomplete or far too large requests.
"""

import contextlib
import errno
import itertools
import resource
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from tests.support.paths import ROOT

BUSY = (errno.EINPROGRESS, errno.EAGAIN)
BEGUN = b"GET /metrics HTTP/1.1\r\nX-Slow: "
WHOLE = b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"
OVERSIZED = b"GET /metrics HTTP/1.1\r\nX-Large: " + b"x" * 2**20
# The numbers of slow connections, of new connections per second, and of complete requests per second.
SLOW, REOPEN, RATE = 3000, 1000, 300
DRIP_SECONDS = 1.0
TICK_SECONDS = 0.005


@dataclass
class Attack:
    port: int
    sources: Sequence[str]
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    held: set[socket.socket] = field(default_factory=set)
    quick: dict[socket.socket, float] = field(default_factory=dict)

    def run(self) -> NoReturn:
        addresses, numbers = itertools.cycle(self.sources), itertools.count(1)
        began, dripped, opened, asked = time.monotonic(), 0.0, 0, 0
        while True:
            now = time.monotonic()
            for _ in range(min(SLOW - len(self.held), int((now - began) * REOPEN) - opened, 500)):
                opened += 1
                self._open(next(addresses), BEGUN, self.held)
            for _ in range(min(int((now - began) * RATE) - asked, 500)):
                asked += 1
                self._open(next(addresses), OVERSIZED if next(numbers) % 10 == 0 else WHOLE, None)
            if now - dripped > DRIP_SECONDS:
                dripped = now
                self._drip()
            self._listen(TICK_SECONDS)

    def _open(self, source: str, text: bytes, into: set[socket.socket] | None) -> None:
        client = socket.socket()
        client.setblocking(False)
        with contextlib.suppress(OSError):
            client.bind((source, 0))
        if client.connect_ex(("127.0.0.1", self.port)) not in (0, *BUSY):
            client.close()
            return
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
                elif not client.recv(2**16):
                    self._close(client)
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
    peak_mib: float
    threads: int
    descriptors: int


def cost(pid: int) -> Cost:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    status = {line[0]: line[1] for line in lines if len(line) > 1}
    descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return Cost(int(status["VmHWM:"]) / 1024, int(status["Threads:"]), descriptors)


# A program with the guard's HTTP server and passes. It prints the seconds of each pass.
SWEEPING = """
import resource, sys, threading, time
from pathlib import Path

from agents.guard.main import ProcessGuard
from agents.guard.processes import ProcessIndex
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from agents.runtime.open_server import MetricsServer

# The soft limit that most container runtimes give.
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

class Follower:
    last = {}
    problems = ItemProblems(log=Log("guard", sys.stderr))
    class informer:
        age_seconds = 0.0

clock = Clock()
scan = ProcessIndex(clock, Path("/proc")).scan
checked = ProcessGuard(scan=scan, hold=None, follower=Follower(), tell=None, clock=clock, log=Log("guard", sys.stderr))

def pass_once():
    while True:
        began = time.perf_counter()
        checked.pass_once()
        print(time.perf_counter() - began, checked.last.problem, flush=True)
        time.sleep(0.05)

threading.Thread(target=pass_once, daemon=True).start()
with MetricsServer(int(sys.argv[1]), checked) as server:
    server.serve_forever()
"""


@contextmanager
def attacked(port: int, *, sources: int = 1) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.support.flood", str(port), str(sources)]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield
            assert process.poll() is None, "the attack ended before its time"
        finally:
            process.kill()


def main(port: int, sources: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Attack(port, [f"127.66.{number // 250}.{number % 250 + 1}" for number in range(sources)]).run()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
