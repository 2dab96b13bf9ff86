"""Tests the warnings about objects that will hinder an agent or a workload after the rollout."""

import io
from contextlib import redirect_stdout
from typing import Any

import pytest

from policy.rule import an_object
from tests.support import graphs, prod
from tests.support.consumers import WITH_MEMORY_POOLS
from tests.support.graphs import Manifest, Program, judged, platform, put


def told(program: Program, config: dict[str, Any] | None = WITH_MEMORY_POOLS) -> list[str]:
    with redirect_stdout(io.StringIO()) as said:
        assert judged(program, config) == []
    return [line for line in said.getvalue().splitlines() if "warning" in line and "has no digest" not in line]


def budget(namespace: str = "llama-swap", **spec: Any) -> Manifest:
    given = {"selector": {"matchLabels": {"app": "x"}}, **spec}
    return an_object("policy/v1", "PodDisruptionBudget", "x", namespace, spec=given)


def of_its_pods() -> Manifest:
    found = graphs.deployment("llama-swap", "llama-swap", 5000)
    put(found, "spec.template.metadata.labels", {"app": "x"})
    return found


@pytest.mark.parametrize("spec", [{"maxUnavailable": 0}, {"maxUnavailable": "0%"}, {"minAvailable": "100%"}])
def test_a_budget_by_which_nobody_may_evict_a_tenants_pods_gets_a_warning(spec: dict[str, object]) -> None:
    (line,) = told({"x": budget(**spec)})
    assert "an armed watchdog deletes the pod after the refused eviction" in line
    assert line.endswith("; write maxUnavailable: 1")
    assert told({"x": budget("web", **spec)}) == []


def test_a_budget_that_keeps_all_pods_of_a_workload_gets_a_warning() -> None:
    assert len(told({"x": budget(minAvailable=1), "y": of_its_pods()})) == 1
    assert told({"x": budget(minAvailable=0), "y": of_its_pods()}) == []
    assert told({"x": budget(maxUnavailable=1), "y": of_its_pods()}) == []


@pytest.mark.parametrize(
    ("mode", "warned"), [("Auto", True), ("InPlaceOrRecreate", True), ("Off", False), (None, True)]
)
def test_a_vertical_autoscaler_of_a_promised_workload_gets_a_warning(mode: str | None, warned: bool) -> None:
    policy = {} if mode is None else {"updatePolicy": {"updateMode": mode}}
    spec = {"targetRef": {"kind": "Deployment", "name": "inference"}, **policy}
    found = an_object("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "x", "inference", spec=spec)
    assert bool(told({"x": found})) is warned
    assert told({"x": found | {"metadata": {"name": "x", "namespace": "web"}}}) == []


@pytest.mark.parametrize(
    ("kind", "spec", "warned"),
    [
        ("LimitRange", {"limits": [{"type": "Container", "max": {"memory": "16Gi"}}]}, True),
        ("LimitRange", {"limits": [{"type": "Container", "maxLimitRequestRatio": {"memory": "2"}}]}, True),
        ("LimitRange", {"limits": [{"type": "Container", "max": {"memory": "64Gi"}}]}, False),
        ("ResourceQuota", {"hard": {"limits.memory": "16Gi"}}, True),
        ("ResourceQuota", {"hard": {"limits.memory": "32Gi", "requests.cpu": "1"}}, False),
    ],
)
def test_a_limit_below_a_protected_workloads_own_gets_a_warning(
    kind: str, spec: dict[str, object], warned: bool
) -> None:
    assert bool(told({"x": an_object("v1", kind, "team", "inference", spec=spec)})) is warned
    assert told({"x": an_object("v1", kind, "team", "web", spec=spec)}) == []


def test_a_seat_into_which_no_cuda_context_fits_gets_a_warning() -> None:
    config = prod.raw()
    config["residents"]["llama-swap"]["gpumem_mib"] = 14
    (line,) = told(prod.declared(config), None)
    assert "residents.llama-swap.gpumem_mib is 14" in line
    assert line.endswith("if you meant GiB, write 14336")


def test_a_queue_without_the_cpu_that_another_queue_counts_gets_a_warning() -> None:
    program = platform()
    both = {"coveredResources": ["cpu"], "flavors": [{"name": "cores", "resources": []}]}
    order = {"withinClusterQueue": "LowerPriority"}
    more = graphs.kueue("ClusterQueue", "more", spec={"preemption": order, "resourceGroups": [both]})
    (line,) = told(program | {"more": more}, None)
    assert "ClusterQueue gpu-cq has no quota for cpu, which Kueue counts because another queue has one" in line
