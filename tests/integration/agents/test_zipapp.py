"""The archive of the agents, as Python runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from components.base import zipapp


def test_isolated_python_runs_it_and_says_how_to_use_it(tmp_path: Path) -> None:
    path = tmp_path / "agents.pyz"
    path.write_bytes(zipapp.build().content)
    run = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 2
    assert "name one agent of reconcile, watchdog, gate, exporter" in run.stderr


@pytest.mark.parametrize("agent", ["exporter", "guard"])
def test_the_nodes_archive_has_all_that_its_agents_import(tmp_path: Path, agent: str) -> None:
    """Without settings each says which it lacks, after its modules were imported."""
    path = tmp_path / "agents.pyz"
    path.write_bytes(zipapp.build_for_nodes().content)
    run = subprocess.run([sys.executable, "-I", path, agent], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 1
    assert json.loads(run.stdout)["level"] == "error"
    assert "not set" in json.loads(run.stdout)["message"]
