"""Tests that reconcile adds up the memory of different devices in ResourceSlices."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kube.device_slices import PublishedDevices
from agents.kube.nodes import Node
from agents.reconcile.decide import Action, BoundRequests, ClusterState, decide
from agents.reconcile.labels import HOLD_SECONDS, VerifiedEvidence
from tenancy.choices import Source
from tenancy.ledger import Ledger, Pool
from tenancy.names import (
    EVENT_SHORT,
    EVENT_SLICES_GONE,
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
)
from tenancy.quantity import canonical
from tests.support.fake_cluster import LABELS, NAMES, T4
from tests.support.reconciling import findings, written

BARE = {"gpu": "t4"}
BY_SLICES = replace(T4, source=Source.SLICES)
TWO = replace(BY_SLICES, device_count=2)
DECLARED = replace(T4, source=Source.DECLARED)
NOW = int(datetime(2026, 11, 21, 4, 30, tzinfo=UTC).timestamp())


def node(labels: Mapping[str, str] = BARE, gpumem: str | None = None, **more: str) -> Node:
    held = {**({NAMES.gpumem: gpumem, NAMES.gpu_count: gpumem} if gpumem else {}), **more}
    return Node(name="n", labels=labels, capacity=held, allocatable=held)


def judged(
    found: Node,
    pool: Pool,
    shows: PublishedDevices,
    *,
    bound_mib: int = 0,
    verified: VerifiedEvidence | None = None,
    after: int = 0,
) -> tuple[Action, ...]:
    state = ClusterState(
        nodes=(found,),
        bound={"n": BoundRequests(mib=bound_mib)},
        published={"n": shows},
        verified={"n": verified} if verified else {},
        now=NOW + after,
    )
    return decide(Ledger(domain=NAMES.domain, pools=(pool,)), state)


@pytest.mark.parametrize(
    ("pool", "devices", "expected", "short"),
    [
        (BY_SLICES, (15360,), 14000, False),
        (BY_SLICES, (24576,), 14000, False),
        (BY_SLICES, (24576, 15360), 14000, False),
        (BY_SLICES, (8192,), 6832, True),
        (TWO, (15360, 15360), 28000, False),
        (TWO, (15360, 8192), 20832, True),
        (TWO, (15360,), 14000, True),
        (TWO, (15360, 1000), 14000, True),
    ],
    ids=[
        "as declared",
        "larger than declared",
        "more than declared, of two kinds",
        "smaller than declared",
        "two",
        "two of two kinds, one smaller than declared",
        "one of two",
        "one that the reserve takes up",
    ],
)
def test_each_device_counts_for_what_it_has_up_to_what_is_declared(
    pool: Pool, devices: tuple[int, ...], expected: int, short: bool
) -> None:
    actions = judged(node(), pool, PublishedDevices(devices=devices))
    assert written(actions) == [expected]
    assert [*findings(actions)] == ([EVENT_SHORT] if short else [])


@pytest.mark.parametrize(
    ("labels", "shows"),
    [
        (LABELS, PublishedDevices()),
        (BARE, PublishedDevices(devices=(15360,))),
        (LABELS, PublishedDevices(devices=(15360,))),
        ({**BARE, LABEL_GPU_COUNT: "1"}, PublishedDevices(devices=(15360,))),
    ],
)
def test_declared_is_advertised_where_whatever_there_is_shows_all_of_it(
    labels: Mapping[str, str], shows: PublishedDevices
) -> None:
    actions = judged(node(labels), DECLARED, shows)
    assert (written(actions), findings(actions)) == ([14000], {})


SEEN = VerifiedEvidence(labels=BARE, devices=(15360,))


def test_slices_that_go_count_for_minutes_and_then_nothing_new_is_taken() -> None:
    gone = replace(SEEN, missing_since=NOW)
    for shows in (PublishedDevices(), PublishedDevices(problem="half published")):
        kept = judged(node(gpumem="14k"), BY_SLICES, shows, verified=gone, after=HOLD_SECONDS - 1)
        assert written(kept) == []
        assert findings(kept)[EVENT_SLICES_GONE].startswith("the ResourceSlices that showed devices of 15360 MiB went")
        over = judged(node(gpumem="14k"), BY_SLICES, shows, verified=gone, after=HOLD_SECONDS, bound_mib=3000)
        assert written(over) == [3000]


sizes = st.lists(st.sampled_from([0, 1000, 1360, 8192, 15359, 15360, 24576]), max_size=4)
shown_sets = st.builds(lambda mib: PublishedDevices(devices=tuple(sorted(mib, reverse=True))), sizes) | st.just(
    PublishedDevices()
)
by_slices = st.sampled_from([BY_SLICES, TWO, replace(TWO, source=Source.DECLARED), DECLARED])
label_sets = st.sampled_from([BARE, LABELS, {**LABELS, LABEL_GPU_COUNT: "2"}, {**LABELS, LABEL_GPU_MEMORY: "8192"}])


def room_of(pool: Pool, labels: Mapping[str, str], shows: PublishedDevices) -> int:
    rooms = []
    if shows.devices is not None:
        room = [max(mib - pool.reserve_mib, 0) for mib in shows.devices[: pool.device_count]]
        rooms.append(sum(room))
    if pool.source is Source.DECLARED and LABEL_GPU_COUNT in labels:
        rooms.append(int(labels[LABEL_GPU_COUNT]) * max(int(labels[LABEL_GPU_MEMORY]) - pool.reserve_mib, 0))
    return min(rooms, default=0)


@given(by_slices, label_sets, shown_sets, st.just(0) | st.integers(1, 40_000), st.sampled_from([None, "14k", "28k"]))
def test_no_more_is_advertised_than_is_shown_or_declared_unless_it_is_bound(
    pool: Pool, labels: Mapping[str, str], shows: PublishedDevices, bound_mib: int, before: str | None
) -> None:
    state = node(labels, gpumem=before)
    for gpumem_mib in written(judged(state, pool, shows, bound_mib=bound_mib)):
        assert gpumem_mib is None or max(bound_mib, 1) <= gpumem_mib
        assert (gpumem_mib or 0) <= max(min(room_of(pool, labels, shows), pool.node_mib), bound_mib)
        held = {} if gpumem_mib is None else dict.fromkeys((NAMES.gpumem, NAMES.gpu_count), canonical(gpumem_mib))
        state = replace(state, capacity=held, allocatable=held)
    assert written(judged(state, pool, shows, bound_mib=bound_mib)) == [], "a second pass changes nothing"
