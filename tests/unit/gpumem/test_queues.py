"""Tests that the report on queues counts GPUs like Kueue's status."""

from dataclasses import replace
from typing import Any

import pytest

from gpumem import cluster
from gpumem.draw import who_text
from gpumem.paper import Paper
from gpumem.queues import QueueRow, queue_rows
from gpumem.who import Filter, who
from tenancy.ledger import Ledger, QueueQuota
from tenancy.names import GPU
from tests.support import kubectl
from tests.support.kubectl import SYSTEM, api

LEDGER = replace(
    kubectl.LEDGER_OF_PROD,
    quotas=tuple(
        QueueQuota(queue=name, flavor="l4", pool="batch", resource=GPU, nominal=2, borrowing=1) for name in ("a", "b")
    ),
    queue_tenants=("team-a",),
)


def queue(name: str, *, used: int, borrowed: int = 0, cohort: str = "research", waiting: int = 0) -> dict[str, Any]:
    usage = {"name": "l4", "resources": [{"name": GPU, "total": str(used), "borrowed": str(borrowed)}]}
    return {
        "metadata": {"name": name},
        "spec": {"cohortName": cohort} if cohort else {},
        "status": {"flavorsUsage": [usage], "pendingWorkloads": waiting},
    }


def rows(queues: list[dict[str, Any]]) -> tuple[QueueRow, ...]:
    found, problems = queue_rows(queues, LEDGER)
    assert problems == ()
    return found


def test_a_queue_shows_what_it_borrows_and_its_cohort_what_it_lends() -> None:
    a, b = rows([queue("a", used=3, borrowed=1, waiting=4), queue("b", used=1)])
    assert (a.used, a.borrowed, a.lent, a.free, a.borrowable, a.waiting) == (3, 1, 0, 0, 0, 4)
    assert (b.used, b.borrowed, b.lent, b.free, b.borrowable, b.waiting) == (1, 0, 1, 1, 0, 0)


def test_a_queue_may_borrow_idle_quota_of_its_cohort_up_to_its_limit() -> None:
    a, b = rows([queue("a", used=2), queue("b", used=0)])
    assert (a.free, a.borrowable, b.free, b.borrowable) == (0, 1, 2, 0)


def test_a_queue_of_others_and_of_another_pool_is_left_out() -> None:
    assert [each.queue for each in rows([queue("a", used=0), queue("mine", used=1)])] == ["a"]
    assert queue_rows([queue("a", used=0)], LEDGER, "t4") == ((), ())


def served(*queues: dict[str, Any], ledger: Ledger = LEDGER) -> Any:
    found = api(ledger=ledger)
    found.lists["/apis/kueue.x-k8s.io/v1beta2/clusterqueues"] = list(queues)
    return cluster.read(found, SYSTEM, lambda: "immich")


def test_who_prints_the_queues() -> None:
    found = served(queue("a", used=2, waiting=4), queue("b", used=0))
    text = who_text(who(found), Paper())
    assert "QUEUE  COHORT    FLAVOR  QUOTA  IN USE  BORROWED  LENT  FREE  TO BORROW  WAITING" in text
    assert "a      research  l4          2       2         0     0     0          1        4" in text
    assert who(found, Filter(namespace="immich")).queues == who(found).queues


UNREADABLE = [
    {"status": {"flavorsUsage": "x"}},
    {"status": {"flavorsUsage": [{"name": "l4", "resources": [{"name": GPU, "total": "many"}]}]}},
    {"status": {"pendingWorkloads": "many"}},
    {"status": "x"},
    {"spec": []},
]


@pytest.mark.parametrize("fields", UNREADABLE)
def test_a_queue_that_cannot_be_read_is_a_line_and_the_others_are_shown(fields: dict[str, Any]) -> None:
    found = served({**queue("a", used=0), **fields}, queue("b", used=2))
    report = who(found)
    assert [(each.queue, each.used, each.borrowable) for each in report.queues] == [("b", 2, 0)]
    (line,) = [line for line in report.unknown if "ClusterQueue" in line]
    assert line.startswith("ClusterQueue a is not counted, also not in its cohort: ")


def test_an_unreadable_queue_of_others_is_no_line() -> None:
    assert queue_rows([{**queue("mine", used=0), "status": "x"}], LEDGER) == ((), ())
