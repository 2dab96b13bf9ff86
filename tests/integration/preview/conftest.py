"""Fixtures of the preview tests."""

from pathlib import Path

import pytest

from toolchain.workspace import Workspace, workspace


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return workspace(tmp_path)
