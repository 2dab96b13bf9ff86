"""Forbids unit tests to open network connections or to start processes."""

import gc
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import NoReturn

import coverage
import pytest

REFUSED = (
    (socket.socket, "connect", "connection"),
    (socket.socket, "connect_ex", "connection"),
    (socket.socket, "listen", "server"),  # `bind` is allowed, because urllib3 binds a socket to detect IPv6
    (subprocess.Popen, "__init__", "program"),
    (os, "fork", "process"),
    (os, "posix_spawn", "program"),
    (os, "system", "program"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Stops the first of two coverage measurements that pytest-cov (7.1) starts in a worker.

    pytest-cov never stops or reads the first measurement. The first measurement would trace code while the second
    measurement pauses.
    """
    if hasattr(session.config, "workerinput") and (first := coverage.Coverage.current()) is not None:
        first.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Excludes tests with random cases from the coverage.

    Coverage of such tests would double the time, and would include different code in each run.
    """
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False) or item.get_closest_marker("search"):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(scope="package", autouse=True)
def _one_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, what in REFUSED:
            patch.setattr(owner, name, _refuse(f"{name}: a unit test starts no {what}; tests/integration is for those"))
        yield


@pytest.fixture(scope="package", autouse=True)
def _seldom_collected() -> None:
    """Makes the garbage collector run less often.

    With the default, the collector would scan the objects of the SDK and of Hypothesis hundreds of times. Such scans
    would take a tenth of the total time.
    """
    gc.set_threshold(100_000, 50, 50)


def _refuse(message: str) -> Callable[..., NoReturn]:
    def refuse(*arguments: object, **named: object) -> NoReturn:
        pytest.fail(message)

    return refuse
