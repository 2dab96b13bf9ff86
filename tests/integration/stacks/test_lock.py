"""Tests when the lock of a stack is stale."""

import getpass
import os
import socket
import subprocess
import sys

import pytest

from stacks.lock import has_ended


@pytest.mark.skipif(sys.platform != "linux", reason="NO LINUX: a process that waits for its parent is NOT recognised")
def test_a_process_that_has_ended_holds_no_lock_though_its_parent_has_not_waited_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        lock = {"pid": process.pid, "username": getpass.getuser(), "hostname": socket.gethostname()}
        assert not has_ended(lock)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(lock)
    assert has_ended(lock)
