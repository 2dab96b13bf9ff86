"""The extender on the real control plane, asked by the real kube-scheduler."""

from collections.abc import Iterator

import pytest

from tests.cluster.extending import NAMES, Placement, SchedulerPod, placement, quantile
from toolchain.cluster import cluster
from toolchain.cluster.extent import Extent

# Seed 003's node.
UNLIKE = (12207, 8138, 4069, 16276)


@pytest.fixture(scope="module")
def placed(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Placement]:
    with (
        cluster.running(tmp_path_factory.mktemp("placing"), extent=Extent.SIMULATED) as running,
        placement(running, tmp_path_factory.mktemp("pods")) as found,
    ):
        for number in range(4):
            found.add_node(f"cards-{number}", *UNLIKE[number:], *UNLIKE[:number])
        yield found


@pytest.fixture(scope="module")
def scheduler(placed: Placement) -> SchedulerPod:
    return placed.start_pod("gpu-tenancy-scheduler-0")


@pytest.fixture(autouse=True)
def _cleared(placed: Placement) -> Iterator[None]:
    yield
    placed.clear()


def test_a_pod_is_bound_with_the_device_that_fits_best(placed: Placement, scheduler: SchedulerPod) -> None:
    placed.create("seed", 8138, node="cards-0")
    (pod,) = placed.await_bound("seed")
    annotations = pod["metadata"]["annotations"]
    assert annotations[NAMES.device_index] == "1"
    assert annotations[NAMES.device_uuid] == "GPU-cards-0-1"
    assert annotations[NAMES.device_mib] == "8138"
    assert annotations[NAMES.device_assumed_at].isdigit()


def test_a_hundred_pods_to_one_node_are_placed_within_ten_seconds(placed: Placement, scheduler: SchedulerPod) -> None:
    import time

    t = time.monotonic()
    names = [f"burst-{number}" for number in range(100)]
    placed.create_all(dict.fromkeys(names, 300), node="cards-0")
    placed.await_bound(*names)
    print("seconds", time.monotonic() - t)
    placed.assert_nothing_is_overfull()
    for verb in ("filter", "bind"):
        print(verb, quantile(scheduler.samples(), verb, 0.5), quantile(scheduler.samples(), verb, 0.99))
