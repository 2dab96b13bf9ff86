"""Runs a program in a new network namespace, in which the program reaches only the API server. A program with a fixed
port then occupies no port of this machine.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.support.paths import ROOT
from toolchain.cluster.api import wait_until
from toolchain.cluster.process import accepts_connections
from toolchain.cluster.relay import End, Tcp, Unix, serve

LOCALHOST = "127.0.0.1"
READY_SECONDS = 120


def why_not() -> str | None:
    return None if sys.platform == "linux" and os.geteuid() == 0 else "a network namespace needs Linux and root"


def apart(arguments: Sequence[str], socket: Path, port: int) -> tuple[str, ...]:
    _in_background((Unix(socket), Tcp(LOCALHOST, port)))
    module = (sys.executable, "-m", __name__, str(socket), str(port))
    return ("unshare", "--net", "--pid", "--fork", "--kill-child", f"--wd={ROOT}", *module, *arguments)


def _in_background(way: tuple[End, End]) -> None:
    threading.Thread(target=lambda: asyncio.run(serve([way])), daemon=True).start()


def _run(socket: Path, port: int, command: Sequence[str]) -> int:
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)
    wait_until(socket.exists, READY_SECONDS, "the relay listens")
    _in_background((Tcp(LOCALHOST, port), Unix(socket)))
    wait_until(lambda: accepts_connections(port), READY_SECONDS, "the API server is reached")
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
