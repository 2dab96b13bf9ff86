"""The devices that a node offers to placement: its ResourceSlice (slices.py), read with the ledger's pools.

What is not as it must be makes the node unusable, with the reason: it takes no new pod, and nothing is guessed.
Units: whole MiB of GPU memory.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from agents.kube.client import Object
from agents.kube.nodes import excluded
from agents.runtime.errors import AgentError
from tenancy.ledger import Ledger, PlacementMode, Pool, SeveralPoolsError, Sharing
from tenancy.names import CAN_CAP, DEVICE_CAP, DEVICE_INDEX, DEVICE_MEMORY, DEVICE_UUID, Names
from tenancy.quantity import QuantityError, parse, whole
from tenancy.units import MIB
from tenancy.workload import ShapeError, at, maps_at

# Effects of a device's taint that keep new pods off it (KEP-5055).
_REPELLENT = ("NoSchedule", "NoExecute")


class InventoryError(AgentError):
    """The node cannot be used; the message says why."""


@dataclass(frozen=True)
class NodeDevice:
    """`mib` is what the device may hand out in all; an unhealthy or `excluded` one hands out nothing new."""

    index: int
    uuid: str
    mib: int
    healthy: bool = True
    excluded: bool = False

    @property
    def offered_mib(self) -> int:
        return self.mib if self.healthy and not self.excluded else 0


@dataclass(frozen=True)
class NodeDevices:
    """`floor_mib` stays free on each device by measurement. `unusable` says why the node takes no new pod. `cpu_milli`
    is the CPU that all of its pods may request, in thousandths; None where the Node does not tell."""

    node: str
    pool: str | None
    devices: tuple[NodeDevice, ...] = ()
    floor_mib: int = 0
    unusable: str | None = None
    cpu_milli: int | None = None


def devices_of(node: Object, slices: Iterable[Object], ledger: Ledger) -> NodeDevices:
    """What a Node offers; `slices` are the ResourceSlices of that node, or more than those."""
    name = node["metadata"]["name"]
    pool = None
    try:
        pool = _pool(at(node, "metadata", "labels"), ledger)
        devices = _published(name, slices, ledger.names)
        out = _excluded(at(node, "metadata", "annotations"), ledger.names)
        out = {*out, *_uncapped(devices, pool), *_for_claims(devices, pool)}
        offered = tuple(_device(device, pool, out) for device in devices)
        _distinct(offered)
        cpu_milli = _cpu_milli(node)
    except (InventoryError, ShapeError, QuantityError) as error:
        return NodeDevices(node=name, pool=pool.name if pool else None, unusable=str(error))
    return NodeDevices(node=name, pool=pool.name, devices=offered, floor_mib=pool.floor_mib, cpu_milli=cpu_milli)


def _pool(labels: Object, ledger: Ledger) -> Pool:
    try:
        pool = ledger.pool_of(labels)
    except SeveralPoolsError as error:
        raise InventoryError(f"is {error}") from None
    if pool is None or pool.sharing is not Sharing.MEMORY:
        raise InventoryError("is in no pool that shares GPU memory")
    return pool


def _cpu_milli(node: Object) -> int | None:
    cpu = at(node, "status", "allocatable").get("cpu")
    return None if cpu is None else math.floor(parse(cpu) * 1000)


def _published(node: str, slices: Iterable[Object], names: Names) -> Sequence[Object]:
    """The devices of the node's one pool of slices: its newest generation, which must be whole.

    Source: the rules on ResourcePool in k8s.io/api resource/v1. An older generation is never used: the newer one says
    that it is out of date.
    """
    specs = [at(found, "spec") for found in slices]
    mine = [spec for spec in specs if spec.get("driver") == names.device_driver and spec.get("nodeName") == node]
    if not mine:
        raise InventoryError("its devices are not published: it has no ResourceSlice of " + names.device_driver)
    pools = {str(at(spec, "pool").get("name")) for spec in mine}
    if len(pools) > 1:
        raise InventoryError(f"its ResourceSlices are of several pools: {', '.join(sorted(pools))}")
    generations = [_integer(at(spec, "pool"), "generation") for spec in mine]
    newest = max(generations)
    whole_pool = [spec for spec, generation in zip(mine, generations, strict=True) if generation == newest]
    wanted = {_integer(at(spec, "pool"), "resourceSliceCount") for spec in whole_pool}
    if wanted != {len(whole_pool)}:
        raise InventoryError(f"its devices are half published: {len(whole_pool)} of {max(wanted)} ResourceSlices")
    return [device for spec in whole_pool for device in maps_at(spec, "devices")]


def _excluded(annotations: Object, names: Names) -> Collection[int]:
    try:
        return excluded(annotations, names)
    except ValueError:
        text = annotations[names.device_excluded]
        raise InventoryError(f"its annotation {names.device_excluded} is not a list of devices: {text!r}") from None


def _for_claims(devices: Sequence[Object], pool: Pool) -> Collection[int]:
    """The indices of devices that are placed on by claims: those of all, for pods that are there already stay."""
    if pool.placement is not PlacementMode.DRA:
        return ()
    return [_integer(at(device, "attributes", DEVICE_INDEX), "int") for device in devices]


def _uncapped(devices: Sequence[Object], pool: Pool) -> Collection[int]:
    """The indices of devices whose driver cannot hold containers to their budgets, where the pool wants it to. Raises
    InventoryError where that is all of them."""
    if not (pool.caps and pool.require_cap):
        return ()
    why = {
        _integer(at(device, "attributes", DEVICE_INDEX), "int"): str(said)
        for device in devices
        if (said := at(device, "attributes", DEVICE_CAP).get("string", "its exporter has not said yet")) != CAN_CAP
    }
    if why and len(why) == len(devices):
        raise InventoryError(
            f"its driver cannot hold containers to their gpumem as pools.{pool.name}.enforce wants: "
            + ", ".join(sorted(set(why.values())))
        )
    return why.keys()


def _device(device: Object, pool: Pool, out: Collection[int]) -> NodeDevice:
    name = device.get("name")
    try:
        index = _integer(at(device, "attributes", DEVICE_INDEX), "int")
        uuid = at(device, "attributes", DEVICE_UUID).get("string")
        size = whole(at(device, "capacity", DEVICE_MEMORY).get("value"))
    except (InventoryError, ShapeError, QuantityError) as error:
        raise InventoryError(f"its device {name} is malformed: {error}") from None
    if not isinstance(uuid, str) or not uuid or index < 0 or size < 0 or size % MIB:
        raise InventoryError(f"its device {name} is malformed: index {index}, uuid {uuid!r}, {size} bytes")
    return NodeDevice(
        index=index,
        uuid=uuid,
        mib=pool.offered_mib(size // MIB),
        healthy=not any(taint.get("effect") in _REPELLENT for taint in maps_at(device, "taints")),
        excluded=index in out,
    )


def _distinct(devices: Sequence[NodeDevice]) -> None:
    for what, values in (("index", [d.index for d in devices]), ("uuid", [d.uuid for d in devices])):
        if len(set(values)) < len(values):
            raise InventoryError(f"two of its devices have one {what}")


def _integer(mapping: Object, field: str) -> int:
    value = mapping.get(field)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InventoryError(f"{field} must be a whole number (got {value!r})")
    return value
