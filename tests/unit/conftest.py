"""Prevents network connections and new processes in unit tests."""

import gc
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from typing import NoReturn

import coverage
import pytest

from components.base import zipapp

REFUSED = (
    (socket.socket, "connect", "connection"),
    (socket.socket, "connect_ex", "connection"),
    # urllib3 binds a socket to find out whether IPv6 works
    (socket.socket, "listen", "server"),
    (subprocess.Popen, "__init__", "program"),
    (os, "fork", "process"),
    (os, "posix_spawn", "program"),
    (os, "system", "program"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """pytest-cov 7.1 starts two coverage measurements in each worker, and never stops the first one."""
    if hasattr(session.config, "workerinput") and (first := coverage.Coverage.current()) is not None:
        first.stop()


@pytest.fixture(scope="package", autouse=True)
def _one_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, what in REFUSED:
            patch.setattr(owner, name, _refuse(f"{name}: a unit test starts no {what}; tests/integration is for those"))
        yield


@pytest.fixture(scope="package", autouse=True)
def _packed_once() -> Iterator[None]:
    """Packing the agents' code would take most of the time that a stack's program takes."""
    with pytest.MonkeyPatch.context() as patch:
        for build in (zipapp.build, zipapp.build_for_nodes, zipapp.build_for_board):
            patch.setattr(zipapp, build.__name__, cache(build))
        yield


@pytest.fixture(scope="package", autouse=True)
def _seldom_collected() -> None:
    """By default, the garbage collector would take a tenth of the total time."""
    gc.set_threshold(100_000, 50, 50)


def _refuse(message: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: object, **named: object) -> NoReturn:
        pytest.fail(message)

    return refuse
