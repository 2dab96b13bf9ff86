"""Runs Kubernetes' own code on given cases (toolchain/kube/oracle)."""

import json
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from tests.support.paths import ROOT

PROGRAM = ROOT / ".toolchain" / "bin" / "kube-oracle"


def require() -> None:
    if not PROGRAM.exists():
        pytest.skip("kube-oracle is not there: `make integration` builds it from Kubernetes' modules where Go is")


def ask(cases: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
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
