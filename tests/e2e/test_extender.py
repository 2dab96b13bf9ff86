"""Tests the extender with a real kube-scheduler on a real control plane."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from tenancy import names
from tenancy.ledger import Seat
from tenancy.units import MIB
from tests.support.e2e.extending import NAMES, POOL, TENANT, Bench, placement
from tests.support.e2e.proxy import Proxy, proxied
from tests.support.e2e.scheduler_pod import SchedulerPod
from tests.support.waiting import becomes, eventually
from toolchain.cluster.cluster import HeldCluster

# The MiB of the four devices on the node of record 0003.
UNLIKE = (12207, 8138, 4069, 16276)


@pytest.fixture(scope="module")
def placed(real_cluster: HeldCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with placement(real_cluster, tmp_path_factory.mktemp("pods")) as found:
        for number in range(4):
            found.add_node(f"cards-{number}", *UNLIKE[number:], *UNLIKE[:number])
        yield found


@pytest.fixture(scope="module")
def scheduler(placed: Bench) -> SchedulerPod:
    return placed.start_pod("gpu-tenancy-scheduler-0")


@pytest.fixture
def proxy(placed: Bench, scheduler: SchedulerPod) -> Iterator[Proxy]:
    with proxied(placed.cluster.folder, placed.cluster.api.server) as running:
        direct = scheduler.environment
        behind = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(running.port)}
        restart_extender(scheduler, {**direct, **behind})
        yield running
        restart_extender(scheduler, direct)


def restart_extender(scheduler: SchedulerPod, environment: Mapping[str, str]) -> None:
    scheduler.kill("extender")
    scheduler.environment = environment
    scheduler.start_extender()
    becomes(lambda: scheduler.get("/readyz")[0], 200, "the extender is ready")


@pytest.fixture(autouse=True)
def _cleared(placed: Bench, scheduler: SchedulerPod) -> Iterator[None]:
    if scheduler in placed.pods:
        eventually(lambda: is_fresh(scheduler), "the extender knows that the last test's pods and seats are gone")
    yield
    placed.set_ledger(POOL)
    placed.clear()


def is_fresh(scheduler: SchedulerPod) -> bool:
    """The extender may see the end of a pod later than the test, and it reads the ledger every few seconds."""
    allocated = (each.value for each in scheduler.samples() if each.name == names.METRIC_EXTENDER_ALLOCATED)
    return offered_mib(scheduler, "cards-0", "3") == UNLIKE[3] and not any(allocated)


def offered_mib(scheduler: SchedulerPod, node: str, gpu: str) -> float | None:
    offered = scheduler.value(names.METRIC_EXTENDER_OFFERED, node=node, gpu=gpu)
    return None if offered is None else offered / MIB


def annotations_of(placed: Bench, pod: str) -> dict[str, str]:
    return dict(placed.pod(pod)["metadata"]["annotations"])


def test_a_pod_is_bound_with_the_device_that_fits_best(placed: Bench, scheduler: SchedulerPod) -> None:
    placed.create("example", 8138, node="cards-0")
    (pod,) = placed.await_bound("example")
    annotations = pod["metadata"]["annotations"]
    assert annotations[NAMES.device_index] == "1"
    assert annotations[NAMES.device_uuid] == "GPU-cards-0-1"
    assert annotations[NAMES.device_mib] == "8138"
    assert annotations[NAMES.device_assumed_at].isdigit()


def test_a_pod_with_two_devices_gets_different_devices_of_one_node_or_waits(
    placed: Bench, scheduler: SchedulerPod
) -> None:
    placed.create("pair", 8138, devices=2, node="cards-0")
    (pod,) = placed.await_bound("pair")
    annotations = pod["metadata"]["annotations"]
    assert sorted(annotations[NAMES.device_uuid].split(",")) == ["GPU-cards-0-0", "GPU-cards-0-1"]
    assert annotations[NAMES.device_mib] == "8138"
    placed.create("second", 12000, devices=2, node="cards-0")
    placed.await_refused("second", "has 1 of 2 GPUs with 12000 MiB free")
    placed.assert_nothing_is_overfull()


def test_two_seats_on_the_same_two_devices_run_at_the_same_time(placed: Bench, scheduler: SchedulerPod) -> None:
    """Before the fix, a node advertised only as much gpu-count as it has devices, and the second pod stayed pending."""
    placed.add_node("twin", 8138, 8138)
    seats = [Seat(name=name, tenant=TENANT, pool=POOL.name, gpumem_mib=4069, devices_per_pod=2) for name in "ab"]
    placed.set_ledger(replace(POOL, node_selector={"kubernetes.io/hostname": "twin"}, nodes=1), *seats)
    eventually(lambda: offered_mib(scheduler, "cards-0", "3") is None, "the extender knows the seats")
    for seat in seats:
        placed.create(seat.name, 4069, devices=2, node="twin")
    for pod in placed.await_bound("a", "b"):
        uuids = pod["metadata"]["annotations"][NAMES.device_uuid]
        assert sorted(uuids.split(",")) == ["GPU-twin-0", "GPU-twin-1"]
    placed.assert_nothing_is_overfull()
    placed.clear()
    placed.remove_node("twin")


def test_of_two_nodes_with_room_the_device_decides(placed: Bench, scheduler: SchedulerPod) -> None:
    """Before the fix, kube-scheduler's own scores had more weight than the extender's score for a device."""
    placed.create("filler", 8207, node="cards-2")  # With this pod, the device of 12,207 MiB has 4000 MiB left.
    placed.await_bound("filler")
    preferred = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["cards-1"]}]}
    weighed = [{"weight": 100, "preference": preferred}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighed}}
    placed.create("exact", 4000, affinity=affinity)
    (pod,) = placed.await_bound("exact")
    assert pod["spec"]["nodeName"] == "cards-2"
    assert pod["metadata"]["annotations"][NAMES.device_index] == annotations_of(placed, "filler")[NAMES.device_index]


def test_what_a_preemption_freed_is_not_given_to_a_lower_pod(placed: Bench, scheduler: SchedulerPod) -> None:
    """Before the fix, the pod with the lower priority got the device."""
    preempt_one_that_stays(placed)
    placed.create("thief", 15000, node="cards-0", priorityClassName="low")
    eventually(lambda: placed.waits("thief"), "the lower pod waits")
    placed.release("victim")
    placed.await_bound("urgent")
    assert placed.waits("thief")
    placed.assert_nothing_is_overfull()


def test_freed_memory_is_kept_even_if_kube_scheduler_knows_of_the_end_before_the_extender(
    placed: Bench, scheduler: SchedulerPod, proxy: Proxy
) -> None:
    """kube-scheduler may retry the pod before the extender knows that the memory is free."""
    preempt_one_that_stays(placed)
    proxy.flows.clear()
    placed.release("victim")
    becomes(lambda: "nominatedNodeName" in placed.pod("urgent")["status"], False, "the nomination is taken away")
    placed.await_refused("urgent", "its largest GPU has 0 MiB free")
    proxy.flows.set()
    placed.create("thief", 15000, node="cards-0", priorityClassName="low")  # kube-scheduler tries new pods first.
    placed.await_bound("urgent")
    eventually(lambda: placed.waits("thief"), "the lower pod waits")
    placed.assert_nothing_is_overfull()


def preempt_one_that_stays(placed: Bench) -> None:
    placed.create_in_turn({"a": 12207, "b": 8138, "c": 4069}, node="cards-0", priorityClassName="high")
    spec = {"priorityClassName": "low", "terminationGracePeriodSeconds": 0}
    placed.create("victim", 16276, node="cards-0", finalizers=["test/kept"], **spec)
    placed.await_bound("a", "b", "c", "victim")
    placed.create("urgent", 16000, node="cards-0", priorityClassName="high")
    becomes(lambda: placed.pod("urgent")["status"].get("nominatedNodeName"), "cards-0", "the preemptor is nominated")


def test_preemption_evicts_the_pod_with_the_lowest_priority(placed: Bench, scheduler: SchedulerPod) -> None:
    small = {"small-0": 4069, "small-1": 4069}
    placed.create("dear", 12207, node="cards-0", priorityClassName="middle")
    placed.create("cheap", 8138, node="cards-0", priorityClassName="low")
    placed.await_bound("dear", "cheap")
    placed.create("vip", 12207, node="cards-0", priorityClassName="high")
    placed.await_bound("vip")
    placed.create_all(small, node="cards-0", priorityClassName="low")
    placed.await_bound(*small)
    placed.create("urgent", 8000, node="cards-0", priorityClassName="high")
    placed.await_bound("urgent")
    left = {found["metadata"]["name"] for found in placed.bound()}
    assert {"dear", "cheap", "vip", *small} - left == {"cheap"}
    placed.assert_nothing_is_overfull()


def test_a_pod_that_was_refused_just_before_memory_is_released_is_placed(
    placed: Bench, scheduler: SchedulerPod
) -> None:
    """kube-scheduler itself would retry after five minutes, which is longer than the test waits."""
    for turn in range(3):
        placed.create(f"first-{turn}", 16276, node="cards-0")
        placed.await_bound(f"first-{turn}")
        placed.create(f"second-{turn}", 16276, node="cards-0")
        eventually(lambda turn=turn: placed.waits(f"second-{turn}"), "the second waits")
        placed.delete(f"first-{turn}")
        placed.await_bound(f"second-{turn}")
        placed.clear()


def test_memory_that_no_event_of_the_cluster_releases_is_given_out(placed: Bench, scheduler: SchedulerPod) -> None:
    placed.set_ledger(replace(POOL, reserve_mib=16000))
    eventually(lambda: offered_mib(scheduler, "cards-0", "3") == 276, "the extender has seen it")
    placed.create("large", 16276, node="cards-0")
    eventually(lambda: placed.waits("large"), "the pod waits")
    placed.create("witness", 200, node="cards-1")  # The device of this node has 276 MiB left.
    placed.await_bound("witness")
    placed.set_ledger(POOL)
    placed.await_bound("large")


def test_an_extender_killed_in_a_burst_loses_and_doubles_nothing(placed: Bench, scheduler: SchedulerPod) -> None:
    names = [f"burst-{number}" for number in range(60)]
    placed.create_all(dict.fromkeys(names, 2034))
    eventually(lambda: len(placed.bound()) >= 5, "the burst has begun")
    scheduler.kill("extender")
    placed.create("late", 2034)
    eventually(lambda: placed.waits("late"), "a pod waits while the extender is away")
    scheduler.start_extender()
    placed.await_bound(*names, "late")
    placed.assert_nothing_is_overfull()


def test_when_the_lease_changes_hands_in_a_burst_nothing_is_misplaced(placed: Bench, scheduler: SchedulerPod) -> None:
    placed.stop(scheduler)
    first, second = (placed.start_pod(f"replica-{number}", elected=True) for number in range(2))
    becomes(lambda: [each.leads for each in (first, second)].count(True), 1, "one of the two leads")
    leader, other = (first, second) if first.leads else (second, first)
    burst = [f"burst-{number}" for number in range(60)]
    placed.create_all(dict.fromkeys(burst, 2034))
    eventually(lambda: len(placed.bound()) >= 5, "the burst has begun")
    leader.kill("kube-scheduler")
    placed.await_bound(*burst)
    eventually(lambda: other.leads and not leader.leads, "the other leads")
    placed.assert_nothing_is_overfull()
