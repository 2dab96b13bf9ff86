"""Tests what a node's devices are, from labels, resources and annotations that agree, contradict each other or miss."""

from collections.abc import Mapping

import pytest

from agents.kube.device_slices import PublishedDevices
from gpumem.init.evidence import Devices, Division, NoDevices, devices_of
from tests.support.given_clusters import GPU, labelled, node

GKE, KARPENTER, AUTO_MODE = (
    "cloud.google.com/gke-",
    "karpenter.k8s.aws/instance-gpu-",
    "eks.amazonaws.com/instance-gpu-",
)
T4 = {"gpu_present": "true", "gpu_product": "Tesla-T4", "gpu_memory": "15360", "gpu_count": "1", "gpu_replicas": "1"}


def bare(
    offered: Mapping[str, str], labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
) -> Devices | NoDevices:
    made = node("n", offered)
    made["metadata"]["labels"] |= labels or {}
    made["metadata"]["annotations"] = dict(annotations or {})
    return devices_of(made, PublishedDevices())


def shown(found: Devices | NoDevices) -> tuple[Division, int, bool]:
    assert isinstance(found, Devices), found
    return found.division, found.count.value, found.count.is_assumed


def mib(found: Devices | NoDevices) -> int | None:
    assert isinstance(found, Devices), found
    return found.memory_mib.value if found.memory_mib else None


def test_more_units_than_the_labels_explain_are_shares_and_the_comment_names_the_contradiction() -> None:
    found = devices_of(node("n", {GPU: "10"}, **T4), PublishedDevices())
    assert shown(found) == (Division.TIME_SLICING, 1, True)
    assert isinstance(found, Devices)
    assert "1 by labels of GPU feature discovery, but capacity nvidia.com/gpu is 10" in found.count.source


@pytest.mark.parametrize(
    ("labels", "units", "right"),
    [
        ({f"{GKE}max-shared-clients-per-gpu": "6", f"{GKE}accelerator": "nvidia-l4"}, 12, (2, 23034)),
        ({f"{KARPENTER}name": "a10g", f"{KARPENTER}count": "4", f"{KARPENTER}memory": "24576"}, 40, (4, 23028)),
        ({f"{AUTO_MODE}name": "l40s", f"{AUTO_MODE}count": "1", f"{AUTO_MODE}memory": "49152"}, 8, (1, 46068)),
        ({"karpenter.azure.com/sku-gpu-name": "T4", "karpenter.azure.com/sku-gpu-count": "1"}, 5, (1, 15360)),
        ({"aliyun.accelerator/nvidia_name": "Tesla-T4", "aliyun.accelerator/nvidia_count": "2"}, 20, (2, 15360)),
        ({"gpu.nvidia.com/model": "H200", "gpu.nvidia.com/count": "8", "gpu.nvidia.com/vram": "141"}, 16, (8, 134468)),
    ],
)
def test_labels_of_clouds_and_of_karpenter_show_how_many_cards_are_behind_the_shares(
    labels: Mapping[str, str], units: int, right: tuple[int, int]
) -> None:
    found = bare({GPU: str(units)}, labels)
    assert shown(found)[:2] == (Division.TIME_SLICING, right[0])
    assert mib(found) == right[1]


def test_a_clouds_partition_is_a_mig_device_and_no_card() -> None:
    found = bare({GPU: "7"}, {f"{GKE}accelerator": "nvidia-tesla-a100", f"{GKE}gpu-partition-size": "1g.5gb"})
    assert shown(found) == (Division.MIG, 7, False)
    assert mib(found) is None


@pytest.mark.parametrize(
    "value",
    [
        "GPU-1,10,15360,100,NVIDIA-Tesla T4,0,true:GPU-2,10,15360,100,NVIDIA-Tesla T4,0,true:",
        '[{"id":"GPU-1","count":10,"devmem":15360,"type":"T4"},{"id":"GPU-2","count":10,"devmem":16384,"type":"T4"}]',
    ],
)
@pytest.mark.parametrize("key", ["hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register"])
def test_the_register_of_a_sharing_plugin_lists_the_cards(key: str, value: str) -> None:
    found = bare({GPU: "20"}, annotations={key: value})
    assert (shown(found), mib(found)) == ((Division.SPLIT, 2, False), 15360)


@pytest.mark.parametrize(
    "resource", ["volcano.sh/vgpu-number", "aliyun.com/gpu-mem", "tencent.com/vcuda-core", "doslab.io/gpu-memory"]
)
def test_the_resource_of_another_plugin_never_counts_as_cards(resource: str) -> None:
    assert shown(bare({resource: "100"})) == (Division.SPLIT, 1, True)


def test_more_units_than_a_server_has_cards_are_shares() -> None:
    assert shown(bare({GPU: "100"})) == (Division.TIME_SLICING, 1, True)


def test_a_number_that_only_the_plugin_shows_is_assumed() -> None:
    assert shown(bare({GPU: "8"})) == (Division.WHOLE, 8, True)


def test_mig_and_whole_devices_of_a_node_are_counted_apart() -> None:
    made = labelled("n", "NVIDIA-H100-80GB-HBM3", 81559, count=8)
    made["status"]["capacity"] = made["status"]["allocatable"] = {GPU: "6", "nvidia.com/mig-1g.10gb": "14"}
    found = devices_of(made, PublishedDevices())
    assert shown(found) == (Division.MIG, 8, False)
    assert isinstance(found, Devices)
    assert (found.whole, found.slices) == (6, 14)


def test_slices_that_list_more_cards_than_feature_discovery_describes_count() -> None:
    made = node("n", {GPU: "3"}, **T4)
    found = devices_of(made, PublishedDevices(devices=(24576, 15360, 15360)))
    assert (shown(found), mib(found)) == ((Division.WHOLE, 3, True), 15360)
    assert isinstance(found, Devices)
    assert not found.by_labels


@pytest.mark.parametrize(
    ("labels", "kernel", "why"),
    [
        ({f"{GPU}.product": "NVIDIA-GB10-SHARED", f"{GPU}.count": "1"}, "6.11", "NVIDIA-GB10-SHARED has one memory"),
        ({}, "5.15.148-tegra", "5.15.148-tegra has one memory"),
        ({f"{GPU}.product": "NVIDIA-New", f"{GPU}.count": "1"}, "6.11", "shows no memory"),
        ({f"{GPU}.workload.config": "vm-passthrough"}, "6.11", "virtual machines"),
    ],
)
def test_a_node_whose_memory_no_budget_can_divide_is_left_out_with_the_reason(
    labels: Mapping[str, str], kernel: str, why: str
) -> None:
    made = node("n", {GPU: "8"})
    made["metadata"]["labels"] |= labels
    made["status"]["nodeInfo"] = {"kernelVersion": kernel}
    found = devices_of(made, PublishedDevices())
    assert isinstance(found, NoDevices)
    assert why in found.why


def test_the_cards_of_other_makers_are_no_gpus_of_ours() -> None:
    labels = {f"{KARPENTER}manufacturer": "amd", f"{KARPENTER}count": "8", f"{KARPENTER}name": "mi300x"}
    assert bare({"amd.com/gpu": "8"}, labels) == NoDevices("")
    assert bare({"google.com/tpu": "4"}, {f"{GKE}tpu-accelerator": "tpu-v5-lite"}) == NoDevices("")
