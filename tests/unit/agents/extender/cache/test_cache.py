"""The ledger of placement by device."""

import threading
from dataclasses import replace
from itertools import count

import pytest

from agents.extender.cache.cache import (
    MEASURED_SECONDS,
    RESERVE_SECONDS,
    AssumedPod,
    Cache,
    Fits,
    NotAssumed,
)
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.cache.pod_info import Bystander, PodInfo
from agents.extender.cache.snapshot import DeviceDrift, Drift, ShareState
from tenancy.devices.allocate import Ask, Scoring
from tests.support.devices import bound, inventory, ledger_of, take

# Record 0003's cluster: three nodes of two devices with 16276 MiB each.
N1 = (bound("n1-0", "N1", 16276, 0), bound("n1-1", "N1", 12207, 1))
N2 = (bound("n2-0", "N2", 12207, 0), bound("n2-1", "N2", 12207, 1))
N3 = (bound("n3-0", "N3", 8138, 0), bound("n3-1", "N3", 16276, 1))


def example() -> Cache:
    cache = ledger_of(*(inventory(node, 16276, 16276) for node in ("N1", "N2", "N3")))
    for pod in (*N1, *N2, *N3):
        cache.update_pod(pod)
    return cache


def free(cache: Cache, node: str) -> list[int]:
    (usage,) = (usage for usage in cache.snapshot() if usage.node == node)
    return [device.free_mib for device in usage.devices]


# Filter.


def test_of_record_0003s_nodes_only_the_one_whose_device_has_room_passes() -> None:
    assert example().fit("pod", Ask(8138), ["N1", "N2", "N3"], 0.0) == Fits(("N3",), {}, {})
    assert example().fit("pod", Ask(8138), ["N1", "N2"], 0.0) == Fits(
        nodes=(),
        refused={
            "N1": "its largest GPU has 4069 MiB free, not 8138",
            "N2": "its largest GPU has 4069 MiB free, not 8138",
        },
        hopeless={},
    )


def test_several_devices_must_each_have_room() -> None:
    cache = ledger_of(inventory("N", 8000, 4000, 4000))
    assert cache.fit("a", Ask(4000, 3), ["N"], 0.0).nodes == ("N",)
    refused = cache.fit("b", Ask(4000, 2), ["N"], 0.0).refused
    assert refused == {"N": "has 1 of 2 GPUs with 4000 MiB free, the largest has 4000"}


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (Ask(16277), "its largest GPU has 16276 MiB to share, not 16277"),
        (Ask(1, 3), "has 2 of 3 GPUs"),
    ],
)
def test_a_node_that_could_not_take_the_pod_if_it_were_empty_is_hopeless(ask: Ask, reason: str) -> None:
    fits = example().fit("pod", ask, ["N1"], 0.0)
    assert (fits.nodes, fits.refused, fits.hopeless) == ((), {}, {"N1": reason})


def test_nodes_without_devices_or_unknown_are_hopeless_and_say_why() -> None:
    cache = ledger_of(NodeDevices(node="away", pool="t4", unusable="its devices are not published"))
    assert cache.fit("pod", Ask(1), ["away", "cpu"], 0.0).hopeless == {
        "away": "its devices are not published",
        "cpu": "has no GPU memory to share that is known",
    }


def test_unhealthy_and_excluded_devices_take_no_pod_and_keep_theirs() -> None:
    devices = (NodeDevice(0, "GPU-N-0", 8000, healthy=False), NodeDevice(1, "GPU-N-1", 9000, excluded=True))
    cache = ledger_of(NodeDevices(node="N", pool="t4", devices=devices))
    cache.update_pod(bound("pod", "N", 5000, 0))
    assert cache.fit("new", Ask(1), ["N"], 0.0).hopeless == {"N": "its largest GPU has 0 MiB to share, not 1"}
    assert free(cache, "N") == [0, 0]
    assert cache.snapshot()[0].devices[0].held_mib == 5000


# Between filter and bind.


def test_two_filters_are_not_told_of_the_same_room() -> None:
    cache = ledger_of(inventory("A", 8000), inventory("B", 8000))
    assert cache.fit("one", Ask(8000), ["A", "B"], 0.0).nodes == ("A",)
    assert cache.fit("two", Ask(8000), ["A", "B"], 0.0).nodes == ("B",)
    assert cache.fit("three", Ask(8000), ["A", "B"], 0.0).nodes == ()


def test_a_promise_ends_with_its_time() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.fit("one", Ask(8000), ["N"], 0.0)
    assert cache.fit("two", Ask(8000), ["N"], RESERVE_SECONDS - 0.1).nodes == ()
    assert cache.fit("two", Ask(8000), ["N"], RESERVE_SECONDS).nodes == ("N",)


def test_a_pods_next_filter_replaces_its_promise() -> None:
    cache = ledger_of(inventory("N", 8000))
    for now in range(3):
        assert cache.fit("pod", Ask(5000), ["N"], float(now)).nodes == ("N",)
    assert free(cache, "N") == [3000]


def test_the_node_that_suits_best_is_the_answer_and_has_the_promise() -> None:
    cache = ledger_of(inventory("loose", 16000), inventory("tight", 8100))
    assert cache.fit("pod", Ask(8000), ["loose", "tight", "unknown"], 0.0).nodes == ("tight",)
    assert (free(cache, "loose"), free(cache, "tight")) == ([16000], [100])


def test_of_equal_nodes_the_first_by_name_of_those_that_are_asked_about_is_best() -> None:
    cache = ledger_of(*(inventory(name, 8000) for name in "ABC"))
    assert cache.fit("pod", Ask(8000), ["C", "B"], 0.0).nodes == ("B",)
    assert [free(cache, name) for name in "ABC"] == [[8000], [0], [8000]]


def test_a_node_that_was_not_there_is_found_once_it_is() -> None:
    cache = ledger_of(inventory("A", 16000))
    assert cache.fit("pod", Ask(8000), ["A", "B"], 0.0).nodes == ("A",)
    cache.update_node(inventory("B", 8000))
    assert cache.fit("pod", Ask(8000), ["A", "B"], 0.0).nodes == ("B",)
    cache.remove_node("B")
    assert cache.fit("pod", Ask(8000), ["A", "B"], 0.0).nodes == ("A",)


def test_more_asks_than_are_remembered_are_judged_as_one_is() -> None:
    cache = ledger_of(inventory("A", 16000), inventory("B", 8000))
    for mib in (*range(4000, 4100), 4000):
        assert cache.fit("pod", Ask(mib), ["A", "B"], 0.0).nodes == ("B",)
    cache.update_pod(bound("other", "B", 8000, 0))
    assert cache.fit("pod", Ask(4000), ["A", "B"], 0.0).nodes == ("A",)


# By fragmentation.


def test_the_usual_pods_are_those_that_are_bound() -> None:
    """Best fit leaves 2000 on the device of 6000; while pods of 4000 are usual, the one of 8000 is chosen."""
    node = inventory("N", 8000, 6000)
    usual = [bound("usual", "other", 4000, 0)]
    for scoring, indices in ((Scoring.BEST_FIT, (1,)), (Scoring.FRAGMENTATION, (0,))):
        cache = Cache(scoring)
        cache.replace([node], usual, since=0.0)
        assert take(cache, "pod", Ask(4000), "N").indices == indices


def test_the_two_rules_choose_different_nodes_for_the_same_request() -> None:
    """Best fit takes the node with the least left, and leaves 2000 MiB there that no usual pod can use."""
    nodes = [inventory("tight", 6000), inventory("even", 8000)]
    usual = [bound("usual", "other", 4000, 0)]
    for scoring, best in ((Scoring.BEST_FIT, "tight"), (Scoring.FRAGMENTATION, "even")):
        cache = Cache(scoring)
        cache.replace(nodes, usual, since=0.0)
        assert cache.fit("pod", Ask(4000), ["tight", "even"], 0.0).nodes == (best,)


def test_before_any_pod_is_bound_best_fit_chooses_and_the_audit_learns() -> None:
    cache = Cache(Scoring.FRAGMENTATION)
    cache.update_node(inventory("N", 8000, 6000))
    assert take(cache, "first", Ask(4000), "N").indices == (1,)
    cache.forget("first")
    usual = bound("usual", "other", 4000, 0)
    cache.update_pod(usual)
    cache.compare([usual], since=0.0)
    assert take(cache, "second", Ask(4000), "N").indices == (0,)


def test_a_node_whose_cpu_bystanders_have_is_the_better_for_a_pod_that_fits_it() -> None:
    """Nothing usual can use the memory there any more, so that taking it strands none."""
    cache = Cache(Scoring.FRAGMENTATION)
    nodes = [replace(inventory(name, 16000), cpu_milli=8000) for name in ("A", "B")]
    usual = PodInfo(uid="usual", namespace="t", name="u", node="other", ask=Ask(5000, cpu_milli=4000), indices=(0,))
    bystander = Bystander(uid="plain", node="B", cpu_milli=6000)
    cache.replace(nodes, [usual], since=0.0)
    small = Ask(2000, cpu_milli=1000)
    assert cache.fit("pod", small, ["A", "B"], 0.0).nodes == ("A",)
    cache.update_pod(bystander)
    assert cache.fit("pod", small, ["A", "B"], 0.0).nodes == ("B",)
    cache.remove_pod("plain")
    assert cache.fit("pod", small, ["A", "B"], 0.0).nodes == ("A",)


# Bind.


def test_record_0003s_request_is_bound_to_the_device_with_the_least_that_fits() -> None:
    cache = ledger_of(inventory("N1", 12207, 8138, 4069, 16276))
    assert take(cache, "pod", Ask(8138), "N1") == AssumedPod((1,), ("GPU-N1-1",), 8138)


def test_what_was_taken_does_not_run_out_while_it_is_being_bound() -> None:
    cache = ledger_of(inventory("N", 8000))
    take(cache, "pod", Ask(8000), "N")
    assert cache.assume("late", Ask(8000), "N", 1e9) == NotAssumed("its largest GPU has 0 MiB free, not 8000")


def test_a_failed_bind_gives_the_room_back_at_once() -> None:
    cache = ledger_of(inventory("N", 8000))
    take(cache, "one", Ask(8000), "N")
    cache.forget("one")
    take(cache, "two", Ask(8000), "N")


def test_a_pod_is_taken_only_once() -> None:
    cache = ledger_of(inventory("N", 8000, 8000))
    refusal = NotAssumed("the pod is bound already, or about to be")
    take(cache, "pod", Ask(100), "N")
    assert cache.assume("pod", Ask(100), "N", 0.0) == refusal
    cache.update_pod(bound("pod", "N", 100, 0))
    assert cache.assume("pod", Ask(100), "N", 0.0) == refusal
    assert free(cache, "N") == [7900, 8000]


def test_a_bind_to_another_node_than_promised_leaves_nothing_behind() -> None:
    cache = ledger_of(inventory("A", 8000), inventory("B", 9000))
    cache.fit("pod", Ask(8000), ["A", "B"], 0.0)
    take(cache, "pod", Ask(8000), "B")
    assert (free(cache, "A"), free(cache, "B")) == ([8000], [1000])


def test_a_bind_to_a_node_that_went_is_refused() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.remove_node("N")
    assert cache.assume("pod", Ask(1), "N", 0.0) == NotAssumed("has no GPU memory to share that is known")


def test_of_many_binds_at_once_as_many_succeed_as_there_is_room() -> None:
    """Fifty threads, one room for twenty."""
    cache = ledger_of(inventory("N", 10_000, 10_000))
    start = threading.Barrier(50)
    outcomes: list[AssumedPod | NotAssumed] = []

    def bind(uid: str) -> None:
        start.wait()
        cache.fit(uid, Ask(1000), ["N"], 0.0)
        outcomes.append(cache.assume(uid, Ask(1000), "N", 0.0))

    threads = [threading.Thread(target=bind, args=(f"pod-{number}",)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chosen = [outcome for outcome in outcomes if isinstance(outcome, AssumedPod)]
    assert len(outcomes) == 50
    assert sorted(outcome.indices for outcome in chosen) == [(0,)] * 10 + [(1,)] * 10
    assert free(cache, "N") == [0, 0]


# What the API says.


def test_a_pod_that_terminates_holds_its_device_until_it_is_gone() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("pod", "N", 8000, 0, terminating=True))
    assert cache.fit("next", Ask(1), ["N"], 0.0).nodes == ()
    cache.remove_pod("pod")
    assert cache.fit("next", Ask(1), ["N"], 0.0).nodes == ("N",)


def test_the_apis_word_ends_promise_and_bind() -> None:
    cache = ledger_of(inventory("N", 8000, 8000))
    cache.fit("promised", Ask(1000), ["N"], 0.0)
    take(cache, "taken", Ask(1000), "N")
    for uid in ("promised", "taken"):
        cache.update_pod(bound(uid, "N", 1000, 1))
    assert free(cache, "N") == [8000, 6000]
    for uid in ("promised", "taken"):
        cache.remove_pod(uid)
    assert free(cache, "N") == [8000, 8000]


def test_a_bound_pod_is_promised_nothing_more() -> None:
    cache = ledger_of(inventory("N", 8000, 8000))
    cache.update_pod(bound("bound", "N", 1000, 0))
    take(cache, "taken", Ask(1000), "N")
    for uid in ("bound", "taken"):
        cache.fit(uid, Ask(1000), ["N"], 0.0)
    assert free(cache, "N") == [6000, 8000]


def test_a_pod_that_is_gone_holds_nothing_whatever_it_held() -> None:
    cache = ledger_of(inventory("N", 8000, 8000))
    cache.fit("promised", Ask(8000), ["N"], 0.0)
    take(cache, "taken", Ask(8000), "N")
    for uid in ("promised", "taken", "never heard of"):
        cache.remove_pod(uid)
    assert free(cache, "N") == [8000, 8000]


def test_a_pod_of_which_nobody_knows_the_device_counts_where_it_would_have_been_put() -> None:
    cache = ledger_of(inventory("N", 8000, 4000))
    cache.update_pod(bound("lost", "N", 3000))
    assert free(cache, "N") == [8000, 1000]
    assert cache.compare([bound("lost", "N", 3000)], 0.0) == Drift(unplaced=("lost",))


def test_a_pod_that_would_have_fitted_nowhere_counts_where_the_most_is_free() -> None:
    cache = ledger_of(inventory("N", 8000, 4000))
    cache.update_pod(bound("lost", "N", 9000))
    assert free(cache, "N") == [0, 4000]


def test_more_held_than_offered_is_no_room_and_no_credit() -> None:
    cache = ledger_of(inventory("N", 8000))
    for uid in "ab":
        cache.update_pod(bound(uid, "N", 6000, 0))
    assert cache.fit("pod", Ask(1), ["N"], 0.0).refused == {"N": "its largest GPU has 0 MiB free, not 1"}
    assert cache.compare([bound("a", "N", 6000, 0), bound("b", "N", 6000, 0)], 0.0).over == (DeviceDrift("N", 0, 4000),)
    cache.remove_pod("a")
    assert free(cache, "N") == [2000]


def test_a_device_that_comes_under_another_index_keeps_its_pods() -> None:
    cache = ledger_of(inventory("N", 8000, 9000))
    cache.update_pod(bound("pod", "N", 5000, 0))
    swapped = (NodeDevice(0, "GPU-N-1", 9000), NodeDevice(1, "GPU-N-0", 8000))
    cache.update_node(NodeDevices(node="N", pool="t4", devices=swapped))
    assert free(cache, "N") == [9000, 3000]


def test_a_replaced_device_has_none_of_its_predecessors_pods() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("pod", "N", 5000, 0))
    cache.update_node(NodeDevices(node="N", pool="t4", devices=(NodeDevice(0, "new", 8000),)))
    assert free(cache, "N") == [8000]
    assert cache.compare([bound("pod", "N", 5000, 0)], 0.0).adrift == ("pod",)


def test_a_node_whose_slice_is_away_takes_no_pod_and_knows_its_pods_when_it_is_back() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("pod", "N", 5000, 0))
    cache.update_node(NodeDevices(node="N", pool="t4", unusable="its devices are not published"))
    assert cache.fit("new", Ask(1), ["N"], 0.0).hopeless == {"N": "its devices are not published"}
    assert cache.compare([bound("pod", "N", 5000, 0)], 0.0) == Drift()
    cache.update_node(inventory("N", 8000))
    assert free(cache, "N") == [3000]


def test_a_node_that_is_gone_is_forgotten_with_its_last_pod() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("pod", "N", 5000, 0))
    cache.remove_node("N")
    assert [usage.node for usage in cache.snapshot()] == ["N"]
    cache.remove_pod("pod")
    assert cache.snapshot() == ()


# Restart.


def test_a_restart_knows_what_the_pods_tell() -> None:
    cache, restarted = example(), Cache()
    nodes = [inventory(node, 16276, 16276) for node in ("N1", "N2", "N3")]
    restarted.replace(nodes, (*N3, *N2, *N1), since=0.0)
    assert restarted.snapshot() == cache.snapshot()


def test_a_new_list_forgets_what_it_does_not_show() -> None:
    cache = example()
    cache.replace([inventory("N3", 16276, 16276)], N3[:1], since=0.0)
    assert [(usage.node, [d.free_mib for d in usage.devices]) for usage in cache.snapshot()] == [("N3", [8138, 16276])]


def test_a_bind_under_way_survives_a_new_list() -> None:
    cache = ledger_of(inventory("N", 8000))
    take(cache, "pod", Ask(5000), "N", 1.0)
    cache.replace([inventory("N", 8000)], [], since=2.0)
    assert free(cache, "N") == [3000]


def test_a_bind_that_was_accepted_after_the_list_began_survives_it_and_one_before_does_not() -> None:
    cache = ledger_of(inventory("N", 8000))
    take(cache, "pod", Ask(5000), "N", 1.0)
    cache.finish_binding("pod", 3.0)
    cache.replace([inventory("N", 8000)], [], since=2.0)
    assert free(cache, "N") == [3000]
    cache.replace([inventory("N", 8000)], [], since=4.0)
    assert free(cache, "N") == [8000]


def test_room_for_a_pod_that_came_and_went_unseen_is_freed_by_the_audit() -> None:
    """Bound, deleted and gone while the watch was lost, and the answer to its binding came after the new list began."""
    cache = ledger_of(inventory("N", 8000))
    take(cache, "pod", Ask(5000), "N", 1.0)
    cache.replace([inventory("N", 8000)], [], since=2.0)
    cache.finish_binding("pod", 3.0)
    cache.compare([], since=2.5)
    assert free(cache, "N") == [3000]
    cache.compare([], since=4.0)
    assert free(cache, "N") == [8000]


# Measurements.


def test_what_an_outsider_uses_is_not_offered() -> None:
    cache = ledger_of(inventory("N", 14000, floor_mib=1536))
    cache.measure("N", {0: 5000}, 0.0)
    assert cache.fit("pod", Ask(4000), ["N"], 0.0).refused == {
        "N": "its largest GPU has 3464 MiB free, not 4000, as measured and less the floor"
    }
    assert cache.compare([], 0.0).outside == (DeviceDrift("N", 0, 9000),)


def test_a_measurement_counts_for_its_time() -> None:
    cache = ledger_of(inventory("N", 14000))
    cache.measure("N", {0: 0}, 0.0)
    assert cache.fit("pod", Ask(1), ["N"], MEASURED_SECONDS - 0.1).nodes == ()
    cache.measure("N", {0: 0}, 1.0)
    assert cache.fit("pod", Ask(1), ["N"], MEASURED_SECONDS).nodes == ()
    assert cache.fit("pod", Ask(1), ["N"], MEASURED_SECONDS + 1).nodes == ("N",)


def test_measured_free_memory_is_no_more_room_than_the_ledger_has() -> None:
    cache = ledger_of(inventory("N", 14000, 14000))
    cache.update_pod(bound("pod", "N", 13000, 0))
    cache.measure("N", {0: 15000}, 0.0)
    assert free(cache, "N") == [1000, 14000]


# Victims.


def test_pods_leave_only_if_a_device_becomes_free() -> None:
    cache = example()
    assert cache.victims(Ask(8138), "N2", {"n2-0", "n2-1"}, 0.0) in (("n2-0",), ("n2-1",))
    assert cache.victims(Ask(8138), "N3", {"n3-1"}, 0.0) == ()
    assert cache.victims(Ask(8138), "N2", {"n3-0"}, 0.0) is None
    assert cache.victims(Ask(16277), "N2", {"n2-0", "n2-1"}, 0.0) is None
    assert cache.victims(Ask(1), "unknown", {"n2-0"}, 0.0) is None


def test_whoever_terminates_makes_room_without_another_eviction() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("going", "N", 4000, 0, terminating=True))
    cache.update_pod(bound("staying", "N", 4000, 0))
    assert cache.victims(Ask(4000), "N", {"going", "staying"}, 0.0) == ()
    assert cache.victims(Ask(8000), "N", {"going", "staying"}, 0.0) == ("staying",)


def test_a_pod_whose_device_nobody_knows_is_no_victim() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("lost", "N", 8000))
    assert cache.victims(Ask(1), "N", {"lost"}, 0.0) is None


def test_pods_on_unhealthy_devices_do_not_leave_for_it() -> None:
    devices = (NodeDevice(0, "GPU-N-0", 8000, healthy=False), NodeDevice(1, "GPU-N-1", 8000))
    cache = ledger_of(NodeDevices(node="N", pool="t4", devices=devices))
    cache.update_pod(bound("ailing", "N", 8000, 0))
    cache.update_pod(bound("well", "N", 8000, 1))
    assert cache.victims(Ask(1), "N", {"ailing", "well"}, 0.0) == ("well",)


# What it shows.


def test_usage_tells_who_has_what_and_how() -> None:
    cache = ledger_of(inventory("N", 8000, 9000))
    cache.update_pod(bound("pod", "N", 4000, 0, 1))
    take(cache, "taken", Ask(1000), "N")
    cache.fit("promised", Ask(5000), ["N"], 0.0)
    (node,) = cache.snapshot()
    shares = [[(share.uid, share.mib, share.standing) for share in device.shares] for device in node.devices]
    assert shares == [
        [("pod", 4000, ShareState.BOUND), ("taken", 1000, ShareState.BINDING)],
        [("pod", 4000, ShareState.BOUND), ("promised", 5000, ShareState.RESERVED)],
    ]
    assert [(device.held_mib, device.free_mib) for device in node.devices] == [(5000, 3000), (9000, 0)]


def test_the_audit_tells_what_the_api_and_the_ledger_do_not_share() -> None:
    cache = ledger_of(inventory("N", 8000, 8000))
    for uid in ("same", "moved", "stale"):
        cache.update_pod(bound(uid, "N", 1000, 0))
    listed = [bound("same", "N", 1000, 0), bound("moved", "N", 1000, 1), bound("missing", "N", 1000, 0)]
    assert cache.compare(listed, 0.0) == Drift(missing=("missing",), stale=("stale",), moved=("moved",))


def test_binding_a_node_full_takes_each_mib_once() -> None:
    cache = ledger_of(inventory("N", 3000, 3000))
    numbers = count()
    while isinstance(cache.assume(f"pod-{next(numbers)}", Ask(1000), "N", 0.0), AssumedPod):
        pass
    assert next(numbers) == 7
    assert free(cache, "N") == [0, 0]
