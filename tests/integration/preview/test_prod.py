"""Tests that Pulumi's engine and the policy pack refuse prod with mistakes."""

from dataclasses import replace
from typing import Any

from tests.support.examples import assert_refused, with_mistakes
from tests.support.prod import refusal
from tests.support.workspace import Workspace


def test_the_engine_refuses_mistakes_by_the_rules_that_name_them(space: Workspace) -> None:
    """Without a connection to a cluster, Pulumi's provider treats every kind as namespaced."""
    space.change(with_mistakes)
    outcome = space.preview(KUBECONFIG=str(space.unreachable()))
    assert_refused(replace(outcome, text=outcome.text.replace(" default/", " ")))


def wrong_settings(config: dict[str, Any]) -> None:
    config["poolz"] = {"a": 1}
    config["residents"]["immich-ml"]["gpumem_mib"] = "3Gi"
    config["cluster"]["agent_image"] = "docker.io/library/python:latest"
    del config["reconcile"]


def test_the_engine_reports_all_that_the_settings_refuse_at_once(space: Workspace) -> None:
    expected = refusal(wrong_settings)
    assert len(expected) >= 4
    space.change(wrong_settings)
    outcome = space.preview()
    assert outcome.code != 0
    assert [message for message in expected if message not in outcome.text] == [], outcome.text
    assert "Traceback" not in outcome.text
