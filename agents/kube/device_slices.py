"""Reads a node's devices from the ResourceSlices of NVIDIA's DRA driver and of our exporter. Units: MiB.

NVIDIA's driver and our exporter publish the whole memory of a device. NVIDIA's driver also publishes MIG and VFIO
devices, with another value of the attribute `type`. NVIDIA's driver does not publish a GPU in MIG mode as a whole GPU.
Sources: cmd/gpu-kubelet-plugin/deviceinfo.go of dra-driver-nvidia-gpu (v0.5), agents/telemetry/resourceslice.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.kube.client import Object
from agents.kube.fields import named
from agents.kube.slices import SliceHead, SlicesError, complete_pool, head_of
from tenancy.names import (
    DEVICE_MEMORY,
    DEVICE_UUID,
    NVIDIA_DEVICE_DRIVER,
    NVIDIA_DEVICE_TYPE,
    NVIDIA_WHOLE_GPU,
    Names,
)
from tenancy.quantity import parse
from tenancy.units import MIB
from tenancy.workload import map_at, maps_at


@dataclass(frozen=True, kw_only=True)
class DeviceSlice:
    """The UUID and the MiB of each whole GPU in one ResourceSlice.

    If a device has no size, `head` is None and `problem` is the reason.
    """

    node: str
    driver: str
    head: SliceHead | None = None
    mib: tuple[tuple[str, int], ...] = ()
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedDevices:
    """The MiB of each device of a node, with the largest first.

    If the devices are not known, `devices` is None and `problem` is the reason. If no devices were published, `devices`
    and `problem` are None.
    """

    devices: tuple[int, ...] | None = None
    problem: str | None = None


UNPUBLISHED = PublishedDevices()


def slice_of(item: Object, names: Names) -> DeviceSlice | None:
    """Reads a ResourceSlice of a node. Returns None for a ResourceSlice without a node. Also returns None for a
    ResourceSlice of any driver except NVIDIA's driver and our exporter.
    """
    spec = item["spec"]
    driver, node = spec["driver"], spec.get("nodeName")
    if driver not in (NVIDIA_DEVICE_DRIVER, names.device_driver) or not node:
        return None
    try:
        mib = tuple(_memory(device) for device in maps_at(spec, "devices") if _is_whole(device, driver))
    except SlicesError as error:
        return DeviceSlice(node=node, driver=driver, problem=f"ResourceSlice {named(item)}: {error}")
    return DeviceSlice(node=node, driver=driver, head=head_of(spec), mib=mib)


def published_devices(slices: Iterable[DeviceSlice]) -> PublishedDevices:
    """Returns the devices in the ResourceSlices of one node.

    If NVIDIA's driver and our exporter publish ResourceSlices, the result has only the devices that both publish. A
    device with two published sizes has the smaller size in the result.
    """
    of_driver: dict[str, list[DeviceSlice]] = {}
    for found in slices:
        of_driver.setdefault(found.driver, []).append(found)
    try:
        inventories = [_inventory(driver, of_driver[driver]) for driver in sorted(of_driver)]
    except SlicesError as error:
        return PublishedDevices(problem=str(error))
    if not inventories:
        return UNPUBLISHED
    common = set.intersection(*(set(inventory) for inventory in inventories))
    sizes = (min(inventory[uuid] for inventory in inventories) for uuid in common)
    return PublishedDevices(devices=tuple(sorted(sizes, reverse=True)))


def _inventory(driver: str, slices: list[DeviceSlice]) -> Mapping[str, int]:
    for found in slices:
        if found.problem is not None:
            raise SlicesError(found.problem)
    parts = [(found.head, found.mib) for found in slices if found.head is not None]
    try:
        return dict(pair for part in complete_pool(parts) for pair in part)
    except SlicesError as error:
        raise SlicesError(f"{driver}: {error}") from None


def _is_whole(device: Object, driver: str) -> bool:
    """Returns True if the device is a whole GPU. All devices of our exporter are whole GPUs."""
    kind = map_at(device, "attributes", NVIDIA_DEVICE_TYPE).get("string")
    return driver != NVIDIA_DEVICE_DRIVER or kind == NVIDIA_WHOLE_GPU


def _memory(device: Object) -> tuple[str, int]:
    """Returns the UUID and the MiB of a device.

    Raises SlicesError for a device without a size, such as an integrated GPU that uses host memory.
    """
    value = map_at(device, "capacity", DEVICE_MEMORY).get("value")
    if value is None:
        raise SlicesError(f"its device {device['name']} shows no {DEVICE_MEMORY}")
    return map_at(device, "attributes", DEVICE_UUID)["string"], int(parse(value)) // MIB
