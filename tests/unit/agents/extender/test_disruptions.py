"""Tests that the extender reads PodDisruptionBudgets before it chooses victims."""

from dataclasses import replace
from typing import Any

import pytest

from agents.extender.disruptions import DisruptionBudgetReader, disruptions_of
from agents.extender.filter import PlacementVerbs
from agents.extender.protocol import Victims
from agents.kube.client import ApiError
from agents.kube.disruption_budgets import DisruptionBudget, disruption_budget_of
from tests.support.devices import bound
from tests.support.fake_cluster import Fault, Served
from tests.support.preempting import hold, reader, verbs_of, victims

WEB = {"matchLabels": {"app": "web"}}


def budget(selector: Any = None, allowed: Any = 0, *disrupted: str, name: str = "pdb") -> dict[str, Any]:
    return {
        "metadata": {"namespace": "n", "name": name},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, "disruptedPods": dict.fromkeys(disrupted, "2026-11-25T12:00:00Z")},
    }


def declare(served: Served, *budgets: dict[str, Any]) -> None:
    for number, each in enumerate(budgets):
        served.cluster.objects[f"/apis/policy/v1/namespaces/n/poddisruptionbudgets/{number}"] = each


def expression(operator: Any, *values: Any, key: Any = "app") -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "web", "bare"),
    [
        (None, False, False),
        ({}, True, True),
        (WEB, True, False),
        ({"matchLabels": {"app": "other"}}, False, False),
        (expression("In", "web", "db"), True, False),
        (expression("NotIn", "web"), False, True),
        (expression("Exists"), True, False),
        (expression("DoesNotExist"), False, True),
        (WEB | expression("Exists", key="tier"), False, False),
    ],
)
def test_a_disruption_budget_counts_the_pods_that_its_selector_selects(selector: Any, web: bool, bare: bool) -> None:
    found = disruption_budget_of(budget(selector))
    assert found.counts("pod", {"app": "web"}) is web
    assert found.counts("pod", {}) is bare


def test_a_pod_whose_eviction_the_api_server_counted_already_uses_no_disruption() -> None:
    found = disruption_budget_of(budget({}, 1, "going"))
    assert (found.allowed, found.counts("going", {}), found.counts("staying", {})) == (1, False, True)


def test_a_namespace_that_was_not_read_allows_no_disruption() -> None:
    pods = [bound("a", "node", 1000, 0), replace(bound("b", "node", 1000, 0), namespace="other")]
    found = disruptions_of(pods, {"other": (DisruptionBudget(allowed=1),)})
    assert found.violations(("a",)) == 1
    assert found.violations(("b",)) == 0


@pytest.fixture
def budgets(served: Served) -> DisruptionBudgetReader:
    return reader(served, served.time.clock())


@pytest.fixture
def placing(served: Served) -> PlacementVerbs:
    return verbs_of(served)


def held_by_web(placing: PlacementVerbs, **labels: str) -> None:
    hold(placing, "small", 2000, 0)
    hold(placing, "more", 6000, 0, priority=5)
    hold(placing, "large", 8000, 1, labels=labels)


def test_violations_of_added_victims_are_added_to_kube_schedulers(placing: PlacementVerbs, served: Served) -> None:
    """kube-scheduler's victim uses the only allowed disruption."""
    declare(served, budget({}, 1))
    hold(placing, "cpu-hog", 1000, 0)
    hold(placing, "vip", 1000, 0, priority=99)
    hold(placing, "large", 6000, 1)
    assert victims(placing, 8000, "cpu-hog") == Victims(("cpu-hog", "large"), 1)


def test_without_an_answer_of_the_api_server_no_other_victims_are_chosen(
    placing: PlacementVerbs, served: Served
) -> None:
    held_by_web(placing)
    served.cluster.faults.append(Fault("GET", "/apis/policy/v1/namespaces/n/poddisruptionbudgets", 403))
    with pytest.raises(ApiError, match="403"):
        victims(placing, 6000, "small")


def test_kube_schedulers_victims_stand_without_a_read_of_disruption_budgets(
    placing: PlacementVerbs, served: Served
) -> None:
    held_by_web(placing)
    assert victims(placing, 8000, "large", violations=1) == Victims(("large",), 1)
    assert not [path for _, path in served.cluster.requests if "poddisruptionbudgets" in path]
