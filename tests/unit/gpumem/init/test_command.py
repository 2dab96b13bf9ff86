"""Tests that init writes one file and never overwrites another file."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from agents.kube.nodes import NODES
from gpumem import cli
from gpumem.init import command
from gpumem.init.command import InitError
from tests.support.given_clusters import record_0000


def typed(words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *refused: str) -> int:
    monkeypatch.chdir(folder)
    api = record_0000().api()
    api.refused.update(refused)
    reach: Any = lambda flags: nullcontext(api)  # noqa: E731 (one cluster, whatever the flags)
    return cli.main(["init", *words.split()], {}, reach)


def test_a_file_that_is_there_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "Pulumi.mine.yaml"
    path.write_text("mine\n")
    assert typed("--stack mine", tmp_path, monkeypatch) == 1
    assert "Pulumi.mine.yaml is there already" in capsys.readouterr().err
    assert path.read_text() == "mine\n"


def test_overwriting_keeps_the_lines_that_pulumi_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "Pulumi.mine.yaml"
    path.write_text("config: {}\nencryptionsalt: v1:abc=\n")
    assert typed("--stack mine --overwrite", tmp_path, monkeypatch) == 0
    assert path.read_text().count("encryptionsalt: v1:abc=") == 1
    assert "gpu-tenancy:pools:" in path.read_text()


def test_a_cluster_that_may_not_be_read_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("--stack mine", tmp_path, monkeypatch, NODES) == 1
    assert "gpumem: may not list nodes: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("stack", "prometheus"), [("../x", None), ("mine", "localhost:9090")])
def test_a_wrong_name_or_address_is_refused_first(stack: str, prometheus: str | None, tmp_path: Path) -> None:
    api = record_0000().api()
    with pytest.raises(InitError, match=r"stack's name|must be Prometheus' address"):
        command.report(api, stack, tmp_path, prometheus=prometheus, days=28, overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(InitError, match="cannot be written"):
        command.report(record_0000().api(), "mine", tmp_path / "none", prometheus=None, days=28, overwrite=False)
