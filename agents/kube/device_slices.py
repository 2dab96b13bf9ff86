"""Reads a node's devices from the ResourceSlices of NVIDIA's DRA driver and of our exporter. Units: MiB.

The driver and our exporter publish a device's whole memory. NVIDIA's driver also publishes MIG and VFIO devices, with
different values of the attribute `type`. The driver does not publish a GPU in MIG mode as a whole GPU. Sources:
cmd/gpu-kubelet-plugin/deviceinfo.go of dra-driver-nvidia-gpu (v0.5), agents/telemetry/resourceslice.py.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.kube.client import Object
from agents.kube.slices import SliceHead, SlicesError, complete_pool, head_of
from tenancy.names import (
    DEVICE_MEMORY,
    DEVICE_UUID,
    NVIDIA_DEVICE_DRIVER,
    NVIDIA_DEVICE_TYPE,
    NVIDIA_WHOLE_GPU,
    Names,
)
from tenancy.quantity import QuantityError, parse
from tenancy.units import MIB
from tenancy.workload import ShapeError, map_at, maps_at


@dataclass(frozen=True, kw_only=True)
class DeviceSlice:
    """One ResourceSlice: the UUID and MiB of each whole GPU.

    For an invalid ResourceSlice, `head` is None and `problem` is the reason.
    """

    node: str
    driver: str
    head: SliceHead | None = None
    mib: tuple[tuple[str, int], ...] = ()
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedDevices:
    """The MiB of each device of a node, the largest first.

    If the devices are not known, `devices` is None. `problem` is then the reason, or None if nothing was published.
    """

    devices: tuple[int, ...] | None = None
    problem: str | None = None


UNPUBLISHED = PublishedDevices()


def slice_of(item: Object, names: Names) -> DeviceSlice | None:
    """Reads a node's ResourceSlice. Returns None if the ResourceSlice has a different driver or no node."""
    spec = item["spec"]
    driver, node = spec.get("driver"), spec.get("nodeName")
    if driver not in (NVIDIA_DEVICE_DRIVER, names.device_driver) or not node:
        return None
    try:
        mib = tuple(_memory(device) for device in maps_at(spec, "devices") if _is_whole(device, driver))
        return DeviceSlice(node=node, driver=driver, head=head_of(spec), mib=mib)
    except (ShapeError, QuantityError, SlicesError) as error:
        problem = f"ResourceSlice {item['metadata']['name']}: {error}"
        return DeviceSlice(node=node, driver=driver, problem=problem)


def published_devices(slices: Iterable[DeviceSlice]) -> PublishedDevices:
    """Returns the devices in one node's ResourceSlices.

    If both the driver and our exporter publish ResourceSlices, only devices in both count, each with the smaller of its
    two sizes.
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
        pairs = [pair for part in complete_pool(parts) for pair in part]
    except SlicesError as error:
        raise SlicesError(f"{driver}: {error}") from None
    inventory = dict(pairs)
    if len(inventory) < len(pairs):
        raise SlicesError(f"{driver}: two of its devices have one {DEVICE_UUID}")
    return inventory


def _is_whole(device: Object, driver: str) -> bool:
    """Returns True for a whole GPU. All devices of our exporter are whole GPUs."""
    kind = map_at(device, "attributes", NVIDIA_DEVICE_TYPE).get("string")
    return driver != NVIDIA_DEVICE_DRIVER or kind == NVIDIA_WHOLE_GPU


def _memory(device: Object) -> tuple[str, int]:
    """Returns the device's UUID and MiB.

    Raises SlicesError for a device without a size, such as an integrated GPU that uses host memory.
    """
    uuid = map_at(device, "attributes", DEVICE_UUID).get("string")
    value = map_at(device, "capacity", DEVICE_MEMORY).get("value")
    if not isinstance(uuid, str) or not uuid or value is None:
        missing = DEVICE_MEMORY if uuid else DEVICE_UUID
        raise SlicesError(f"its device {device.get('name')} shows no {missing}")
    return uuid, int(parse(value)) // MIB
