"""Tests that init assigns a pod's measured peak to the right workload."""

from collections.abc import Mapping

import pytest

from gpumem.init import peaks
from gpumem.init.peaks import DCGM_USED, Peak, makes_pod
from gpumem.pods import Workload
from gpumem.prometheus import Series
from gpumem.users import GpuWorkload
from tenancy.names import METRIC_POD_USED
from tenancy.units import MIB

ML = Workload("immich", "Deployment", "immich-ml")
POD = "immich-ml-6c9f8d7b54-abcde"


class History:
    def __init__(self, **series: list[tuple[Mapping[str, str], float]]) -> None:
        self._series = series

    def at(self, query: str, time: float) -> list[Series]:
        (metric,) = (each for each in (METRIC_POD_USED, DCGM_USED) if each in query)
        return [Series(labels, ((time, value),)) for labels, value in self._series.get(metric, [])]


def read(history: History, *alone: Workload) -> dict[Workload, Peak]:
    return peaks.read(history, [GpuWorkload(workload=ML, pods=(), routes=())], alone, days=28, now=1e9)


def test_the_highest_pod_of_a_workload_counts() -> None:
    labels = [{"namespace": "immich", "pod": f"immich-ml-6c9f8d7b5{n}-abcde"} for n in range(2)]
    history = History(gpu_pod_memory_used_bytes=[(labels[0], 10700 * MIB), (labels[1], 2150.5 * MIB)])
    assert read(history) == {ML: Peak(10700, METRIC_POD_USED, 28)}


def test_labels_that_the_scrape_renamed_are_read() -> None:
    labels = {"namespace": "nvidia", "pod": "exporter-x", "exported_namespace": "immich", "exported_pod": POD}
    assert read(History(gpu_pod_memory_used_bytes=[(labels, 5 * MIB)]))[ML].mib == 5


def test_dcgm_counts_only_where_a_device_is_one_pods() -> None:
    history = History(DCGM_FI_DEV_FB_USED=[({"namespace": "immich", "pod": POD}, 4321.0)])
    assert read(history) == {}
    assert read(history, ML) == {ML: Peak(4321, DCGM_USED, 28)}


def test_our_exporter_goes_before_dcgm() -> None:
    labels = {"namespace": "immich", "pod": POD}
    history = History(gpu_pod_memory_used_bytes=[(labels, 7 * MIB)], DCGM_FI_DEV_FB_USED=[(labels, 9000.0)])
    assert read(history, ML) == {ML: Peak(7, METRIC_POD_USED, 28)}


def test_no_use_is_no_peak() -> None:
    assert read(History(gpu_pod_memory_used_bytes=[({"namespace": "immich", "pod": POD}, 0)])) == {}


@pytest.mark.parametrize(
    ("kind", "name", "pod", "its_own"),
    [
        ("Deployment", "immich", "immich-6c9f8d7b54-abcde", True),
        ("Deployment", "immich", "immich-ml-6c9f8d7b54-abcde", False),
        ("StatefulSet", "db", "db-0", True),
        ("StatefulSet", "db", "db-main-0", False),
        ("DaemonSet", "agent", "agent-x7k2p", True),
        ("Job", "train", "train-0-x7k2p", True),
        ("CronJob", "nightly", "nightly-29384756-x7k2p", True),
        ("CronJob", "nightly", "nightly-x7k2p", False),
        ("Pod", "x", "x", True),
        ("Pod", "x", "x-y", False),
        ("RayCluster", "ray", "ray-head-x7k2p", True),
    ],
)
def test_a_pod_is_of_the_workload_that_names_pods_so(kind: str, name: str, pod: str, its_own: bool) -> None:
    assert makes_pod(Workload("n", kind, name), "n", pod) is its_own
    assert not makes_pod(Workload("n", kind, name), "other", pod)
