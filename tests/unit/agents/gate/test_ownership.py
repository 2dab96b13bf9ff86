"""Tests whether the gate may change the replicas of a Deployment."""

from dataclasses import replace
from typing import Any

import pytest

from agents.gate.ownership import UNDER_WAY_SECONDS, JournalEntry, Ownership, follow, ownership_of
from tenancy.names import GATE
from tests.support.gating import NOW, deployment, entry

LONG_AGO = NOW - UNDER_WAY_SECONDS


def test_at_first_sight_a_deployment_is_the_gates_as_it_is_found() -> None:
    for replicas in (0, 1):
        found = deployment(replicas=replicas, generation=4, scaled_by="helm")
        assert ownership_of(found, None, None, NOW) == Ownership(entry=entry(replicas=replicas, generation=4))


def test_one_that_was_made_again_is_a_first_sight() -> None:
    assert ownership_of(deployment(), entry(replicas=1, uid="gone"), None, NOW) == Ownership(entry=entry())


@pytest.mark.parametrize("replicas", [0, 1])
def test_what_is_found_as_it_was_left_is_the_gates(replicas: int) -> None:
    left = entry(replicas=replicas, changed_at=NOW - 9, idle_since=NOW - 5)
    found = deployment(replicas=replicas, generation=7, scaled_by="somebody who applies the same value")
    assert ownership_of(found, left, None, NOW) == Ownership(entry=left)


OTHERS: dict[str, tuple[dict[str, Any], JournalEntry | None, str | None, str]] = {
    "an autoscaler": ({}, None, "HorizontalPodAutoscaler tts", "HorizontalPodAutoscaler tts scales it"),
    "a seat": (
        {"seats": ("example.com/gpumem",)},
        None,
        None,
        "its pods ask for example.com/gpumem: a seat and a gate",
    ),
    "several replicas": ({"replicas": 3, "scaled_by": "kubectl"}, None, None, "kubectl scaled it to 3"),
    "several replicas, by the gate's name": ({"replicas": 2, "scaled_by": GATE}, entry(), None, "scaled it to 2"),
    "somebody who closed it": (
        {"replicas": 0, "generation": 2, "scaled_by": "kubectl"},
        entry(replicas=1, changed_at=LONG_AGO),
        None,
        "kubectl scaled it to 0 after the gate left it at 1",
    ),
    "somebody who leaves no name, as a scale to 0 does": (
        {"replicas": 0, "generation": 2, "scaled_by": None},
        entry(replicas=1, changed_at=LONG_AGO),
        None,
        "somebody scaled it to 0 after the gate left it at 1",
    ),
    "somebody who opened it": (
        {"replicas": 1, "generation": 2, "scaled_by": "argocd-controller"},
        entry(replicas=0),
        None,
        "argocd-controller scaled it to 1 after the gate left it at 0",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_the_gate_leaves_it_alone_for(case: str) -> None:
    fields, left, scaler, words = OTHERS[case]
    found = ownership_of(deployment(**fields), left, scaler, NOW)
    assert found.other is not None
    assert words in found.other
    assert (found.own, found.entry) == (False, left)


def test_an_act_that_was_begun_is_waited_for_as_long_as_its_run_may_last() -> None:
    begun = entry(replicas=1, changed_at=LONG_AGO + 1)
    assert ownership_of(deployment(scaled_by="helm"), begun, None, NOW) == Ownership(entry=begun, under_way=True)


def test_an_act_that_never_happened_is_forgotten() -> None:
    begun = entry(replicas=1, changed_at=LONG_AGO)
    assert ownership_of(deployment(scaled_by="helm"), begun, None, NOW) == Ownership(entry=entry(changed_at=NOW))


def test_who_does_not_act_follows_what_others_do() -> None:
    left = entry(replicas=0, changed_at=NOW - 9)
    assert follow(deployment(generation=2), left, NOW) == left
    followed = follow(deployment(replicas=1, generation=2), replace(left, idle_since=NOW - 5), NOW)
    assert followed == entry(replicas=1, generation=2, changed_at=NOW)
