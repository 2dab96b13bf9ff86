"""Tests that a pod with values that a preview cannot know is judged by what is known."""

from typing import Any

import pytest

from policy.admitted import PodJudge
from policy.finding import judge_each
from policy.objects import Object
from policy.unknown import Unknown
from tenancy.names import GPU, VISIBLE_DEVICES
from tests.support.before_rollout import GPUMEM, LEDGER

SOMETHING = Unknown("spec.somewhere")


WORK = Object("Deployment", "apps", {}, "urn::web")


def refused(namespace: str = "web", handlers: dict[str, Any] | None = None, **spec: Any) -> str:
    main = {"name": "main", "image": SOMETHING, **spec.pop("main", {})}
    template = {"metadata": {"annotations": spec.pop("annotations", {})}, "spec": {"containers": [main], **spec}}
    judge = PodJudge(LEDGER, namespace, template, handlers=handlers or {})
    return "\n".join(each.message for each in judge_each([WORK], judge.findings))


@pytest.mark.parametrize(
    "harmless",
    [
        {"main": {"env": [{"name": "DATABASE", "value": SOMETHING}, {"name": VISIBLE_DEVICES, "value": "void"}]}},
        {"main": {"resources": {"limits": {"cpu": SOMETHING}, "requests": SOMETHING}}},
        {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": SOMETHING}}]},
        {"annotations": {"checksum/config": SOMETHING}},
        {"serviceAccountName": SOMETHING, "nodeSelector": {"zone": SOMETHING}},
    ],
)
def test_an_unknown_value_that_no_policy_depends_on_is_no_finding(harmless: dict[str, Any]) -> None:
    assert refused(**harmless) == ""


@pytest.mark.parametrize(
    "decisive",
    [
        {"main": {"env": [{"name": VISIBLE_DEVICES, "value": SOMETHING}]}},
        {"main": {"env": [{"name": SOMETHING, "value": "0"}]}},
        {"main": {"resources": {"limits": {GPU: SOMETHING}}}},
        {"main": {"resources": {"limits": SOMETHING}}},
        {"runtimeClassName": SOMETHING},
        {"runtimeClassName": "fast", "handlers": {"fast": SOMETHING}},
        {"volumes": [{"name": "data", "hostPath": {"path": SOMETHING}}]},
        {"priorityClassName": SOMETHING},
        {"annotations": SOMETHING},
    ],
)
def test_an_unknown_value_on_which_a_policy_depends_is_named(decisive: dict[str, Any]) -> None:
    said = refused(**decisive)
    assert said.startswith("Deployment web: cannot be proven: spec.somewhere is unknown until the update; write its")
    assert "\n" not in said


def test_what_is_certainly_refused_and_what_hangs_on_an_unknown_value_are_told_at_once() -> None:
    main = {"resources": {"limits": {GPU: "1", GPUMEM: SOMETHING}}, "env": [{"name": Unknown("x"), "value": "0"}]}
    certain, unknown = refused(main=main).split("\n")
    assert "namespace web is no tenant's" in certain
    assert unknown.startswith("Deployment web: cannot be proven: x is unknown until the update")


def test_numbers_of_a_preview_are_numbers_of_the_api() -> None:
    limits = {GPUMEM: 3000.0, GPU: 1.0}
    assert refused("immich", main={"resources": {"limits": limits}}) == ""
    assert "ask for 3000" in refused("immich", main={"resources": {"limits": {**limits, GPUMEM: 3001.0}}})
