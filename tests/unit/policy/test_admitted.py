"""Tests that a pod with values that a preview cannot know is judged by what is known."""

from typing import Any

import pytest

from policy.admitted import PodJudge
from policy.unknown import Unknown, UnprovenError
from tenancy.names import GPU, VISIBLE_DEVICES
from tests.support.before_rollout import GPUMEM, LEDGER

SOMETHING = Unknown("spec.somewhere")


def refused(namespace: str = "web", handlers: dict[str, Any] | None = None, **spec: Any) -> str:
    main = {"name": "main", "image": SOMETHING, **spec.pop("main", {})}
    template = {"metadata": {"annotations": spec.pop("annotations", {})}, "spec": {"containers": [main], **spec}}
    return "; ".join(each.message for each in PodJudge(LEDGER, namespace, template, handlers=handlers or {}).refusals())


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
    with pytest.raises(UnprovenError, match=r"spec.somewhere is unknown until the update"):
        refused(**decisive)


def test_what_is_certainly_refused_is_refused_beside_an_unknown_value() -> None:
    limits = {GPU: "1", GPUMEM: SOMETHING}
    assert "namespace web is no tenant's" in refused(main={"resources": {"limits": limits}})


def test_numbers_of_a_preview_are_numbers_of_the_api() -> None:
    limits = {GPUMEM: 3000.0, GPU: 1.0}
    assert refused("immich", main={"resources": {"limits": limits}}) == ""
    assert "ask for 3000" in refused("immich", main={"resources": {"limits": {**limits, GPUMEM: 3001.0}}})
