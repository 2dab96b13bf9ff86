"""Tests that kubectl's proxy never outlives the process that has started it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import eventually

# It tells its process id, and lives on until somebody ends it.
PROXY = """#!/bin/sh
echo $$ > "$HOME/pid.new"; mv "$HOME/pid.new" "$HOME/pid"
echo Starting to serve
exec sleep 1000
"""
USER = """import time
from agents.kube.kubectl import Kubectl

with Kubectl([]):
    time.sleep(1000)
"""


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="The test looks into /proc.")
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_kubectls_proxy_ends_with_us_whatever_ends_us(tmp_path: Path, ending: signal.Signals) -> None:
    (tmp_path / "kubectl").write_text(PROXY)
    (tmp_path / "kubectl").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.defpath}", "HOME": str(tmp_path), "PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, "-c", USER], env=environment, stderr=subprocess.DEVNULL) as user:
        eventually((tmp_path / "pid").exists, "the proxy has started", pause_seconds=0.05)
        pid = int((tmp_path / "pid").read_text())
        assert not is_gone(pid)
        user.send_signal(ending)
    eventually(lambda: is_gone(pid), "the proxy ends", pause_seconds=0.05)
