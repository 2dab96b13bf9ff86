"""Tests how agents read a node's devices from the ResourceSlices of NVIDIA's driver or of our exporter."""

from collections.abc import Sequence
from typing import Any

from agents.kube.device_slices import PublishedDevices, published_devices, slice_of
from agents.telemetry.device import Device, Survey
from agents.telemetry.resourceslice import PublishingNode
from agents.telemetry.resourceslice import slice_of as own_slice
from tenancy.units import MIB
from tests.support.fake_cluster import NAMES
from tests.support.nvidia_slices import MIG, Gpu, nvidia_slice


def read(*slices: dict[str, Any]) -> PublishedDevices:
    found = (slice_of(each, NAMES) for each in slices)
    return published_devices(each for each in found if each is not None)


def ours(node: str = "n", *mib: int, uuids: Sequence[str] = ()) -> dict[str, Any]:
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
    return own_slice(Survey(devices=devices), PublishingNode(name=node, uid="u"), NAMES, None)


def test_nvidias_slices_show_its_whole_gpus_and_no_part_of_one() -> None:
    assert read(nvidia_slice("n", [Gpu(mib=24564), MIG, Gpu(minor=1)])) == PublishedDevices(devices=(24564, 15360))
    assert read(nvidia_slice("n", [MIG])) == PublishedDevices(devices=())


def test_a_gpu_counts_for_all_its_memory_whether_its_driver_shares_it_or_taints_it() -> None:
    lost = ({"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"},)
    for gpu in (Gpu(shares="memory"), Gpu(shares="unlimited"), Gpu(taints=lost)):
        assert read(nvidia_slice("n", [gpu])).devices == (15360,)


def test_memory_that_is_no_whole_number_of_mib_counts_without_the_rest() -> None:
    device = Gpu().device()
    device["capacity"]["memory"]["value"] = str(15360 * MIB + 500)
    assert read(nvidia_slice("n", [device])).devices == (15360,)


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
    assert half.problem == "gpu.nvidia.com: its devices are partly published: 1 of 2 ResourceSlices"


def test_a_gpu_that_shares_the_hosts_memory_leaves_the_whole_node_unknown() -> None:
    shows = read(nvidia_slice("n", [{**Gpu().device(), "capacity": {}}, Gpu(minor=1)]))
    assert shows.devices is None
    assert "its device gpu-0 shows no memory" in (shows.problem or "")
