"""Tests that amtool accepts our route to Slack."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from components.monitoring.alertmanager import DigestSpec, SlackWebhook, alertmanager_config

SPEC = DigestSpec(slack_webhook=SlackWebhook(secret="alerts-webhook"))


def translated(value: Any) -> Any:
    """Source: the Prometheus Operator. Keys become snake case, and a matcher becomes a single text."""
    if isinstance(value, list):
        return [translated(each) for each in value]
    if not isinstance(value, dict):
        return value
    written = {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", k): translated(v) for k, v in value.items()}
    if "matchers" in written:
        written["matchers"] = [f'{each["name"]}{each["match_type"]}"{each["value"]}"' for each in written["matchers"]]
    if "api_u_r_l" in written:
        assert written.pop("api_u_r_l") == {"name": "alerts-webhook", "key": "url"}
        written["api_url"] = "https://hooks.slack.com/services/x"
    return written


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    config = translated(alertmanager_config(SPEC, {"name": "gpu-tenancy"})["spec"])
    config["route"] = {"receiver": "default", "routes": [config["route"]]}
    config["receivers"].append({"name": "default"})
    path = tmp_path / "alertmanager.yml"
    path.write_text(json.dumps(config))
    return path


def amtool(*arguments: str | Path) -> str:
    program = shutil.which("amtool")
    if program is None:
        pytest.skip("amtool is not installed: the digest's route is NOT tested (make integration installs it)")
    run = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_alertmanager_accepts_it(configuration: Path) -> None:
    assert "SUCCESS" in amtool("check-config", configuration)


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (("part_of=gpu-tenancy", "severity=critical", "namespace=immich"), "slack"),
        (("part_of=gpu-tenancy", "severity=warning"), "slack"),
        (("part_of=gpu-tenancy", "severity=info", "tenant=immich"), "slack-once"),
        (("severity=critical", "alertname=KubeNodeNotReady"), "default"),
    ],
)
def test_our_alerts_of_every_namespace_go_to_slack_and_no_others(
    configuration: Path, labels: tuple[str, ...], receiver: str
) -> None:
    told = amtool("config", "routes", "test", f"--config.file={configuration}", *labels)
    assert told.split() == [receiver]
