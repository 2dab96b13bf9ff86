"""Tests that fit --without finds the pods that must move, and their new places."""

import random
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from gpumem import cluster
from gpumem.paper import Paper
from gpumem.who import UnknownNameError
from gpumem.without import NoAnswerError, Without, without, without_text
from tenancy.ledger import Ledger
from tests.support.kubectl import (
    BATCH,
    LEDGER_OF_PROD,
    NAMES,
    PODS,
    SYSTEM,
    T4,
    add_exporter,
    api,
    device_slice,
    node,
    page,
    pod,
)

TWO_NODES = replace(LEDGER_OF_PROD, pools=(replace(T4, nodes=2), replace(BATCH, nodes=2)))


def drained(
    *pods: dict[str, Any], of: str = "k8s-node1", ledger: Ledger = TWO_NODES, nodes: list[dict[str, Any]] | None = None
) -> Without:
    there = nodes or [node("k8s-node1"), node("k8s-node2", "whole"), node("k8s-node3"), node("k8s-node4", "whole")]
    slices = [device_slice("k8s-node1", 15360), device_slice("k8s-node3", 15360)]
    return without(cluster.read(api(pods, there, ledger, slices), SYSTEM, str), of)  # type: ignore[arg-type]


def on(name: str, mib: int, where: str = "k8s-node1") -> dict[str, Any]:
    return pod(name, mib, on=where)


def test_pods_that_fit_on_the_other_node_have_a_target() -> None:
    found = drained(on("ml", 3000), on("server", 1800))
    assert (found.fits, found.promises, found.fine) == (True, (), True)
    assert {(move.name, move.target) for move in found.moves} == {
        ("ml", "k8s-node3, gpu 0"),
        ("server", "k8s-node3, gpu 0"),
    }
    assert "k8s-node1 (t4): all its pods fit on the other nodes" in without_text(found, Paper())


def test_pods_that_do_not_all_fit_have_no_target() -> None:
    found = drained(on("ml", 3000), on("other", 12000, "k8s-node3"))
    assert (found.fits, found.fine) == (False, False)
    assert [move.target for move in found.moves] == [None]
    text = without_text(found, Paper())
    assert "k8s-node1 (t4): its pods do not all fit on the other nodes" in text
    assert found.why_not in text


def test_pods_that_a_drain_does_not_evict_need_no_place() -> None:
    owner = {"kind": "DaemonSet", "name": "agent", "uid": "u", "apiVersion": "apps/v1", "controller": True}
    stays = on("agent", 13000)
    stays["metadata"]["ownerReferences"] = [owner]
    found = drained(stays, on("other", 12000, "k8s-node3"))
    assert (found.fits, [move.stays for move in found.moves]) == (True, [True])
    assert "no pod has to move" in without_text(found, Paper())


def test_promises_that_need_the_node_are_named() -> None:
    ledger = replace(TWO_NODES, seats=(replace(LEDGER_OF_PROD.seats[0], gpumem_mib=9000, replicas=2),))
    found = drained(ledger=ledger)
    assert (found.fits, found.fine) == (True, False)
    assert found.promises[0].startswith("t4: 18000 MiB promised, 14000 advertised (4000 over)")


def seats(*sizes: int) -> Ledger:
    return replace(
        TWO_NODES,
        seats=tuple(
            replace(LEDGER_OF_PROD.seats[0], name=f"s{mib}", tenant=f"t{mib}", gpumem_mib=mib) for mib in sizes
        ),
    )


def test_absent_seats_that_do_not_fit_next_to_the_moved_pods_are_named() -> None:
    """The seats of 14000 MiB would fill the other node, but the pod without a seat moves there too."""
    guest = pod("guest", 5000, "guest", on="k8s-node1")
    found = drained(guest, ledger=seats(6000, 8000))
    assert (found.fits, found.fine) == (True, False)
    names = "seat of t6000, 6000 MiB, seat of t8000, 8000 MiB"
    assert found.promises == (f"t4: not all of these absent seats fit next to the moved pods: {names}",)
    assert drained(guest, ledger=seats(8000)).fine


def test_the_seat_of_a_moved_pod_is_not_absent() -> None:
    assert drained(pod("ml", 8000, "t8000", on="k8s-node1"), ledger=seats(6000, 8000)).fine
    assert drained(pod("ml", 8000, "t8000", on="k8s-node3"), ledger=seats(6000, 8000)).fine
    stranger = pod("stranger", 8000, "t6000", on="k8s-node3")
    assert not drained(stranger, ledger=seats(6000, 8000)).fine


def test_a_pod_with_the_label_of_another_pools_seat_takes_a_seat_of_its_own_size() -> None:
    """The scheduler counts it so, too."""
    other = replace(TWO_NODES.pools[0], name="other", node_selector={"gpu": "other"})
    named = replace(LEDGER_OF_PROD.seats[0], name="named", tenant="both", pool="other", gpumem_mib=8000)
    small = replace(named, name="small", pool="t4", gpumem_mib=6000)
    ledger = replace(TWO_NODES, pools=(*TWO_NODES.pools, other), seats=(named, small))
    labelled = pod("ml", 6000, "both", on="k8s-node1", seat="named")
    guest = pod("guest", 8000, "guest", on="k8s-node3")
    assert drained(labelled, guest, ledger=ledger).fine


def test_the_seat_of_a_pod_that_ends_on_the_node_becomes_absent() -> None:
    ending = pod("ml", 8000, "t8000", on="k8s-node1")
    ending["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"
    guest = pod("guest", 7000, "guest", on="k8s-node3")
    found = drained(ending, guest, ledger=seats(8000))
    assert (found.fits, found.fine) == (True, False)


def test_the_only_node_of_a_pool_keeps_its_promises_nowhere() -> None:
    found = drained(ledger=LEDGER_OF_PROD, nodes=[node("k8s-node1")])
    assert found.promises == ("t4: it has no other node, and 9800 MiB promised",)


def test_whole_devices_move_to_nodes_with_free_devices() -> None:
    job = pod("job", 0, "team-a", on="k8s-node2", limits={"nvidia.com/gpu": "1"})
    found = drained(job, of="k8s-node2")
    assert [(move.mib, move.gpus, move.target) for move in found.moves] == [(None, 1, "k8s-node4")]
    taken = pod("taken", 0, "team-a", on="k8s-node4", limits={"nvidia.com/gpu": "1"})
    assert drained(job, taken, of="k8s-node2").fits is False


def test_who_may_not_read_all_pods_learns_the_role_to_ask_for() -> None:
    found = api([on("ml", 3000)])
    found.refused.add(PODS)
    with pytest.raises(NoAnswerError, match="ask for the ClusterRole gpumem-operator"):
        without(cluster.read(found, SYSTEM, lambda: "immich"), "k8s-node1")


def test_a_pod_that_ends_needs_no_place_and_is_not_listed() -> None:
    ending = on("ml", 13000)
    ending["metadata"]["deletionTimestamp"] = "2026-11-26T00:00:00Z"
    found = drained(ending, on("other", 12000, "k8s-node3"))
    assert (found.fits, found.moves) == (True, ())


def test_pods_without_a_budget_and_memory_in_use_elsewhere_are_not_known() -> None:
    there = [node("k8s-node1"), node("k8s-node3")]
    slices = [device_slice("k8s-node1", 15360), device_slice("k8s-node3", 15360)]
    seen = api([on("ml", 3000), pod("tts", 0, "tts", on="k8s-node1")], there, TWO_NODES, slices)
    add_exporter(seen, "k8s-node1", page("k8s-node1", 9000, {"immich/ml": 2900, "tts/tts": 3000}))
    add_exporter(seen, "k8s-node3", page("k8s-node3", 1000, {"x/y": 13000}))
    found = without(cluster.read(seen, SYSTEM, str), "k8s-node1")  # type: ignore[arg-type]
    assert "where the pods without a budget would go: tts/tts" in found.unknown
    assert "if k8s-node3, gpu 0 is free in time: 3000 MiB would move there, and 1000 are free" in found.unknown


def place(drawn: random.Random, name: str) -> tuple[dict[str, Any], int]:
    """Returns a node, and the MiB that it has for pods without tolerations."""
    key = drawn.choice(["dedicated", "node.kubernetes.io/disk-pressure"])
    fields, mib = drawn.choice(
        [
            ({}, 14000),
            ({}, 14000),
            ({"spec": {"unschedulable": True}}, 0),
            ({"ready": "Unknown"}, 0),
            ({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}, 0),
            ({"spec": {"taints": [{"key": key, "effect": "PreferNoSchedule"}]}}, 14000),
            ({"mib": 0}, 0),
            ({"mib": 5000}, 5000),
        ]
    )
    return node(name, **fields), mib


@pytest.mark.parametrize("seed", range(100))
def test_all_pods_fit_where_some_order_of_them_fits_the_nodes_that_take_pods(seed: int) -> None:
    drawn = random.Random(seed)  # noqa: S311 (a state to repeat, and no secret)
    names = [f"node-{number}" for number in range(drawn.randint(1, 3))]
    places = [place(drawn, name) for name in names]
    there = [drawn.choice([0, 2000, 7000]) for _ in names]
    moving = [drawn.choice([1500, 4000, 7000, 9000]) for _ in range(drawn.randint(0, 3))]
    room = [max(mib - held, 0) for (_, mib), held in zip(places, there, strict=True)]
    # The truth: of all ways to put each pod on a node, one gives no node more than it has.
    fits = any(
        all(sum(mib for mib, at in zip(moving, chosen, strict=True) if at == n) <= room[n] for n in range(len(names)))
        for chosen in product(range(len(names)), repeat=len(moving))
    )
    pods = [on(f"there-{n}", held, name) for n, (name, held) in enumerate(zip(names, there, strict=True)) if held]
    pods += [on(f"moves-{n}", mib) for n, mib in enumerate(moving)]
    slices = [device_slice(name, 15360) for name in ("k8s-node1", *names)]
    ledger = replace(TWO_NODES, seats=(), pools=(replace(T4, nodes=len(names) + 1), BATCH))
    seen = api(pods, [node("k8s-node1"), *(each for each, _ in places)], ledger, slices)
    found = without(cluster.read(seen, SYSTEM, str), "k8s-node1")  # type: ignore[arg-type]
    assert found.fits is fits, (places, there, moving, found)


TWO_DEVICES = replace(LEDGER_OF_PROD, pools=(replace(T4, nodes=2, device_count=2), BATCH))


def of_a_device(*pods: dict[str, Any], device: str = "0", ledger: Ledger = TWO_DEVICES, **fields: Any) -> Without:
    names = ("k8s-node1", "k8s-node3")
    there = [node("k8s-node1", mib=28000, **fields), node("k8s-node3", mib=28000), node("k8s-node2", "whole")]
    slices = [device_slice(name, 15360, 15360) for name in names]
    return without(cluster.read(api(pods, there, ledger, slices), SYSTEM, str), f"k8s-node1/{device}")  # type: ignore[arg-type]


def test_the_pods_of_a_device_move_to_another_device_of_their_node() -> None:
    found = of_a_device(
        pod("ml", 3000, on="k8s-node1"),
        pod("stays", 9000, "llama-swap", on="k8s-node1", devices=(1,)),
        pod("away", 14000, "other", on="k8s-node3"),
        pod("away-too", 14000, "other", on="k8s-node3", devices=(1,)),
    )
    assert [(move.name, move.target) for move in found.moves] == [("ml", "k8s-node1, gpu 1")]
    assert found.fits
    assert "k8s-node1, gpu 0 (t4): all its pods fit on the other devices" in without_text(found, Paper())


def test_the_pods_of_a_cordoned_nodes_device_move_to_other_nodes() -> None:
    found = of_a_device(pod("ml", 3000, on="k8s-node1"), spec={"unschedulable": True})
    assert str(found.moves[0].target).startswith("k8s-node3")


def test_a_pod_with_two_devices_leaves_both_and_needs_two_others() -> None:
    wide = pod("wide", 20000, on="k8s-node1", devices=(0, 1))
    away = [pod(f"away-{n}", 3000, "other", on="k8s-node3", devices=(n,)) for n in (0, 1)]
    small, stays = pod("small", 4000, on="k8s-node1"), pod("stays", 1000, on="k8s-node1", devices=(1,))
    found = of_a_device(wide, small, stays, *away)
    assert {move.name: move.target for move in found.moves} == {
        "wide": "k8s-node3, gpu 0, k8s-node3, gpu 1",
        "small": "k8s-node1, gpu 1",
    }
    assert not of_a_device(wide, pod("swap", 12000, "llama-swap", on="k8s-node3")).fits


def test_promises_that_need_the_device_are_named() -> None:
    seat = replace(LEDGER_OF_PROD.seats[0], gpumem_mib=9000, replicas=4)
    found = of_a_device(ledger=replace(TWO_DEVICES, seats=(replace(seat, gpumem_mib=12000),)))
    assert found.promises == ("t4: 48000 MiB promised, 42000 left (6000 over)",)
    found = of_a_device(ledger=replace(TWO_DEVICES, seats=(seat,)))
    assert found.promises[0].startswith("t4: its seats do not all fit on one device less: ")
    assert of_a_device(ledger=replace(TWO_DEVICES, seats=(replace(seat, replicas=3),))).fine


@pytest.mark.parametrize("device", ["2", "x", "-1"])
def test_a_device_that_the_node_does_not_have_is_an_error(device: str) -> None:
    with pytest.raises(UnknownNameError, match="it has: 0, 1"):
        of_a_device(device=device)


def test_whole_devices_are_left_out_with_their_node() -> None:
    with pytest.raises(NoAnswerError, match="leave out k8s-node2"):
        drained(of="k8s-node2/0")


def test_a_pod_with_more_devices_than_can_exist_does_not_fit_and_ends_no_search() -> None:
    wide = pod("wide", 2**40, on="k8s-node1", limits={NAMES.gpu_count: str(2**40)})
    assert drained(wide).fits is False
