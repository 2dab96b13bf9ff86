"""Compares our quantities and sums of requests with the results of Kubernetes' code, for random input."""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain
from typing import Any

import pytest

from tenancy.host_memory.oom import PodState, burstable_oom_score_adj, eviction_order
from tenancy.names import NODE_CRITICAL
from tenancy.quantity import QuantityError, canonical, canonical_mib, parse
from tenancy.workload import (
    container_request,
    containers_of,
    containers_request,
    map_at,
    overhead,
    pod_level_request,
    pod_request,
)
from tests.integration.judge import oracle
from tests.support import random_pods, search

CASES = search.cases(3000, soak=100_000)
# Before the fix, our result differed: Kubernetes' result counted the overhead twice.
ALIASED = {
    "memory_bytes": 2**36,
    "pods": [
        {
            "pod": {
                "spec": {
                    "containers": [{"name": "c", "resources": {"limits": {"memory": "10.625Gi"}}}],
                    "overhead": {"memory": "5Gi"},
                    "resources": {"limits": {"memory": "12Gi"}},
                    "priority": 0,
                }
            },
            "working_set_bytes": 16 * 2**30,
        },
        {"pod": {"spec": {"containers": [{"name": "c"}], "priority": 1}}, "working_set_bytes": 2**30},
    ],
    "quantities": ["10.625Gi", "0", "0Mi"],
}
NANO = 10**9


@dataclass
class Comparison:
    pods: int = 0
    nodes: set[int] = field(default_factory=set)
    differences: dict[str, list[tuple[Any, Any, Any]]] = field(default_factory=lambda: defaultdict(list))

    def compare(self, subject: str, asked: Any, ours: Any, theirs: Any) -> None:
        if ours != theirs:
            self.differences[subject].append((asked, ours, theirs))


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    oracle.require()
    random, made = search.dice("pods, nodes and quantities"), Comparison()
    cases = chain([ALIASED], (random_pods.case(random, number) for number in range(CASES)))
    for asked, answer in oracle.ask(cases):
        made.nodes.add(asked["memory_bytes"])
        made.pods += len(asked["pods"])
        _compare_pods(made, asked, answer)
        _compare_quantities(made, asked["quantities"], answer["quantities"])
    return made


def _compare_pods(made: Comparison, asked: dict[str, Any], answer: dict[str, Any]) -> None:
    for position, running in enumerate(asked["pods"]):
        spec = running["pod"]["spec"]
        if answer["qos_class"][position] == "Burstable" and not map_at(spec, "resources") and not _is_critical(spec):
            for container in containers_of(spec, "containers"):
                theirs = answer["oom_score_adj"][position][container["name"]]
                request = math.ceil(container_request(container, "memory"))
                ours = burstable_oom_score_adj(request, asked["memory_bytes"])
                made.compare("oom_score_adj", running, ours, theirs)
        for resource in ("memory", "cpu", random_pods.GPUMEM):
            theirs = math.ceil(parse(answer["requests"][position].get(resource, 0)))
            made.compare("request", spec, pod_request(spec, resource), theirs)
    states = [_state(position, running) for position, running in enumerate(asked["pods"])]
    ours = [sorted(int(state.name) for state in group) for group in eviction_order(states)]
    made.compare("eviction", asked["pods"], ours, [sorted(group) for group in answer["eviction_order"]])


def _state(position: int, running: dict[str, Any]) -> PodState:
    spec = running["pod"]["spec"]
    return PodState(
        name=str(position),
        resident_mib=running["working_set_bytes"],
        request_mib=_eviction_request(spec),
        priority=spec["priority"],
    )


def _is_critical(spec: dict[str, Any]) -> bool:
    return spec.get("priorityClassName") == NODE_CRITICAL


def _eviction_request(spec: dict[str, Any]) -> Fraction:
    """Source: GetResourceRequestQuantity in pkg/api/v1/resource/helpers.go."""
    if any(map_at(spec, "resources", part) for part in ("requests", "limits")):
        request = pod_level_request(spec, "memory") or Fraction(0)
    else:
        request = containers_request(spec, "memory")
    return request + overhead(spec, "memory") if request else request


def _compare_quantities(made: Comparison, texts: list[str], answers: list[dict[str, str]]) -> None:
    _, number, mib = texts
    for text, answer in zip(texts, answers, strict=True):
        theirs = Fraction(int(answer["nano"]), NANO) if answer["nano"] else None
        made.compare("quantity", text, _value(text), theirs)
    made.compare("canonical", number, canonical(int(number)), answers[1]["canonical"])
    made.compare("canonical", mib, canonical_mib(int(number)), answers[2]["canonical"])


def _value(text: str) -> Fraction | None:
    try:
        return parse(text)
    except QuantityError:
        return None


@pytest.mark.search
@pytest.mark.parametrize("subject", ["oom_score_adj", "request", "eviction", "quantity", "canonical"])
def test_we_agree_with_kubernetes_on_every_one(comparison: Comparison, subject: str) -> None:
    found = comparison.differences[subject]
    assert not found, f"{len(found)} differ, for instance (asked, ours, Kubernetes'): {found[:3]}"
