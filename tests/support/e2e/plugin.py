"""kubectl gpumem, as it is typed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from toolchain.cluster.paths import program


def environ() -> dict[str, str]:
    """This process's environment, with the pinned kubectl."""
    return {**os.environ, "PATH": os.pathsep.join((str(Path(program("kubectl")).parent), os.environ["PATH"]))}


def gpumem(kubeconfig: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """With the pinned kubectl."""
    return subprocess.run(
        [sys.executable, "-m", "gpumem", *arguments, f"--kubeconfig={kubeconfig}"],
        cwd=ROOT,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def shown(kubeconfig: Path, *arguments: str) -> dict[str, Any]:
    """Returns the plugin's JSON. Raises AssertionError with its error output."""
    done = gpumem(kubeconfig, *arguments, "-o", "json")
    assert done.returncode in (0, 3), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def reasons(kubeconfig: Path, target: str, namespace: str) -> list[str]:
    """Of `why`, by their keys."""
    return [each["reason"] for each in shown(kubeconfig, "why", target, "-n", namespace)["answers"]]
