"""A child process with a log of its own, which does not outlive the process that started it."""

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
_PORTS = range(20000, 30000)  # below those that kernels choose, and below those of NodePorts


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command and the name of its log."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_signal: signal.Signals = signal.SIGTERM


@dataclass
class ChildProcess:
    """A running command."""

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
                start_new_session=True,  # Ctrl-C in a terminal ends the supervisor, which then stops them in order
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
        """Raises ClusterError, with the end of the log, if the process has ended."""
        if (code := self._child.poll()) is not None:
            name = self.command.name
            raise ClusterError(f"{name} ended ({code}); the end of {self.folder.log(name)}:\n{self.folder.tail(name)}")

    def stop(self) -> None:
        """Ends the process by the command's signal, then by SIGKILL, even if it is stopped by SIGSTOP."""
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
    """Returns neighbouring free ports of 127.0.0.1.

    They are outside the range from which the kernel chooses, so that no other program gets a port during a restart.
    """
    while True:
        first = secrets.choice(range(_PORTS.start, _PORTS.stop - count))
        ports = list(range(first, first + count))
        with suppress(OSError), ExitStack() as open_sockets:
            for port in ports:
                open_sockets.enter_context(socket.create_server(("127.0.0.1", port)))
            return ports


_libc = ctypes.CDLL(None)  # loaded before the fork: a child may not import


def _dies_with_its_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
