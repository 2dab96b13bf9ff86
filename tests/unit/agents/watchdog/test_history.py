"""Tests that the watchdog's journal fits into a ConfigMap, whatever text a tenant writes."""

from datetime import timedelta

import pytest

from agents.kube.journal import Journal
from agents.watchdog.history import RecycleJournal
from agents.watchdog.types import Recycled
from tenancy import names
from tests.support.card import BEGIN, JOURNAL
from tests.support.fake_cluster import SYSTEM, Served

CONFIG_MAP_BYTES = 2**20  # Source: MaxSecretSize in pkg/apis/core/validation/validation.go.
LONGEST = "n" * 400  # The longest name of a workload that the watchdog accepts.
PODS = tuple(f"{number:036}" for number in range(20))


@pytest.fixture
def recycles(served: Served) -> RecycleJournal:
    served.cluster.objects[JOURNAL] = {"metadata": {"name": "journal", "resourceVersion": "1"}}
    journal = Journal(api=served.api(), namespace=SYSTEM, name=names.journal(names.WATCHDOG))
    return RecycleJournal(journal=journal, kept_seconds=3600, log=served.log())


def size(served: Served) -> int:
    return sum(len(value.encode()) for value in served.cluster.objects[JOURNAL]["data"].values())


def act(second: int, number: int) -> Recycled:
    workload = f"{LONGEST[:-9]}{second:04}/{number:04}"
    return Recycled(at=BEGIN + timedelta(seconds=second), workload=workload, pods=PODS, node="n" * 253)


@pytest.mark.no_cover
def test_the_journal_keeps_the_newest_recycles_and_stays_below_the_limit_of_a_config_map(
    served: Served, recycles: RecycleJournal
) -> None:
    recycles.read()
    for second in range(4):
        assert recycles.reserve([act(second, number) for number in range(250)], BEGIN + timedelta(seconds=second))
    assert size(served) < CONFIG_MAP_BYTES
    assert set(recycles.recycled) >= {act(3, number) for number in range(250)}
    assert act(0, 0) not in recycles.recycled
    assert recycles.recycled == tuple(sorted(recycles.recycled, key=lambda each: each.at))
