"""Tests the component Queue, which gives the Jobs of a queue tenant their labels."""

from typing import Any

import pytest

from gpu_tenancy import Queue
from gpu_tenancy.arguments import ArgumentError
from stacks.settings import parse
from tenancy.names import POLICY
from tests.support.engine import build
from tests.support.prod import raw

LEDGER = {POLICY: {"ledger": parse(raw()).ledger().to_data()}}


def outputs(name: str, **given: Any) -> dict[str, Any]:
    graph = build(lambda: Queue(name, ledger=LEDGER, **given))
    return dict(graph.outputs_of(graph.one("Queue")))


def test_a_queue_says_where_its_jobs_are_and_which_labels_they_have() -> None:
    assert outputs("team-a-gpu") == {
        "namespace": "team-a",
        "labels": {"kueue.x-k8s.io/queue-name": "team-a-gpu"},
        "clusterQueue": "gpu-cq",
    }


def test_a_priority_is_a_label_as_well_and_the_component_may_have_another_name() -> None:
    assert outputs("jobs", queue="team-b-gpu", priority="gpu-urgent")["labels"] == {
        "kueue.x-k8s.io/queue-name": "team-b-gpu",
        "kueue.x-k8s.io/priority-class": "gpu-urgent",
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"ledger": LEDGER},
            "queue: 'jobs' is none of the platform's local_queues; known queues: team-a-gpu, team-b-gpu",
        ),
        ({}, "platform: is missing; give platform or ledger"),
        ({"ledger": LEDGER, "priority": 3}, "priority: must be a string, known before the program runs (got 3)"),
    ],
)
def test_wrong_arguments_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError) as error:
        build(lambda: Queue("jobs", **given))
    assert str(error.value) == f"Queue jobs is refused:\n  {said}"
