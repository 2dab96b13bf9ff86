"""Makes memory cgroups for the tests. Without the necessary rights, the tests are skipped, which is a failure in CI."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def group() -> Iterator[Path]:
    """Makes a memory cgroup for the tests of a module. Removes the cgroup and its child cgroups afterwards."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root on Linux makes memory cgroups")
    unified = (CGROUPS / "cgroup.controllers").exists()
    path = (CGROUPS if unified else CGROUPS / "memory") / f"gpu-tenancy-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made: {error}")
    try:
        if not (path / ("memory.max" if unified else "memory.limit_in_bytes")).exists():
            pytest.skip(f"{path.parent} hands out no memory controller")
        yield path
    finally:
        for folder, _, _ in os.walk(path, topdown=False):
            with suppress(OSError):  # a process of the cgroup has not ended completely
                Path(folder).rmdir()
