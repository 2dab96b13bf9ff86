"""What keeps `make unit` quick: no server, no program, no cluster. tests/unit/conftest.py refuses the rest."""

import ast
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

UNIT = ROOT / "tests" / "unit"
SERVERS_AND_PROGRAMS = {"http.server", "multiprocessing", "socket", "socketserver", "ssl", "subprocess"}
# They name what they refuse.
GUARDS = {UNIT / "conftest.py", UNIT / "contract" / "test_quick.py"}


@cache
def imported(path: Path) -> frozenset[str]:
    """The modules that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return frozenset(found)


def of_the_tests(path: Path) -> set[Path]:
    """The files of tests/ that a file imports, directly or not."""
    found: set[Path] = set()
    todo = [path]
    while todo:
        names = (name.replace(".", "/") for name in imported(todo.pop()) if name.startswith("tests."))
        new = {file for name in names if (file := ROOT / f"{name}.py").exists()} - found
        found |= new
        todo += new
    return found


@pytest.mark.parametrize("path", sorted({*UNIT.rglob("*.py")} - GUARDS), ids=lambda path: str(path.relative_to(UNIT)))
def test_a_unit_test_imports_nothing_that_serves_or_starts_a_program(path: Path) -> None:
    wrong = {
        str(file.relative_to(ROOT)): sorted(imported(file) & SERVERS_AND_PROGRAMS)
        for file in {path, *of_the_tests(path)}
        if imported(file) & SERVERS_AND_PROGRAMS
    }
    assert wrong == {}


def test_a_unit_test_needs_nothing_of_the_other_levels() -> None:
    levels = ("tests.integration", "tests.e2e")
    assert [path for path in UNIT.rglob("*.py") for name in imported(path) if name.startswith(levels)] == []


def connect() -> None:
    with socket.socket() as client:
        client.connect(("127.0.0.1", 9))


def listen() -> None:
    with socket.socket() as server:
        server.listen()


def run() -> None:
    subprocess.run([sys.executable, "--version"], check=False)


def fork() -> None:
    os.fork()


@pytest.mark.parametrize("start", [connect, listen, run, fork])
def test_what_a_unit_test_must_not_start_fails_it(start: Callable[[], None]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"a unit test starts no \w+; tests/integration is for those"):
        start()
