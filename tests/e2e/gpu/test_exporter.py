"""On a machine with an NVIDIA GPU, the exporter's figures equal the figures of nvidia-smi."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.base.zipapp import build_for_nodes

COMPARE = Path(__file__).with_name("compare.py")


def test_the_exporter_and_nvidia_smi_agree_under_real_allocations(tmp_path: Path) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("NO NVIDIA GPU: the exporter is NOT compared with nvidia-smi")
    archive = tmp_path / "exporter.pyz"
    archive.write_bytes(build_for_nodes().content)
    run = subprocess.run([sys.executable, "-I", COMPARE, archive], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
