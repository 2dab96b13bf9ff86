"""Computes a node's devices for pods from the node's ResourceSlices and the ledger's pools.

A node with invalid ResourceSlices takes no new pod, and `unusable` has the reason. Units: whole MiB of GPU memory.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agents.kube.client import Object
from agents.kube.nodes import ExcludedDevices, Node
from agents.kube.slices import complete_pool, head_of
from agents.runtime.errors import AgentError
from agents.runtime.items import Unjudged, judged
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool, SeveralPoolsError
from tenancy.names import CAN_CAP, DEVICE_CAP, DEVICE_INDEX, DEVICE_MEMORY, DEVICE_UUID, Names
from tenancy.quantity import parse, whole
from tenancy.units import MIB
from tenancy.workload import map_at, maps_at

# A device taint with one of these effects keeps new pods off the device (KEP-5055).
_REPELLENT = ("NoSchedule", "NoExecute")


class InventoryError(AgentError):
    """The node takes no new pod, for the reason in the message."""


@dataclass(frozen=True)
class NodeDevice:
    """A device. `mib` is the limit for the sum of all pods' requests on the device. An unhealthy or excluded device
    takes no new pod.
    """

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
    """The devices of a node. `unusable` is the reason why the node takes no new pod.

    `floor_mib` is the floor of the node's pool. `cpu_milli` is the node's allocatable CPU in millicores, or None if the
    Node does not show its CPU.
    """

    node: str
    pool: str | None
    devices: tuple[NodeDevice, ...] = ()
    floor_mib: int = 0
    unusable: str | None = None
    cpu_milli: int | None = None


def devices_of(node: Node, slices: Iterable[Object], ledger: Ledger) -> NodeDevices:
    """Returns the devices of a node. Ignores the `slices` of all other nodes."""
    pool = judged(lambda: _pool(node.labels, ledger))
    if isinstance(pool, Unjudged):
        return NodeDevices(node=node.name, pool=None, unusable=pool.why)
    found = judged(lambda: _devices_of(node, slices, pool, ledger.names))
    return NodeDevices(node=node.name, pool=pool.name, unusable=found.why) if isinstance(found, Unjudged) else found


def _devices_of(node: Node, slices: Iterable[Object], pool: Pool, names: Names) -> NodeDevices:
    devices = _published(node.name, slices, names)
    excluded, uncapped = _excluded(node.annotations, names), _uncapped(devices, pool)
    offered = tuple(_device(device, pool, excluded, uncapped) for device in devices)
    return NodeDevices(
        node=node.name, pool=pool.name, devices=offered, floor_mib=pool.floor_mib, cpu_milli=_cpu_milli(node)
    )


def _pool(labels: Mapping[str, str], ledger: Ledger) -> Pool:
    try:
        pool = ledger.pool_of(labels)
    except SeveralPoolsError as error:
        raise InventoryError(f"is {error}") from None
    if pool is None or pool.sharing is not Sharing.MEMORY:
        raise InventoryError("is in no pool that shares GPU memory")
    return pool


def _cpu_milli(node: Node) -> int | None:
    cpu = node.allocatable.get("cpu")
    return None if cpu is None else math.floor(parse(cpu) * 1000)


def _published(node: str, slices: Iterable[Object], names: Names) -> Sequence[Object]:
    """Returns the devices in the node's ResourceSlices."""
    specs = [map_at(found, "spec") for found in slices]
    mine = [spec for spec in specs if spec.get("driver") == names.device_driver and spec.get("nodeName") == node]
    if not mine:
        raise InventoryError("its devices are not published: it has no ResourceSlice of " + names.device_driver)
    return [
        device
        for spec in complete_pool([(head_of(spec), spec) for spec in mine])
        for device in maps_at(spec, "devices")
    ]


def _excluded(annotations: Mapping[str, str], names: Names) -> ExcludedDevices:
    try:
        return ExcludedDevices.of(annotations, names)
    except ValueError:
        text = annotations[names.device_excluded]
        raise InventoryError(f"its annotation {names.device_excluded} is not a list of UUIDs: {text!r}") from None


def _uncapped(devices: Sequence[Object], pool: Pool) -> Collection[int]:
    """Returns the indices of the devices on which the driver cannot enforce budgets. Returns () if the pool does not
    have `enforce: driver`.

    Raises InventoryError if the driver can enforce budgets on no device of the node.
    """
    if not pool.caps:
        return ()
    why = {
        device["attributes"][DEVICE_INDEX]["int"]: said or "its exporter has not said yet"
        for device in devices
        if (said := map_at(device, "attributes", DEVICE_CAP).get("string")) != CAN_CAP
    }
    if why and len(why) == len(devices):
        raise InventoryError(
            f"its driver cannot hold containers to their gpumem as pools.{pool.name}.enforce wants: "
            + ", ".join(sorted(set(why.values())))
        )
    return why.keys()


def _device(device: Object, pool: Pool, excluded: ExcludedDevices, uncapped: Collection[int]) -> NodeDevice:
    attributes, size = device["attributes"], device["capacity"][DEVICE_MEMORY]["value"]
    index, uuid = attributes[DEVICE_INDEX]["int"], attributes[DEVICE_UUID]["string"]
    return NodeDevice(
        index=index,
        uuid=uuid,
        mib=pool.offered_mib(whole(size) // MIB),
        healthy=not any(taint.get("effect") in _REPELLENT for taint in maps_at(device, "taints")),
        excluded=excluded.has(uuid, index) or index in uncapped,
    )
