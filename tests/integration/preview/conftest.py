"""Fixtures of the preview tests."""

from pathlib import Path

import pytest

from tests.integration.preview.cli import Workspace, workspace


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return workspace(tmp_path)
