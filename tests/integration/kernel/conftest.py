"""Memory cgroups of the tests' own. Where they cannot be had, the tests are skipped and say so; in CI they fail."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agents.conftest import certificates, served, zipapp  # noqa: F401 (fixtures)

CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def group() -> Iterator[Path]:
    """A memory cgroup of the module's own; those that a test makes below it go with it."""
    if sys.platform != "linux" or os.geteuid() != 0:
        _cannot("only root on Linux makes memory cgroups")
    unified = (CGROUPS / "cgroup.controllers").exists()
    path = (CGROUPS if unified else CGROUPS / "memory") / f"gpu-tenancy-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        _cannot(f"no memory cgroup can be made: {error}")
    try:
        if not (path / ("memory.max" if unified else "memory.limit_in_bytes")).exists():
            _cannot(f"{path.parent} hands out no memory controller")
        yield path
    finally:
        for folder, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):  # a process is still on its way out
                Path(folder).rmdir()


def _cannot(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
