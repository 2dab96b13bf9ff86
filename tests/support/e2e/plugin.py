"""Runs `kubectl gpumem` as a user would."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from toolchain.cluster.paths import program


def environ() -> dict[str, str]:
    path = os.pathsep.join((str(Path(program("kubectl")).parent), os.environ["PATH"]))
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}


def gpumem(kubeconfig: Path, *arguments: str, folder: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "gpumem", *arguments, f"--kubeconfig={kubeconfig}"],
        cwd=folder,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def shown(kubeconfig: Path, *arguments: str) -> dict[str, Any]:
    done = gpumem(kubeconfig, *arguments, "-o", "json")
    assert done.returncode in (0, 3), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def reasons(kubeconfig: Path, target: str, namespace: str) -> list[str]:
    return [each["reason"] for each in shown(kubeconfig, "why", target, "-n", namespace)["answers"]]
