"""Tests the check of the fields that the stack passes through to Kueue."""

from typing import Any

import pytest

from components.kueue import KueueSpec
from components.queues.nodes import FlavorSpec
from tests.support.prod import put, refusal

QUEUE, FLAVOR = "queues cluster_queues gpu-cq", "queues flavors gpu-any"
# Each case has the path of a map and the map's mistake, and the path within the map with the message.
REFUSED: list[tuple[str, Any, str]] = [
    (f"{QUEUE} queueing_strategy", "FIFO", ": 'FIFO' is not one of ['StrictFIFO', 'BestEffortFIFO']"),
    (f"{QUEUE} preemption within_cluster", "Never", ": unknown key; did you mean within_cluster_queue?"),
    (
        f"{QUEUE} preemption borrow_within_cohort",
        {"max_priority_threshold": "5"},
        ".max_priority_threshold: '5' is not of type 'integer'",
    ),
    (f"{FLAVOR} node_labels", {"gpu": True}, ".gpu: True is not of type 'string'"),
    ("kueue multi_kueue", "site-a", ": 'site-a' is not of type 'object'"),
]


@pytest.mark.parametrize(("path", "value", "said"), REFUSED)
def test_a_mistake_in_a_field_of_kueue_names_key_and_value_and_what_is_allowed(
    path: str, value: Any, said: str
) -> None:
    assert refusal(put(path, value)) == [f"gpu-tenancy:{path.replace(' ', '.')}{said}"]


def test_all_mistakes_are_reported_at_once_and_each_once() -> None:
    lines = refusal(
        put(f"{FLAVOR} node_taints", [{"value": "x"}]),
        put(f"{QUEUE} admission_scope", None),
        put(f"{QUEUE} quotas gpu-any nvidia.com/gpu nominal", "many"),
        put("queues admission_checks", {"autoscaler": {}}),
    )
    assert sorted(lines) == [
        "gpu-tenancy:queues.admission_checks.autoscaler: 'provisioning_class_name' is a required property",
        "gpu-tenancy:queues.cluster_queues.gpu-cq.admission_scope: has no value; write one, or remove the key",
        "gpu-tenancy:queues.cluster_queues.gpu-cq.quotas.gpu-any.nvidia.com/gpu.nominal: must be a Kubernetes quantity "
        "such as 8, 500m or 32Gi (got 'many')",
        "gpu-tenancy:queues.flavors.gpu-any.node_taints.0: 'effect' is a required property",
        "gpu-tenancy:queues.flavors.gpu-any.node_taints.0: 'key' is a required property",
    ]


def test_only_the_names_of_fields_are_translated() -> None:
    flavor = FlavorSpec.model_validate({"node_labels": {"my_label": "x"}, "node_taints": [{"key": "spot"}]})
    assert flavor.passed() == {"nodeLabels": {"my_label": "x"}, "nodeTaints": [{"key": "spot"}]}
    kueue = KueueSpec.model_validate({"version": "0.19.2", "wait_for_pods_ready": {"recovery_timeout": "5m"}})
    assert kueue.passed() == {"waitForPodsReady": {"recoveryTimeout": "5m"}}
