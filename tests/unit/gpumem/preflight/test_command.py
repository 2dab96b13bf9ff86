"""Tests the command preflight and its exit codes."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from agents.kube.pods import PODS
from gpumem import cli
from tenancy.names import LEDGER as LEDGER_MAP
from tenancy.names import LEDGER_KEY, SYSTEM_NAMESPACE
from tests.support.before_rollout import LEDGER, budgeted
from tests.support.given_clusters import Cluster, record_0000
from tests.support.paths import ROOT


def typed(words: str, cluster: Cluster, *refused: str) -> int:
    api = cluster.api()
    api.refused.update(refused)
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{LEDGER_MAP}"
    data = {LEDGER_KEY: json.dumps(LEDGER.to_data())}
    api.objects[path] = {"metadata": {"name": LEDGER_MAP, "resourceVersion": "1"}, "data": data}
    reach: Any = lambda flags: nullcontext(api)  # noqa: E731 (one cluster, whatever the flags)
    return cli.main(["preflight", *words.split()], {}, reach)


@pytest.mark.parametrize(("cluster", "code"), [(budgeted(), 0), (record_0000(), 1)], ids=["clear", "denied"])
def test_the_exit_code_is_1_if_something_is_in_the_way(cluster: Cluster, code: int) -> None:
    assert typed("", cluster) == code


def test_json_has_each_denial(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("-o json", record_0000()) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["stack"], len(found["denies"])) == ("preflight", None, 6)
    assert found["denies"][0].keys() == {"namespace", "kind", "name", "pods", "policy", "message"}


def test_a_cluster_that_may_not_be_read_is_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed("", budgeted(), PODS) == 2
    assert "gpumem: may not list pods" in capsys.readouterr().err


def test_a_stack_file_is_compared_with_its_own_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert typed("--stack prod", budgeted()) == 1
    shown = capsys.readouterr().out
    assert "Namespace immich: is there already" in shown
    assert "the watchdog enforces" in shown


def test_a_stack_that_is_not_there_is_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert typed("--stack absent", budgeted()) == 2
    assert "Pulumi.absent.yaml is not there" in capsys.readouterr().err
