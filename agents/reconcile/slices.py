"""What ResourceSlices show of a node's devices: those of NVIDIA's DRA driver, and of our exporter.

Sources: cmd/gpu-kubelet-plugin/deviceinfo.go of dra-driver-nvidia-gpu (v0.5), agents/telemetry/resourceslice.py. Both
say `memory`, all that NVML says of the device. NVIDIA's driver publishes MIG and VFIO devices as well, of another type;
a GPU that is divided is not there as a whole one. Units: MiB.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.kube.client import Object
from agents.kube.slices import SliceHead, SlicesError, head_of, whole_pool
from tenancy.names import (
    DEVICE_MEMORY,
    DEVICE_OFFERED,
    DEVICE_UUID,
    NVIDIA_DEVICE_DRIVER,
    NVIDIA_DEVICE_TYPE,
    NVIDIA_WHOLE_GPU,
    Names,
)
from tenancy.quantity import QuantityError, parse
from tenancy.units import MIB
from tenancy.workload import ShapeError, at, maps_at


@dataclass(frozen=True, kw_only=True)
class DeviceSlice:
    """One ResourceSlice: MiB by the UUID of each whole GPU; `problem`, why it cannot be read, or a head. `claimable`:
    claims on seats may have some of it."""

    node: str
    driver: str
    head: SliceHead | None = None
    mib: tuple[tuple[str, int], ...] = ()
    problem: str | None = None
    claimable: bool = False


@dataclass(frozen=True, kw_only=True)
class Published:
    """MiB of each device of a node, the largest first; None where that is not known, and `problem` why, where anything
    was published. `claimable`: a slice offers claims on seats some of it, whatever its generation."""

    devices: tuple[int, ...] | None = None
    problem: str | None = None
    claimable: bool = False


UNPUBLISHED = Published()


def slice_of(item: Object, names: Names) -> DeviceSlice | None:
    """A ResourceSlice of a node by one of the two drivers; None for every other."""
    spec = item["spec"]
    driver, node = spec.get("driver"), spec.get("nodeName")
    if driver not in (NVIDIA_DEVICE_DRIVER, names.device_driver) or not node:
        return None
    ours = driver == names.device_driver
    try:
        devices = maps_at(spec, "devices")
        mib = tuple(_memory(device) for device in devices if _is_whole(device, driver))
        claimable = ours and any(DEVICE_OFFERED in at(device, "capacity") for device in devices)
        return DeviceSlice(node=node, driver=driver, head=head_of(spec), mib=mib, claimable=claimable)
    except (ShapeError, QuantityError, SlicesError) as error:
        problem = f"ResourceSlice {item['metadata']['name']}: {error}"
        return DeviceSlice(node=node, driver=driver, problem=problem, claimable=ours)


def published(slices: Iterable[DeviceSlice]) -> Published:
    """What they show together, all of one node. Where both drivers publish, a device counts that both have, for the
    less."""
    of_driver: dict[str, list[DeviceSlice]] = {}
    claimable = False
    for found in slices:
        claimable = claimable or found.claimable
        of_driver.setdefault(found.driver, []).append(found)
    try:
        inventories = [_inventory(driver, of_driver[driver]) for driver in sorted(of_driver)]
    except SlicesError as error:
        return Published(problem=str(error), claimable=claimable)
    if not inventories:
        return UNPUBLISHED
    common = set.intersection(*(set(inventory) for inventory in inventories))
    sizes = (min(inventory[uuid] for inventory in inventories) for uuid in common)
    return Published(devices=tuple(sorted(sizes, reverse=True)), claimable=claimable)


def _inventory(driver: str, slices: list[DeviceSlice]) -> Mapping[str, int]:
    for found in slices:
        if found.problem is not None:
            raise SlicesError(found.problem)
    parts = [(found.head, found.mib) for found in slices if found.head is not None]
    try:
        pairs = [pair for part in whole_pool(parts) for pair in part]
    except SlicesError as error:
        raise SlicesError(f"{driver}: {error}") from None
    inventory = dict(pairs)
    if len(inventory) < len(pairs):
        raise SlicesError(f"{driver}: two of its devices have one {DEVICE_UUID}")
    return inventory


def _is_whole(device: Object, driver: str) -> bool:
    """Ours has no others."""
    kind = at(device, "attributes", NVIDIA_DEVICE_TYPE).get("string")
    return driver != NVIDIA_DEVICE_DRIVER or kind == NVIDIA_WHOLE_GPU


def _memory(device: Object) -> tuple[str, int]:
    """A device that shows no memory, as one that shares the host's, cannot be counted."""
    uuid, value = (
        at(device, "attributes", DEVICE_UUID).get("string"),
        at(device, "capacity", DEVICE_MEMORY).get("value"),
    )
    if not isinstance(uuid, str) or not uuid or value is None:
        missing = DEVICE_MEMORY if uuid else DEVICE_UUID
        raise SlicesError(f"its device {device.get('name')} shows no {missing}")
    return uuid, int(parse(value)) // MIB
