"""Provides the fixtures of the preview tests."""

import json
from pathlib import Path

import pytest

from stacks.settings import load_file
from tenancy.names import POLICY
from tests.support.prod import PROD
from tests.support.workspace import Workspace, workspace


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    return workspace(tmp_path)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.json"
    path.write_text(json.dumps({POLICY: {"ledger": load_file(PROD).ledger().to_data()}}))
    return path
