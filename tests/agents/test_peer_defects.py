"""The defects of Aliyun's gpushare-scheduler-extender (c0b6141) that concern the ledger, each by its name.

Numbers are issues of AliyunContainerService/gpushare-scheduler-extender and, where said, of its device plugin; letters
count what its source shows. What concerns servers, manifests and containers is tested with those.
"""

import threading

from agents.allocated import allocated, ask_of
from agents.allocations import RESERVE_SECONDS, Allocations, Chosen, Refusal
from agents.inventory import NodeDevice, NodeDevices
from agents.usage import Drift
from tenancy.devices import Ask
from tests.agents.cluster import NAMES
from tests.agents.devices import bound, inventory, ledger_of, pod_object, take


def free(allocations: Allocations) -> list[int]:
    (node,) = allocations.usage()
    return [device.free_mib for device in node.devices]


def test_a_unsigned_difference_lets_an_overbooked_device_pass_the_filter() -> None:
    """`avail` is unsigned there: used > total wraps to a huge number."""
    allocations = ledger_of(inventory("N", 8000))
    for uid in "ab":
        allocations.set_pod(bound(uid, "N", 5000, 0))
    assert free(allocations) == [0]
    assert allocations.fit("new", Ask(1), ["N"], 0.0).nodes == ()


def test_b_memory_is_released_when_the_grace_period_begins() -> None:
    """Its cache drops a pod at deletionTimestamp, while its processes still hold the memory."""
    pod = pod_object("8000", annotations={NAMES.device_index: "0"}, phase="Running")
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T05:00:00Z"
    held = allocated(pod, NAMES)
    assert held is not None
    allocations = ledger_of(inventory("k8s-node1", 8000))
    allocations.set_pod(held)
    assert free(allocations) == [0]
    allocations.drop_pod(held.uid)
    assert free(allocations) == [8000]


def test_d_a_fast_worker_leaks_a_removed_pod_until_the_restart() -> None:
    """#201 too: delete and create in loops, and memory stays in use at 0 pods. The order of news cannot matter here,
    and threads share one lock."""
    allocations = ledger_of(inventory("N", 8000, 8000))

    def loop(worker: int) -> None:
        for turn in range(100):
            uid = f"pod-{worker}-{turn}"
            allocations.fit(uid, Ask(500), ["N"], 0.0)
            chosen = allocations.take(uid, Ask(500), "N", 0.0)
            if isinstance(chosen, Chosen):
                allocations.set_pod(bound(uid, "N", 500, *chosen.indices))
            allocations.drop_pod(uid)

    threads = [threading.Thread(target=loop, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert free(allocations) == [8000, 8000]
    assert allocations.audit([], 1.0) == Drift()


def test_e_changes_of_count_and_size_are_ignored() -> None:
    """#191 and #175: its node is counted once, from zero; after a change of hardware it hands out the wrong index."""
    allocations = ledger_of(inventory("N", 8000))
    allocations.set_pod(bound("pod", "N", 6000, 0))
    allocations.set_node(inventory("N", 16000, 4000))
    assert free(allocations) == [10000, 4000]
    swapped = (NodeDevice(0, "GPU-N-new", 4000), NodeDevice(1, "GPU-N-0", 16000))
    allocations.set_node(NodeDevices(node="N", pool="t4", devices=swapped))
    assert free(allocations) == [4000, 10000]
    assert take(allocations, "next", Ask(5000), "N") == Chosen((1,), ("GPU-N-0",), 5000)


def test_f_inspecting_an_unknown_node_dereferences_nil() -> None:
    allocations = ledger_of(inventory("N", 8000))
    assert [node.node for node in allocations.usage()] == ["N"]
    assert allocations.pods("unknown") == ()
    assert allocations.victims(Ask(1), "unknown", set(), 0.0) is None
    assert allocations.take("pod", Ask(1), "unknown", 0.0) == Refusal("is not known to have GPU memory to share")
    allocations.measure("unknown", {0: 1}, 0.0)
    allocations.drop_node("unknown")
    assert [node.node for node in allocations.usage()] == ["N"]


def test_g_inspecting_ranges_over_a_map_that_others_write() -> None:
    """A map that changes while it is iterated ends the process there."""
    allocations = Allocations()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for number in range(50):
                allocations.set_node(inventory(f"N{number}", 8000))
            for number in range(50):
                allocations.drop_node(f"N{number}")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        sizes = {len(allocations.usage()) for _ in range(300)}
    finally:
        stop.set()
        writer.join()
    assert sizes <= set(range(51))
    assert allocations.usage() == ()


def test_h_the_write_lock_spans_two_calls_of_the_api() -> None:
    """What is taken stays taken while its bind waits for the API, and everybody else goes on."""
    allocations = ledger_of(inventory("N", 8000, 4000))
    take(allocations, "slow bind", Ask(8000), "N", 0.0)
    assert allocations.fit("other", Ask(4000), ["N"], 1.0).nodes == ("N",)
    assert take(allocations, "other", Ask(4000), "N", 1.0).indices == (1,)
    assert isinstance(allocations.take("third", Ask(1), "N", RESERVE_SECONDS * 10), Refusal)


def test_i_init_containers_are_ignored() -> None:
    container = {"resources": {"limits": {NAMES.gpumem: "1k"}}}
    larger = {"resources": {"limits": {NAMES.gpumem: "3k"}}}
    sidecar = {"restartPolicy": "Always", "resources": {"limits": {NAMES.gpumem: "500"}}}
    assert ask_of({"containers": [container], "initContainers": [larger]}, NAMES) == Ask(3000)
    assert ask_of({"containers": [container], "initContainers": [sidecar]}, NAMES) == Ask(1500)


def test_issues_143_and_185_two_containers_never_match() -> None:
    """Its plugin looks for the pod whose total equals one container's request. The pod's devices are the pod's here."""
    container = {"resources": {"limits": {NAMES.gpumem: "4069"}}}
    assert ask_of({"containers": [container, container]}, NAMES) == Ask(8138)


def test_issue_219_cards_of_unlike_size_are_counted_by_their_mean() -> None:
    """10 and 20 GB showed as twice 20: its device is the node's total over the count."""
    allocations = ledger_of(inventory("N", 10240, 20480))
    assert free(allocations) == [10240, 20480]
    assert allocations.fit("pod", Ask(20480), ["N"], 0.0).nodes == ("N",)
    assert allocations.fit("other", Ask(10241), ["N"], 0.0).nodes == ()


def test_issue_26_of_the_plugin_concurrent_creation_fails() -> None:
    """Pods of one size that start together take each other's device there."""
    allocations = ledger_of(inventory("N", 4000, 4000, 4000))
    chosen = {uid: take(allocations, uid, Ask(4000), "N") for uid in "abc"}
    assert {uid: each.uuids for uid, each in chosen.items()} == {
        "a": ("GPU-N-0",),
        "b": ("GPU-N-1",),
        "c": ("GPU-N-2",),
    }


def test_issue_187_the_last_pod_waits_because_the_release_follows_the_retry() -> None:
    """Room is there as soon as the API says that a pod is gone, and a failed bind's at once: no timer is in between."""
    allocations = ledger_of(inventory("N", 8000))
    allocations.set_pod(bound("leaving", "N", 8000, 0, terminating=True))
    assert allocations.fit("waiting", Ask(8000), ["N"], 0.0).nodes == ()
    allocations.drop_pod("leaving")
    assert allocations.fit("waiting", Ask(8000), ["N"], 0.0).nodes == ("N",)
    take(allocations, "waiting", Ask(8000), "N")
    allocations.give_back("waiting")
    assert allocations.fit("waiting", Ask(8000), ["N"], 0.0).nodes == ("N",)


def test_issue_188_pods_wait_beside_free_memory() -> None:
    """Free memory that is used by nobody whom the API knows is found by the audit and offered again."""
    allocations = ledger_of(inventory("N", 8000))
    take(allocations, "vanished", Ask(8000), "N")
    allocations.settle("vanished", 1.0)
    allocations.audit([], since=2.0)
    assert allocations.fit("waiting", Ask(8000), ["N"], 2.0).nodes == ("N",)
