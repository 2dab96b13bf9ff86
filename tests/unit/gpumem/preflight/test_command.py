"""Tests the command of `make preflight` and its exit codes."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from agents.kube.pods import PODS
from gpumem import checkout
from gpumem.preflight.__main__ import main
from tests.support.before_rollout import DECLARED, ready
from tests.support.given_clusters import Cluster, record_0000
from tests.support.paths import ROOT


def typed(words: str, cluster: Cluster, *refused: str) -> int:
    api = cluster.api()
    api.refused.update(refused)
    reach: Any = lambda flags: nullcontext(api)  # noqa: E731 (one cluster, whatever the flags)
    return main(words.split(), {}, reach)


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "declared_parts", lambda name, root: DECLARED)


@pytest.mark.usefixtures("declared")
@pytest.mark.parametrize(("cluster", "code"), [(ready(), 0), (record_0000(), 1)], ids=["clear", "denied"])
def test_the_exit_code_is_1_if_something_is_in_the_way(cluster: Cluster, code: int) -> None:
    assert typed("--stack mine", cluster) == code


@pytest.mark.usefixtures("declared")
def test_json_has_each_denial(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("--stack mine -o json", record_0000()) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["stack"], len(found["denies"])) == ("preflight", "mine", 6)
    assert found["denies"][0].keys() == {"namespace", "kind", "name", "pods", "policy", "message"}


@pytest.mark.usefixtures("declared")
def test_a_cluster_that_may_not_be_read_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("--stack mine", ready(), PODS) == 2
    assert "gpumem: may not list pods" in capsys.readouterr().err


def test_a_stack_file_is_compared_with_its_own_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert typed("--stack prod", ready()) == 1
    shown = capsys.readouterr().out
    assert "PriorityClass gpu-workload: is there already" in shown
    assert "the watchdog enforces" in shown


def test_a_stack_that_is_not_there_is_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed("--stack absent", ready()) == 2
    assert "Pulumi.absent.yaml is not there" in capsys.readouterr().err
