"""Kubernetes' own code as a program that is asked: toolchain/oracle."""

import json
import os
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / ".toolchain" / "bin" / "kube-oracle"


def require() -> None:
    """Skips where the program cannot be had, which is never so in CI."""
    if not PROGRAM.exists():
        reason = "kube-oracle is not there: it is built from Kubernetes' modules by `make test` where Go is installed"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


def ask(cases: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each case with its answer, through one process."""
    asked = list(cases)
    with subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as oracle:
        assert oracle.stdin is not None
        assert oracle.stdout is not None
        writer = threading.Thread(target=_write, args=(oracle.stdin, asked))
        writer.start()
        yield from zip(asked, map(json.loads, oracle.stdout), strict=True)
        writer.join()
    assert oracle.returncode == 0


def _write(pipe: Any, cases: Sequence[dict[str, Any]]) -> None:
    with pipe:
        for case in cases:
            pipe.write(json.dumps(case) + "\n")
