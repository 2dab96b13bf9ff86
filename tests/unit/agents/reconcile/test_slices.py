"""Capacity by ResourceSlices: what they show, each device for itself, and what is advertised by it."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kube.nodes import Node
from agents.kube.slices import SLICES
from agents.reconcile.decide import Action, Bound, ClusterState, NodeFinding, NodePatch, decide
from agents.reconcile.labels import HOLD_SECONDS, Verified, from_journal, remember, to_journal
from agents.reconcile.main import Reconciler, Settings
from agents.reconcile.slices import DeviceSlice, Published, published, slice_of
from agents.telemetry.device import Device, Survey
from agents.telemetry.resourceslice import PublishingNode
from agents.telemetry.resourceslice import slice_of as own_slice
from tenancy.ledger import Ledger, Pool, Source
from tenancy.names import (
    EVENT_ADVERTISED,
    EVENT_REFUSED,
    EVENT_SHORT,
    EVENT_SLICES_GONE,
    EVENT_WITHHELD,
    GPU,
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
    LABEL_GPU_REPLICAS,
    RECONCILE,
    journal,
)
from tenancy.quantity import canonical
from tenancy.units import MIB
from tests.support import search
from tests.support.fake_cluster import LABELS, NAMES, SYSTEM, T4, Served
from tests.support.nvidia_slices import MIG, Gpu, nvidia_slice

BARE = {"gpu": "t4"}
BY_SLICES = replace(T4, source=Source.SLICES)
TWO = replace(BY_SLICES, device_count=2)
DECLARED = replace(T4, source=Source.DECLARED)
FULL = ("14k", "1", "14k", "1")
NOTHING = (None, None, None, None)
NOW = int(datetime(2026, 11, 21, 4, 30, tzinfo=UTC).timestamp())


def read(*slices: dict[str, Any]) -> Published:
    found = (slice_of(each, NAMES) for each in slices)
    return published(each for each in found if each is not None)


def ours(node: str = "n", *mib: int, uuids: Sequence[str] = ()) -> dict[str, Any]:
    """As the exporter publishes it."""
    devices = tuple(
        Device(
            gpu=index,
            uuid=uuids[index] if uuids else f"GPU-{index}",
            total_bytes=each * MIB,
            used_bytes=0,
            free_bytes=each * MIB,
        )
        for index, each in enumerate(mib)
    )
    return own_slice(Survey(devices=devices), PublishingNode(name=node, uid="u", pool=T4), NAMES, None)


def node(labels: Mapping[str, str] = BARE, gpumem: str | None = None, **more: str) -> Node:
    held = {**({NAMES.gpumem: gpumem, NAMES.gpu_count: "1"} if gpumem else {}), **more}
    return Node(name="n", labels=labels, capacity=held, allocatable=held)


def judged(
    found: Node, pool: Pool, shows: Published, *, bound_mib: int = 0, verified: Verified | None = None, after: int = 0
) -> tuple[Action, ...]:
    state = ClusterState(
        nodes=(found,),
        bound={"n": Bound(mib=bound_mib)},
        published={"n": shows},
        verified={"n": verified} if verified else {},
        now=NOW + after,
    )
    return decide(Ledger(domain=NAMES.domain, pools=(pool,)), state)


def written(actions: tuple[Action, ...]) -> list[tuple[int | None, int | None]]:
    return [(action.gpumem_mib, action.gpu_count) for action in actions if isinstance(action, NodePatch)]


def findings(actions: tuple[Action, ...]) -> dict[str, str]:
    return {action.reason: action.note for action in actions if isinstance(action, NodeFinding)}


def test_nvidias_slices_show_its_whole_gpus_and_no_part_of_one() -> None:
    assert read(nvidia_slice("n", [Gpu(mib=24564), MIG, Gpu(minor=1)])) == Published(devices=(24564, 15360))
    assert read(nvidia_slice("n", [MIG])) == Published(devices=())


def test_a_gpu_counts_for_all_its_memory_whether_its_driver_shares_it_or_taints_it() -> None:
    lost = ({"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"},)
    for gpu in (Gpu(shares="memory"), Gpu(shares="unlimited"), Gpu(taints=lost)):
        assert read(nvidia_slice("n", [gpu])).devices == (15360,)


def test_memory_that_is_no_whole_number_of_mib_counts_without_the_rest() -> None:
    device = Gpu().device()
    device["capacity"]["memory"]["value"] = str(15360 * MIB + 500)
    assert read(nvidia_slice("n", [device])).devices == (15360,)


def test_the_exporters_slices_are_read_alike() -> None:
    assert read(ours("n", 15360, 24576)) == Published(devices=(24576, 15360), claimable=True)


def test_where_both_publish_a_device_counts_that_both_have_and_for_the_less() -> None:
    nvidia = nvidia_slice("n", [Gpu(uuid="a", mib=24576), Gpu(minor=1, uuid="b"), Gpu(minor=2, uuid="c")])
    assert read(nvidia, ours("n", 24000, 16000, uuids=("a", "b"))).devices == (24000, 15360)


def test_of_a_pool_in_parts_the_newest_generation_counts_when_it_is_whole() -> None:
    counters = nvidia_slice("n", [], part="counters", generation=2, count=2)
    del counters["spec"]["devices"]
    gpus = nvidia_slice("n", [Gpu()], part="gpus", generation=2, count=2)
    old = nvidia_slice("n", [Gpu(), Gpu(minor=1)], part="old")
    assert read(counters, gpus, old).devices == (15360,)
    half = read(gpus, old)
    assert half.devices is None
    assert half.problem == "gpu.nvidia.com: its devices are half published: 1 of 2 ResourceSlices"


def test_other_drivers_and_slices_of_no_node_show_nothing() -> None:
    nic, network = nvidia_slice("n", [Gpu()]), nvidia_slice("n", [Gpu()])
    nic["spec"]["driver"] = "compute-domain.nvidia.com"
    del network["spec"]["nodeName"]
    assert read(nic, network) == Published()


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "a GPU that shares the host's memory": ({"capacity": {}}, "its device gpu-0 shows no memory"),
    "a GPU without identity": ({"attributes": {"type": {"string": "gpu"}}}, "its device gpu-0 shows no uuid"),
    "an amount that is none": ({"capacity": {"memory": {"value": "much"}}}, "'much' is not a quantity"),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_cannot_be_counted_leaves_the_whole_node_unknown(case: str) -> None:
    change, words = MALFORMED[case]
    shows = read(nvidia_slice("n", [{**Gpu().device(), **change}, Gpu(minor=1)]))
    assert shows.devices is None
    assert words in (shows.problem or "")


@pytest.mark.parametrize(
    ("pool", "devices", "expected", "short"),
    [
        (BY_SLICES, (15360,), (14000, 1), False),
        (BY_SLICES, (24576,), (14000, 1), False),
        (BY_SLICES, (24576, 15360), (14000, 1), False),
        (BY_SLICES, (8192,), (6832, 1), True),
        (TWO, (15360, 15360), (28000, 2), False),
        (TWO, (15360, 8192), (20832, 2), True),
        (TWO, (15360,), (14000, 1), True),
        (TWO, (15360, 1000), (14000, 2), True),
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
    pool: Pool, devices: tuple[int, ...], expected: tuple[int, int], short: bool
) -> None:
    actions = judged(node(), pool, Published(devices=devices))
    assert written(actions) == [expected]
    assert [*findings(actions)] == ([EVENT_SHORT] if short else [])


def test_a_node_that_is_short_says_what_it_has_and_serves_what_it_can() -> None:
    (finding, _) = judged(node(), TWO, Published(devices=(15360, 8192)))
    assert isinstance(finding, NodeFinding)
    assert not finding.blocking
    assert finding.note == (
        "ResourceSlices show devices of 15360, 8192 MiB, pool t4 declares 2 of 15360: each counts for what it has, "
        "20832 of 28000 MiB; lower pools.t4, give such nodes a pool of their own, or look at the node's devices"
    )


REFUSED: dict[str, tuple[Pool, Mapping[str, str], Published, str]] = {
    "nothing published": (
        BY_SLICES,
        LABELS,
        Published(),
        "no ResourceSlice of gpu.nvidia.com or gpumem.viktorbarzin.me shows its devices: pool t4 cannot be verified",
    ),
    "what is published cannot be read": (BY_SLICES, BARE, Published(problem="it is odd"), "it is odd: pool t4 cannot"),
    "divided GPUs": (BY_SLICES, BARE, Published(devices=()), "its ResourceSlices show no whole GPU"),
    "less than the reserve": (BY_SLICES, BARE, Published(devices=(1360,)), "nothing is left beyond the reserve"),
    "slices, which the pool does not go by": (T4, BARE, Published(devices=(15360,)), "nvidia.com/gpu.memory and"),
    "declared, and nothing shows it": (DECLARED, BARE, Published(), "nor do the labels nvidia.com/gpu.memory and"),
    "declared, half a label": (DECLARED, {**BARE, LABEL_GPU_COUNT: "1"}, Published(), "nor do the labels"),
    "declared, labels show less": (DECLARED, {**LABELS, LABEL_GPU_MEMORY: "8192"}, Published(), "shows 8192"),
    "declared, slices show less": (DECLARED, BARE, Published(devices=(8192,)), "show devices of 8192 MiB, 1 of 15360"),
    "declared, the labels are enough and the slices are not": (
        DECLARED,
        LABELS,
        Published(devices=()),
        "its ResourceSlices show no whole GPU, 1 of 15360 declared",
    ),
    "declared, the slices are enough and the labels are not": (
        DECLARED,
        {**LABELS, LABEL_GPU_COUNT: "0"},
        Published(devices=(15360,)),
        "nvidia.com/gpu.count shows 0, 1 declared",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_capacity_that_nothing_shows_is_not_advertised(case: str) -> None:
    pool, labels, shows, words = REFUSED[case]
    fresh = judged(node(labels), pool, shows)
    assert written(fresh) == []
    assert words in findings(fresh)[EVENT_REFUSED]
    assert written(judged(node(labels, gpumem="14k"), pool, shows, bound_mib=3000)) == [(3000, None)]


@pytest.mark.parametrize(
    ("labels", "shows"),
    [
        (LABELS, Published()),
        (BARE, Published(devices=(15360,))),
        (LABELS, Published(devices=(15360,))),
        ({**BARE, LABEL_GPU_COUNT: "1"}, Published(devices=(15360,))),
    ],
)
def test_declared_is_advertised_where_whatever_there_is_shows_all_of_it(
    labels: Mapping[str, str], shows: Published
) -> None:
    actions = judged(node(labels), DECLARED, shows)
    assert (written(actions), findings(actions)) == ([(14000, 1)], {})


def test_gpus_of_several_kinds_are_refused_where_labels_show_one() -> None:
    """Measured of NVIDIA's source: feature discovery labels one kind, with that kind's number."""
    labels = {**LABELS, LABEL_GPU_REPLICAS: "10"}
    for offered, refused in (("10", False), ("20", True), ("9", False), ("x", False)):
        actions = judged(node(labels, **{GPU: offered}), T4, Published())
        assert written(actions) == ([] if refused else [(14000, 1)])
        assert [*findings(actions)] == ([EVENT_REFUSED] if refused else [])
    (note,) = findings(judged(node(labels, **{GPU: "20"}), T4, Published())).values()
    assert note == (
        "pool t4 cannot be verified: the node offers 20 nvidia.com/gpu, its labels show 1 x 10: it has GPUs of several "
        "kinds, of which labels show one; take it out of the pool, or write source: slices, which counts each device"
    )
    assert written(judged(node(labels, **{GPU: "20"}), TWO, Published(devices=(24576, 15360)))) == [(28000, 2)]
    assert written(judged(node({**LABELS}, **{GPU: "20"}), T4, Published())) == [(14000, 1)]  # replicas are not known


SEEN = Verified(labels=BARE, devices=(15360,))


def test_slices_that_go_count_for_minutes_and_then_nothing_new_is_taken() -> None:
    gone = replace(SEEN, missing_since=NOW)
    for shows in (Published(), Published(problem="half published")):
        kept = judged(node(gpumem="14k"), BY_SLICES, shows, verified=gone, after=HOLD_SECONDS - 1)
        assert written(kept) == []
        assert findings(kept)[EVENT_SLICES_GONE].startswith("the ResourceSlices that showed devices of 15360 MiB went")
        over = judged(node(gpumem="14k"), BY_SLICES, shows, verified=gone, after=HOLD_SECONDS, bound_mib=3000)
        assert written(over) == [(3000, None)]


def test_slices_that_show_a_device_less_count_at_once() -> None:
    two = replace(SEEN, devices=(15360, 15360))
    assert written(judged(node(gpumem="28k"), TWO, Published(devices=(15360,)), verified=two)) == [(14000, 1)]


def test_the_pools_label_that_flaps_takes_nothing_off_while_slices_show_the_devices() -> None:
    assert written(judged(node({}, gpumem="14k"), BY_SLICES, Published(devices=(15360,)), verified=SEEN)) == []


def test_another_source_counts_at_once_whatever_was_seen_before() -> None:
    labelled = Verified(labels=LABELS)
    assert EVENT_REFUSED in findings(judged(node(BARE), BY_SLICES, Published(), verified=labelled))
    assert EVENT_REFUSED in findings(judged(node(BARE), T4, Published(), verified=SEEN))


def test_what_slices_showed_is_kept_across_runs_and_a_journal_of_labels_is_as_it_was() -> None:
    ledger = Ledger(domain=NAMES.domain, pools=(BY_SLICES,))
    known = remember(ledger, (node(LABELS),), {}, NOW, {"n": Published(devices=(24576, 8192))})
    assert known == {"n": Verified(labels=BARE, devices=(24576, 8192))}
    assert from_journal(to_journal(known)) == known
    assert to_journal({"n": Verified(labels=LABELS)}) == {"n": {"labels": LABELS, "missing_since": None}}


sizes = st.lists(st.sampled_from([0, 1000, 1360, 8192, 15359, 15360, 24576]), max_size=4)
shown_sets = st.builds(lambda mib: Published(devices=tuple(sorted(mib, reverse=True))), sizes) | st.just(Published())
by_slices = st.sampled_from([BY_SLICES, TWO, replace(TWO, source=Source.DECLARED), DECLARED])
label_sets = st.sampled_from([BARE, LABELS, {**LABELS, LABEL_GPU_COUNT: "2"}, {**LABELS, LABEL_GPU_MEMORY: "8192"}])


def room_of(pool: Pool, labels: Mapping[str, str], shows: Published) -> int:
    """What the devices that are shown have less the reserve, by hand; of both the less where both show."""
    rooms = []
    if shows.devices is not None:
        room = [max(mib - pool.reserve_mib, 0) for mib in shows.devices[: pool.device_count]]
        rooms.append(sum(room))
    if pool.source is Source.DECLARED and LABEL_GPU_COUNT in labels:
        rooms.append(int(labels[LABEL_GPU_COUNT]) * max(int(labels[LABEL_GPU_MEMORY]) - pool.reserve_mib, 0))
    return min(rooms, default=0)


@given(by_slices, label_sets, shown_sets, st.just(0) | st.integers(1, 40_000), st.sampled_from([None, "14k", "28k"]))
def test_no_more_is_advertised_than_is_shown_or_declared_unless_it_is_bound(
    pool: Pool, labels: Mapping[str, str], shows: Published, bound_mib: int, before: str | None
) -> None:
    for gpumem_mib, _ in written(judged(node(labels, gpumem=before), pool, shows, bound_mib=bound_mib)):
        assert gpumem_mib != 0
        assert gpumem_mib is None or gpumem_mib >= bound_mib
        assert (gpumem_mib or 0) <= max(min(room_of(pool, labels, shows), pool.node_mib), bound_mib)


@given(by_slices, label_sets, shown_sets, st.just(0) | st.integers(1, 40_000))
def test_deciding_again_after_the_writes_changes_nothing(
    pool: Pool, labels: Mapping[str, str], shows: Published, bound_mib: int
) -> None:
    state = node(labels, gpumem="28k")
    for gpumem_mib, gpu_count in written(judged(state, pool, shows, bound_mib=bound_mib)):
        amounts = {NAMES.gpumem: gpumem_mib, NAMES.gpu_count: gpu_count}
        held = {key: canonical(amount) for key, amount in amounts.items() if amount is not None}
        state = replace(state, capacity=held, allocatable=held)
    assert written(judged(state, pool, shows, bound_mib=bound_mib)) == []


@pytest.mark.search
def test_in_no_case_of_many_slices_show_more_than_is_there() -> None:
    """Random nodes with random devices, published by either driver, both, in parts or half: by hand and by decide."""
    draw, kinds, cases = search.dice("slices"), Counter[str](), search.cases(500, soak=50_000)
    for _ in range(cases):
        real = {f"GPU-{number}": draw.choice((1000, 8192, 15360, 24576)) for number in range(draw.randint(0, 4))}
        slices, drop = _random_slices(draw, real)
        pool = draw.choice((BY_SLICES, TWO))
        actions = judged(node(), pool, read(*slices))
        room = sum(max(mib - pool.reserve_mib, 0) for mib in real.values())
        for action in actions:
            kinds[action.reason] += 1
        assert all((mib or 0) <= min(room, pool.node_mib) for mib, _ in written(actions)), (real, slices)
        assert not drop or not written(actions), slices
    assert min(kinds[reason] for reason in (EVENT_ADVERTISED, EVENT_REFUSED, EVENT_SHORT)) > cases / 20, kinds
    assert not kinds[EVENT_WITHHELD]  # nothing was advertised before


def _random_slices(draw: random.Random, real: Mapping[str, int]) -> tuple[list[dict[str, Any]], bool]:
    """Slices of these devices, and whether one of them is missing."""
    gpus = [Gpu(minor=number, uuid=uuid, mib=mib) for number, (uuid, mib) in enumerate(real.items())]
    slices, drop = [], False
    if draw.random() < 0.7:
        parts, drop = draw.randint(1, 3), draw.random() < 0.2
        cut = [nvidia_slice("n", gpus[number::parts], part=str(number), count=parts) for number in range(parts)]
        drop = drop and parts > 1
        slices += cut[1:] if drop else cut
    if not slices or draw.random() < 0.3:
        slices.append(ours("n", *real.values(), uuids=tuple(real)))
    draw.shuffle(slices)
    return slices, drop


def agent(served: Served) -> Reconciler:
    settings = Settings(ledger_namespace=SYSTEM, pod_name="one", dry_run=False, interval_seconds=10, run_seconds=0)
    return Reconciler(settings=settings, api=served.api(), clock=served.time.clock(), log=served.log())


def publish(served: Served, found: dict[str, Any]) -> None:
    served.cluster.create(SLICES, found)


def test_a_node_without_labels_is_advertised_by_what_nvidias_driver_publishes(served: Served) -> None:
    served.cluster.add_ledger(BY_SLICES)
    served.cluster.add_node(labels=BARE)
    publish(served, nvidia_slice("k8s-node1", [Gpu()]))
    assert agent(served).run() == 0
    assert served.cluster.shown() == FULL


def test_a_rollout_waits_for_slices(served: Served) -> None:
    served.cluster.add_ledger(BY_SLICES)
    served.cluster.add_node(labels=LABELS)

    def appear() -> None:
        if served.time.seconds == 60:
            publish(served, nvidia_slice("k8s-node1", [Gpu()]))

    served.time.meanwhile = appear
    assert agent(served).run() == 0
    assert served.time.seconds == 60
    assert served.cluster.shown() == FULL


def test_where_every_pool_goes_by_labels_no_slice_is_asked_for(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    assert agent(served).run() == 0
    assert not [url for _, url in served.cluster.requests if "resourceslices" in url]


def test_a_driver_upgrade_takes_nothing_off_for_minutes_across_runs(served: Served) -> None:
    """The kubelet takes a driver's slices away soon after its plugin went (KEP-4381)."""
    start = datetime(2026, 11, 21, 4, 30, tzinfo=UTC)
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps/{journal(RECONCILE)}"
    served.cluster.objects[path] = {
        "metadata": {"name": journal(RECONCILE), "resourceVersion": served.cluster.next_version()}
    }
    served.cluster.now = start
    served.cluster.add_ledger(BY_SLICES)
    served.cluster.add_node(labels=BARE)
    found = nvidia_slice("k8s-node1", [Gpu()])
    publish(served, found)
    assert agent(served).run() == 0
    del served.cluster.objects[f"{SLICES}/{found['metadata']['name']}"]
    for seconds, expected in ((0, FULL), (HOLD_SECONDS - 1, FULL)):
        served.cluster.now = start + timedelta(seconds=seconds)
        assert agent(served).run() == 0
        assert served.cluster.shown() == expected


def test_a_slice_is_kept_as_little_as_is_needed_of_it() -> None:
    found = slice_of(nvidia_slice("n", [Gpu(), Gpu(minor=1, mib=24576), MIG]), NAMES)
    assert isinstance(found, DeviceSlice)
    assert found.mib == (("GPU-0", 15360), ("GPU-1", 24576))
