"""Makes memory cgroups for the tests. Without cgroups, pytest skips the tests."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

CGROUPS = Path("/sys/fs/cgroup")


@pytest.fixture(scope="module")
def group() -> Iterator[Path]:
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
            with suppress(OSError):
                Path(folder).rmdir()
