"""Tests the check of the fields that the stack passes through to Kueue."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from jsonschema import Draft7Validator

from components.base.passed import PassedSpec
from components.kueue import KueueSpec
from components.queues.nodes import FlavorSpec
from stacks.passed_fields import MESSAGES, PASSED
from tests.support.prod import put, refusal

QUEUE, FLAVOR = "queues cluster_queues gpu-cq", "queues flavors gpu-any"
# Each case has the path of a map and the map's mistake, and the path within the map with the message.
REFUSED: list[tuple[str, Any, str]] = [
    (f"{QUEUE} queueing_strategy", "FIFO", ": must be one of 'StrictFIFO', 'BestEffortFIFO' (got 'FIFO')"),
    (f"{QUEUE} preemption within_cluster", "Never", ": unknown key; did you mean within_cluster_queue?"),
    (
        f"{QUEUE} preemption borrow_within_cohort",
        {"max_priority_threshold": "5"},
        ".max_priority_threshold: must be a whole number (got '5')",
    ),
    (f"{QUEUE} stopPolicy", "Hold", ": unknown key; did you mean stop_policy?"),
    (f"{QUEUE} strategy", "StrictFIFO", ": has a new name; write queueing_strategy"),
    (f"{QUEUE} coohrt", "lab", ": unknown key; did you mean cohort?"),
    (f"{QUEUE} stop_policy", True, ": must be one of 'None', 'Hold', 'HoldAndDrain' (got true)"),
    (f"{FLAVOR} node_labels", {"gpu": True}, ".gpu: must be a string; quote it (got true)"),
    (f"{FLAVOR} node_labels", dict.fromkeys("abcdefghi", "x"), ": must have at most 8 entries (got a map)"),
    (
        "kueue wait_for_pods_ready",
        {"timeout": "10 minutes"},
        ".timeout: must match ^([0-9]+(\\.[0-9]+)?(h|m|s))+$ (got '10 minutes')",
    ),
    ("kueue retention", {"after_finished": "24h"}, ": has a new name; write object_retention_policies.workloads"),
    ("kueue multi_kueue", "site-a", ": must be a map of keys (got 'site-a')"),
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
        "gpu-tenancy:queues.admission_checks.autoscaler.provisioning_class_name: is missing; add it",
        "gpu-tenancy:queues.cluster_queues.gpu-cq.admission_scope: has no value; write one, or remove the key",
        "gpu-tenancy:queues.cluster_queues.gpu-cq.quotas.gpu-any.nvidia.com/gpu.nominal: must be a Kubernetes quantity "
        "such as 8, 500m or 32Gi (got 'many')",
        "gpu-tenancy:queues.flavors.gpu-any.node_taints.0.effect: is missing; add it",
        "gpu-tenancy:queues.flavors.gpu-any.node_taints.0.key: is missing; add it",
    ]


def test_only_the_names_of_fields_are_translated() -> None:
    flavor = FlavorSpec.model_validate({"node_labels": {"my_label": "x"}, "node_taints": [{"key": "spot"}]})
    assert flavor.passed() == {"nodeLabels": {"my_label": "x"}, "nodeTaints": [{"key": "spot"}]}
    kueue = KueueSpec.model_validate({"version": "0.19.2", "wait_for_pods_ready": {"recovery_timeout": "5m"}})
    assert kueue.passed() == {"waitForPodsReady": {"recoveryTimeout": "5m"}}


def keywords(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from schema
    nested = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    nested += [schema[word] for word in ("items", "additionalProperties") if schema.get(word)]
    for each in nested:
        yield from keywords(each)


@pytest.mark.parametrize("spec", PASSED.values())
def test_each_rule_of_a_schema_has_a_message(spec: type[PassedSpec]) -> None:
    schema = spec.schema_of_kueue()
    Draft7Validator.check_schema(schema)
    handled = {"type", "enum", "required", "properties", "additionalProperties", "items", "$defs", "$ref", *MESSAGES}
    assert set(keywords(schema)) <= handled
