"""Makes a project folder for tests of `python -m stacks`."""

from pathlib import Path

import pytest

from stacks.commands import EXAMPLE
from tests.support.prod import PROD


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    (tmp_path / EXAMPLE).parent.mkdir(parents=True)
    (tmp_path / EXAMPLE).write_text(PROD.read_text())
    (tmp_path / "Pulumi.yaml").write_text("name: gpu-tenancy\n")
    (tmp_path / "Pulumi.prod.yaml").write_text(PROD.read_text())
    return tmp_path


def change(project: Path, old: str, new: str) -> None:
    path = project / "Pulumi.prod.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
