"""Starts child processes that write to log files. On Linux, the kernel kills a child when its parent ends."""

import atexit
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from toolchain.cluster.errors import ClusterError
from toolchain.cluster.paths import Folder

STOP_SECONDS = 5
_PR_SET_PDEATHSIG = 1
_PORTS = range(20000, 30000)  # The range of ports is below the ephemeral ports of all kernels, and below the NodePorts.
_held = ExitStack()
atexit.register(_held.close)


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line, the name of its process and log, and the signal that stops the process."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM


@dataclass
class ChildProcess:
    """The process of a command."""

    command: Command
    folder: Folder
    _child: "subprocess.Popen[bytes]"

    @classmethod
    def start(cls, command: Command, folder: Folder) -> "ChildProcess":
        log = folder.log(command.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(
                list(command.arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **command.environment},
                # Because of the new session, Ctrl-C reaches only the supervisor. The supervisor stops its children in
                # order.
                start_new_session=True,
                preexec_fn=_dies_with_its_parent if sys.platform == "linux" else None,  # noqa: PLW1509 (takes no lock)
            )
        return cls(command, folder, child)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def check(self) -> None:
        """If the process has ended, raises ClusterError. The message of the error contains the last lines of the
        log."""
        if (code := self._child.poll()) is not None:
            name = self.command.name
            raise ClusterError(f"{name} ended ({code}); the end of {self.folder.log(name)}:\n{self.folder.tail(name)}")

    def stop(self) -> None:
        """Stops the process with the command's signal.

        If the process still runs after `STOP_SECONDS` seconds, stops it with SIGKILL. Also stops a process that has
        received SIGSTOP.
        """
        if self._child.poll() is not None:
            return
        self._child.send_signal(signal.SIGCONT)
        self._child.send_signal(self.command.stop_signal)
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def free_ports(count: int) -> list[int]:
    """Returns consecutive free ports of 127.0.0.1, and holds them until this process ends.

    A program may listen on a held port. Another call of this function returns other ports, and connections use other
    ports. The function holds a port before the program listens, and while the program restarts.
    """
    while True:
        first = secrets.choice(range(_PORTS.start, _PORTS.stop - count))
        ports = list(range(first, first + count))
        with suppress(OSError), ExitStack() as sockets:
            for port in ports:
                held = sockets.enter_context(socket.socket())
                # The code sets the option after the bind, so that the bind fails if another process holds the port.
                held.bind(("127.0.0.1", port))
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sys.platform == "linux":
                _held.enter_context(sockets.pop_all())
            return ports


def accepts_connections(port: int) -> bool:
    """Returns True if a program listens on this port of 127.0.0.1. Raises OSError if no program listens."""
    with socket.create_connection(("127.0.0.1", port)):
        return True


_libc = ctypes.CDLL(None)  # The code loads the library here, because loading is not safe between fork and exec.


def _dies_with_its_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
