"""Tests how much gpumem reconcile advertises on each node."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kube.nodes import Node
from agents.reconcile.decide import Action, BoundRequests, ClusterState, NodeFinding, NodePatch, decide, status_patch
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool
from tenancy.names import EVENT_OVERBOUND, LABEL_GPU_COUNT, LABEL_GPU_MEMORY
from tenancy.quantity import QuantityError, canonical, whole
from tests.support.fake_cluster import LABELS, NAMES, T4
from tests.support.reconciling import findings, written

BATCH = Pool(name="batch", node_selector={"gpu": "batch"}, nodes=1, device_count=1, sharing=Sharing.WHOLE)
TWO = Pool(name="two", node_selector={"slot": "2"}, nodes=1, device_count=2, memory_mib=24576, reserve_mib=576)


def node(labels: Mapping[str, str] = LABELS, gpumem: str | None = None, gpu_count: str | None = None) -> Node:
    held = {"cpu": "8", NAMES.gpumem: gpumem, NAMES.gpu_count: gpu_count}
    amounts = {key: value for key, value in held.items() if value is not None}
    return Node(name="n", labels=labels, capacity=amounts, allocatable=amounts)


def judged(node: Node, *pools: Pool, bound_mib: int = 0) -> tuple[Action, ...]:
    return decide(
        Ledger(domain=NAMES.domain, pools=pools), ClusterState(nodes=(node,), bound={"n": BoundRequests(mib=bound_mib)})
    )


def applied(state: Node, actions: tuple[Action, ...]) -> Node:
    for action in actions:
        if isinstance(action, NodePatch):
            status = status_patch(NAMES, action)["status"]
            merged = {}
            for part, before in (("capacity", state.capacity), ("allocatable", state.allocatable)):
                values = {**before, **status[part]}  # type: ignore[index]
                merged[part] = {key: value for key, value in values.items() if value is not None}
            state = replace(state, **merged)
    return state


@pytest.mark.parametrize(
    ("case", "bound_mib", "expected"),
    [
        (node(), 0, [14000]),
        (node(gpumem="14k", gpu_count="14k"), 0, []),
        (node(gpumem="14000", gpu_count="14000"), 0, []),
        (node(gpumem="0", gpu_count="0"), 0, [14000]),
        (node(gpumem="14k"), 0, [14000]),
        (node(gpumem="14k", gpu_count="14k"), 15000, [15000]),
        (node(gpumem="16k", gpu_count="16k"), 15000, [15000]),
        (node({}), 0, []),
        (node({}, gpumem="14k", gpu_count="14k"), 0, [None]),
        (node({}, gpumem="14k", gpu_count="14k"), 3000, [None]),
        (node({}, gpu_count="1"), 0, [None]),
        (node({"gpu": "batch"}, gpumem="14k", gpu_count="14k"), 0, [None]),
        (node({**LABELS, LABEL_GPU_MEMORY: "16384"}), 0, [14000]),
    ],
    ids=[
        "new",
        "right",
        "right in another spelling",
        "zeroed by the kubelet",
        "count is missing",
        "more is bound",
        "lowered no further than what is bound",
        "a stranger",
        "left its pool",
        "left its pool with pods on it",
        "left its pool, half removed",
        "in a pool of whole devices",
        "larger devices than declared",
    ],
)
def test_a_node_advertises(case: Node, bound_mib: int, expected: list[int | None]) -> None:
    assert written(judged(case, T4, BATCH, bound_mib=bound_mib)) == expected


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"gpu": "t4", LABEL_GPU_COUNT: "1"}, "the label nvidia.com/gpu.memory is missing"),
        ({"gpu": "t4"}, "the label nvidia.com/gpu.memory and nvidia.com/gpu.count is missing"),
        ({**LABELS, LABEL_GPU_MEMORY: "16G"}, "nvidia.com/gpu.memory is missing or not a number"),
        ({**LABELS, LABEL_GPU_MEMORY: "15359"}, "nvidia.com/gpu.memory shows 15359, 15360 declared"),
        ({**LABELS, LABEL_GPU_COUNT: "0"}, "nvidia.com/gpu.count shows 0, 1 declared"),
        ({**LABELS, "slot": "2"}, r"matched by pools\.t4, pools\.two"),
    ],
)
def test_a_capacity_that_cannot_be_verified_is_refused(labels: Mapping[str, str], words: str) -> None:
    (finding,) = judged(node(labels), T4, TWO)
    assert isinstance(finding, NodeFinding)
    assert finding.blocking
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(finding.note)


@pytest.mark.parametrize(
    ("selector", "remedy"),
    [
        ({"gpu": "t4"}, "or move a pod to another node; if there is none, raise pools.t4.nodes"),
        ({"kubernetes.io/hostname": "n"}, "or end a pod, because pools.t4 selects this node alone"),
    ],
)
def test_where_more_is_bound_than_there_is_the_remedy_is_one_that_the_pool_allows(
    selector: Mapping[str, str], remedy: str
) -> None:
    pool = replace(T4, node_selector=selector)
    found = findings(judged(node({**LABELS, **selector}), pool, bound_mib=15_000))
    assert found == {
        EVENT_OVERBOUND: "The pods on this node ask for 15000 MiB, and pool t4 has 14000 here. What runs stays "
        f"advertised, and no new pod starts here; lower a budget, {remedy}"
    }


def test_both_keys_of_both_maps_are_written_at_once_in_the_servers_spelling() -> None:
    (change,) = judged(replace(node(), resource_version="7"), T4)
    assert isinstance(change, NodePatch)
    values = {NAMES.gpumem: "14k", NAMES.gpu_count: "14k"}
    assert status_patch(NAMES, change) == {
        "metadata": {"resourceVersion": "7"},
        "status": {"capacity": values, "allocatable": values},
    }


amounts = st.none() | st.integers(0, 60_000).map(canonical) | st.sampled_from(["0", "5e3", "14000", "1500m", "-1", "x"])
held = st.fixed_dictionaries({NAMES.gpumem: amounts, NAMES.gpu_count: amounts}).map(
    lambda keys: {key: value for key, value in keys.items() if value is not None}
)
SOUND = (LABELS, {"slot": "2", LABEL_GPU_MEMORY: "24576", LABEL_GPU_COUNT: "2"}, {"gpu": "batch"}, {})
unsound = st.fixed_dictionaries(
    {},
    optional={
        "gpu": st.sampled_from(["t4", "batch", "l4"]),
        "slot": st.sampled_from(["1", "2"]),
        LABEL_GPU_MEMORY: st.sampled_from(["15359", "15360", "15361", "24575", "8192", "x", ""]),
        LABEL_GPU_COUNT: st.sampled_from(["0", "1", "2", "3", "x"]),
    },
)
label_sets = st.builds(dict.__or__, st.sampled_from(SOUND), st.just({}) | unsound)
nodes = st.builds(Node, name=st.just("n"), labels=label_sets, capacity=held, allocatable=held)
pool_sets = st.lists(st.sampled_from([T4, BATCH, TWO]), unique_by=lambda pool: pool.name)
bound_sums = st.just(0) | st.integers(1, 60_000)


def value(amount: str | None) -> int | None:
    try:
        return None if amount is None else whole(amount)
    except QuantityError:
        return None


def verified_mib(state: Node, pools: list[Pool]) -> int:
    mine = [pool for pool in pools if pool.node_selector.items() <= state.labels.items()]
    memory, count = (state.labels.get(label, "") for label in (LABEL_GPU_MEMORY, LABEL_GPU_COUNT))
    if len(mine) != 1 or mine[0].sharing is not Sharing.MEMORY or not (memory.isdigit() and count.isdigit()):
        return 0
    return int(count) * max(int(memory) - mine[0].reserve_mib, 0)


@given(nodes, pool_sets, bound_sums)
def test_in_no_case_a_write_goes_below_what_is_bound_or_above_what_is_there(
    state: Node, pools: list[Pool], bound_mib: int
) -> None:
    other = {"cpu": "8", "nvidia.com/gpu": "100"}
    state = replace(state, capacity={**state.capacity, **other}, allocatable={**state.allocatable, **other})
    after = applied(state, judged(state, *pools, bound_mib=bound_mib))
    shown = value(after.capacity.get(NAMES.gpumem))
    assert after.capacity == after.allocatable
    assert other.items() <= after.capacity.items()
    assert not {0, None} & {
        value(after.capacity[key]) for key in (NAMES.gpumem, NAMES.gpu_count) if key in after.capacity
    }
    assert shown is None or bound_mib <= shown <= max(verified_mib(state, pools), bound_mib)
    assert written(judged(after, *pools, bound_mib=bound_mib)) == [], "a second pass changes nothing"
