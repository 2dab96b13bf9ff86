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
    EVENT_REFUSED,
    EVENT_SHORT,
    EVENT_SLICES_GONE,
    GPU,
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
    LABEL_GPU_REPLICAS,
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


REFUSED: dict[str, tuple[Pool, Mapping[str, str], PublishedDevices, str]] = {
    "nothing published": (
        BY_SLICES,
        LABELS,
        PublishedDevices(),
        "no ResourceSlice of gpu.nvidia.com or gpumem.viktorbarzin.me shows its devices: pool t4 cannot be verified",
    ),
    "what is published cannot be read": (
        BY_SLICES,
        BARE,
        PublishedDevices(problem="it is odd"),
        "it is odd: pool t4 cannot",
    ),
    "divided GPUs": (BY_SLICES, BARE, PublishedDevices(devices=()), "its ResourceSlices show no whole GPU"),
    "less than the reserve": (
        BY_SLICES,
        BARE,
        PublishedDevices(devices=(1360,)),
        "which leave nothing beyond the reserve",
    ),
    "slices, which the pool does not go by": (
        T4,
        BARE,
        PublishedDevices(devices=(15360,)),
        "nvidia.com/gpu.memory and",
    ),
    "declared, and nothing shows it": (DECLARED, BARE, PublishedDevices(), "and the labels nvidia.com/gpu.memory and"),
    "declared, half a label": (DECLARED, {**BARE, LABEL_GPU_COUNT: "1"}, PublishedDevices(), "and the labels"),
    "declared, labels show less": (DECLARED, {**LABELS, LABEL_GPU_MEMORY: "8192"}, PublishedDevices(), "shows 8192"),
    "declared, slices show less": (
        DECLARED,
        BARE,
        PublishedDevices(devices=(8192,)),
        "show devices of 8192 MiB, 1 of 15360",
    ),
    "declared, the labels are enough and the slices are not": (
        DECLARED,
        LABELS,
        PublishedDevices(devices=()),
        "its ResourceSlices show no whole GPU, 1 of 15360 declared",
    ),
    "declared, the slices are enough and the labels are not": (
        DECLARED,
        {**LABELS, LABEL_GPU_COUNT: "0"},
        PublishedDevices(devices=(15360,)),
        "nvidia.com/gpu.count shows 0, 1 declared",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_capacity_that_nothing_shows_is_not_advertised(case: str) -> None:
    pool, labels, shows, words = REFUSED[case]
    fresh = judged(node(labels), pool, shows)
    assert written(fresh) == []
    assert words in findings(fresh)[EVENT_REFUSED]
    assert written(judged(node(labels, gpumem="14k"), pool, shows, bound_mib=3000)) == [3000]


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


def test_gpus_of_several_kinds_are_refused_where_labels_show_one() -> None:
    labels = {**LABELS, LABEL_GPU_REPLICAS: "10"}
    for offered, refused in (("10", False), ("20", True), ("9", False), ("x", False)):
        actions = judged(node(labels, **{GPU: offered}), T4, PublishedDevices())
        assert written(actions) == ([] if refused else [14000])
        assert [*findings(actions)] == ([EVENT_REFUSED] if refused else [])
    (note,) = findings(judged(node(labels, **{GPU: "20"}), T4, PublishedDevices())).values()
    assert note == (
        "pool t4 cannot be verified: the node offers 20 nvidia.com/gpu, its labels show 1 x 10: its plugin shares each "
        "GPU and nvidia.com/gpu.replicas does not say so, or it has GPUs of several kinds, of which labels show one; "
        "correct the label, take the node out of the pool, or write source: slices, which counts each device"
    )
    assert written(judged(node(labels, **{GPU: "20"}), TWO, PublishedDevices(devices=(24576, 15360)))) == [28000]
    assert written(judged(node({**LABELS}, **{GPU: "20"}), T4, PublishedDevices())) == [14000]  # replicas unknown


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
