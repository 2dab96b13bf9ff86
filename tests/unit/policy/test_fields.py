"""Tests that the right rule reports a wrong field of a small program."""

import pytest

from tenancy import names
from tests.support import graphs
from tests.support.graphs import BATCH, GPUMEM, judge, platform, put

LLAMA = "spec.template.spec.containers.0"
BOTH_KEYS = {f"limits.{GPUMEM}": "2000", f"requests.{GPUMEM}": "2000"}
OTHER_DOMAIN = {"requests.example.com/gpumem": "2000", f"requests.{GPUMEM}": "2000"}
THREE_DEVICES = {f"requests.{GPUMEM}": "4800", "requests.viktorbarzin.me/gpu-count": "3"}
NO_CLASS = {names.KUEUE_QUEUE_LABEL: "team-a-gpu", "kueue.x-k8s.io/priority-class": "gpu-urgend"}


# Each case has an object, a field, its wrong value, the rules, and a part of the message.
FIELDS: list[tuple[str, str, object, str, str]] = [
    ("llama-swap", f"{LLAMA}.resources.limits", {"b.com/gpumem": "5000"}, "seats", "asks for b.com/gpumem, the"),
    ("llama-swap", "metadata.name", "new", "seats", "asks for 5000 MiB without a seat; add residents.new: {tenant:"),
    ("llama-swap", "metadata.namespace", "frigate", "seats", "Deployment frigate/llama-swap: asks for 5000 MiB"),
    (
        "llama-swap",
        "spec.template.spec.nodeSelector",
        dict(BATCH.node_selector),
        "seats",
        "its nodeSelector or",
    ),
    ("llama-swap", f"{LLAMA}.resources.limits", {GPUMEM: "4999500m"}, "whole-mib", "'4999500m' is not a whole"),
    ("llama-swap", f"{LLAMA}.resources", {"requests": {GPUMEM: "5000"}}, "whole-mib", "requests 5000 MiB without a"),
    (
        "llama-swap",
        "spec.template.spec.priorityClassName",
        "x",
        "priorities",
        "names PriorityClass x, which nobody dec",
    ),
    ("quota frigate", "spec.hard", BOTH_KEYS, "resource-quota", f"not enforce spec.hard[limits.{GPUMEM}]; write"),
    ("quota frigate", "spec.hard", OTHER_DOMAIN, "resource-quota", "requests.example.com/gpumem is not the ledger's"),
    ("quota immich", "spec.hard", THREE_DEVICES, "resource-quota", "3 viktorbarzin.me/gpu-count, immich has 2 by"),
    ("local queue", "spec.clusterQueue", "gpu", "queue-coverage", "there is no ClusterQueue gpu; add"),
    (
        "job",
        "metadata.labels",
        NO_CLASS,
        "preemption",
        "there is no WorkloadPriorityClass gpu-urgend; name",
    ),
    ("cluster queue", "spec.preemption", {}, "preemption", "withinClusterQueue is Never, so 2"),
]


@pytest.mark.parametrize(("name", "path", "value", "rules", "message"), FIELDS)
def test_a_wrong_field_breaks_only_its_rules(name: str, path: str, value: object, rules: str, message: str) -> None:
    program = platform()
    put(program[name], path, value)
    reported = judge(program)
    assert graphs.rules_of(reported) == set(rules.split())
    assert any(message in line for line in reported), reported


def test_the_platform_breaks_no_rule() -> None:
    assert judge(platform()) == []
