"""The archive of the agents, as Python runs it."""

import subprocess
import sys
from pathlib import Path

from components.base import zipapp


def test_isolated_python_runs_it_and_says_how_to_use_it(tmp_path: Path) -> None:
    path = tmp_path / "agents.pyz"
    path.write_bytes(zipapp.build().content)
    run = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 2
    assert "name one agent of reconcile, watchdog, gate, exporter" in run.stderr
