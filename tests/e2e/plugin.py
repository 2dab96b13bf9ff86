"""kubectl gpumem, as it is typed."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT
from toolchain.cluster.paths import program


def gpumem(kubeconfig: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """With the pinned kubectl."""
    path = os.pathsep.join((str(Path(program("kubectl")).parent), os.environ["PATH"]))
    return subprocess.run(
        [sys.executable, "-m", "gpumem", *arguments, f"--kubeconfig={kubeconfig}"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
