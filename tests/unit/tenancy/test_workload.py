"""Tests the requests of workloads against a second formula."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.quantity import QuantityError
from tenancy.workload import (
    TEMPLATES,
    Manifest,
    ShapeError,
    UnboundedError,
    max_pods,
    max_surge_pods,
    pod_request,
    pod_template,
)

GPUMEM = "viktorbarzin.me/gpumem"


def container(request: object = None, limit: object = None, resource: str = GPUMEM, **more: Any) -> dict[str, Any]:
    parts = {"requests": request, "limits": limit}
    return {"resources": {part: {resource: amount} for part, amount in parts.items() if amount is not None}, **more}


def workload(kind: str, **spec: Any) -> Manifest:
    return {"kind": kind, "spec": spec}


INIT_CONTAINERS = st.lists(st.tuples(st.integers(min_value=0, max_value=50), st.booleans()), max_size=5)


def by_moments(containers: list[int], init: list[tuple[int, bool]], overhead: int) -> int:
    """Source: KEP 753, on sidecar containers."""
    moments = [
        sum(request for request, sidecar in init[:index] if sidecar) + init[index][0] for index in range(len(init))
    ]
    moments.append(sum(request for request, sidecar in init if sidecar) + sum(containers))
    return max(moments) + overhead


@given(containers=st.lists(st.integers(0, 50), max_size=4), init=INIT_CONTAINERS, overhead=st.integers(0, 9))
def test_a_pod_requests_the_most_that_runs_at_any_moment(
    containers: list[int], init: list[tuple[int, bool]], overhead: int
) -> None:
    spec = {
        "containers": [container(request) for request in containers],
        "initContainers": [container(r, **({"restartPolicy": "Always"} if sidecar else {})) for r, sidecar in init],
        "overhead": {GPUMEM: overhead},
    }
    assert pod_request(spec, GPUMEM) == by_moments(containers, init, overhead)


def test_a_pod_level_request_replaces_the_containers_for_what_it_supports() -> None:
    containers = [container("1Gi", resource="memory")]
    assert pod_request({"containers": containers, "resources": {"requests": {"memory": "2Gi"}}}, "memory") == 2 << 30
    assert pod_request({"containers": containers, "resources": {"limits": {"memory": "2Gi"}}}, "memory") == 1 << 30
    assert pod_request({"containers": [{}], "resources": {"limits": {"memory": "2Gi"}}}, "memory") == 2 << 30
    level = {"requests": {"hugepages-2Mi": "4Mi", GPUMEM: "1"}, "limits": {GPUMEM: "1"}}
    assert pod_request({"containers": [{}], "resources": level}, "hugepages-2Mi") == 4 << 20
    assert pod_request({"containers": [{}], "resources": level}, GPUMEM) == 0


@pytest.mark.parametrize("kind", [kind for kind in TEMPLATES if kind not in ("Pod", "CronJob")])
def test_the_template_is_where_the_api_has_it(kind: str) -> None:
    assert pod_template(workload(kind, template={"spec": {"a": 1}})) == {"spec": {"a": 1}}


@pytest.mark.parametrize(
    ("manifest", "pods"),
    [
        (workload("Pod"), 1),
        (workload("Deployment"), 1),
        (workload("Deployment", replicas=0), 0),
        (workload("Deployment", replicas=3.0), 3),
        (workload("StatefulSet", replicas=2), 2),
        (workload("ReplicaSet", replicas=None), 1),
        (workload("ReplicationController", replicas=4), 4),
        (workload("DaemonSet"), 7),
        (workload("Job"), 1),
        (workload("Job", parallelism=3), 3),
        (workload("Job", completions=5), 1),
        (workload("Job", parallelism=3, completions=2), 2),
        (workload("Job", parallelism=3, completions=9), 3),
        (workload("CronJob", concurrencyPolicy="Forbid", jobTemplate={"spec": {"parallelism": 2}}), 2),
        (workload("CronJob", concurrencyPolicy="Replace"), 1),
    ],
)
def test_pods_are_counted_as_the_kind_runs_them(manifest: Manifest, pods: int) -> None:
    assert max_pods(manifest, nodes=7) == pods


@pytest.mark.parametrize("spec", [{}, {"concurrencyPolicy": None}, {"concurrencyPolicy": "Allow"}])
def test_runs_that_may_pile_up_have_no_number(spec: dict[str, Any]) -> None:
    with pytest.raises(UnboundedError, match="write Forbid or Replace"):
        max_pods(workload("CronJob", **spec), nodes=1)


def rolling(surge: object, **spec: Any) -> Manifest:
    return workload("Deployment", strategy={"rollingUpdate": {"maxSurge": surge}}, **spec)


@pytest.mark.parametrize(
    ("manifest", "surge"),
    [
        (workload("Deployment"), 1),
        (workload("Deployment", replicas=4), 1),
        (workload("Deployment", replicas=5), 2),
        (workload("Deployment", replicas=0), 1),
        (workload("Deployment", strategy={"type": None}), 1),
        (workload("Deployment", strategy={"type": "Recreate"}), 0),
        (rolling(0), 0),
        (rolling("0%"), 0),
        (rolling(2), 2),
        (rolling(2.0), 2),
        (rolling("34%", replicas=3), 2),
        (workload("StatefulSet", replicas=3), 0),
        (workload("DaemonSet"), 0),
        (workload("DaemonSet", updateStrategy={"rollingUpdate": {"maxSurge": "10%"}}), 1),
        (workload("Job", parallelism=3), 0),
    ],
)
def test_a_rollout_runs_as_many_more_pods(manifest: Manifest, surge: int) -> None:
    assert max_surge_pods(manifest, nodes=7) == surge


@pytest.mark.parametrize(
    "spec", [{"containers": 3}, {"containers": ["a"]}, {"containers": [{"resources": 3}]}, {"overhead": []}]
)
def test_what_has_not_the_shape_of_a_pod_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ShapeError, match=r"must be a (map|list of maps) \(got"):
        pod_request(spec, GPUMEM)


@pytest.mark.parametrize("amount", ["5000MB", "", "a", True, [1]])
def test_what_is_no_quantity_is_refused(amount: object) -> None:
    with pytest.raises(QuantityError):
        pod_request({"containers": [container(amount)]}, GPUMEM)
    with pytest.raises(QuantityError):
        max_pods(workload("Deployment", replicas=amount), nodes=1)
