"""Tests the rule file that `python -m stacks rules` writes for a Prometheus without the Prometheus Operator."""

import subprocess
from pathlib import Path

import pytest
import yaml

from components.monitoring.component import prometheus_rule
from stacks import settings
from stacks.__main__ import main
from stacks.platform import alerts_args
from tests.support.alerting import promtool
from tests.support.prod import raw

PROD = settings.parse(raw())


def printed(command: str, project: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([command, "--stack", "prod"], project) == 0
    return capsys.readouterr().out


def judge(kind: str, path: Path) -> None:
    done = subprocess.run([promtool(), "check", kind, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rule_file_has_the_rules_of_the_operators_object(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed("rules", project, capsys)
    assert PROD.alerts is not None
    assert yaml.safe_load(text) == prometheus_rule(alerts_args(PROD, PROD.alerts, PROD.ledger()))["spec"]
    (tmp_path / "rules.yaml").write_text(text)
    judge("rules", tmp_path / "rules.yaml")
