"""A copy of the cache with the pods on each device, and the differences between the cache and the devices."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agents.extender.cache.inventory import NodeDevice
from agents.extender.cache.node_info import NodeInfo
from agents.extender.cache.pod_info import PodInfo


@dataclass(frozen=True, kw_only=True)
class DeviceUsage:
    """One device. `mib` is the memory that the device offers; `room_mib` is the memory that a new pod without a seat
    could get.

    `measured_free_mib` is None without a fresh reading.
    """

    index: int
    uuid: str
    mib: int
    room_mib: int
    healthy: bool
    excluded: bool
    measured_free_mib: int | None
    pods: tuple[PodInfo, ...]

    @property
    def held_mib(self) -> int:
        return sum(pod.request.mib for pod in self.pods)


@dataclass(frozen=True, kw_only=True)
class NodeUsage:
    """One node. `adrift` lists the node's pods that have no known device of the node. `cpu_milli` is the free CPU in
    millicores, or None if the free CPU is not known.
    """

    node: str
    pool: str | None
    unusable: str | None
    devices: tuple[DeviceUsage, ...]
    adrift: tuple[PodInfo, ...]
    cpu_milli: int | None


@dataclass(frozen=True)
class DeviceDrift:
    node: str
    index: int
    mib: int

    def __str__(self) -> str:
        return f"{self.node}, gpu {self.index}: {self.mib} MiB"


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The differences between the bound pods in the cache and the devices."""

    # The pods without a device in their annotations.
    unplaced: tuple[PodInfo, ...] = ()
    # The pods with a device that the node no longer has.
    adrift: tuple[PodInfo, ...] = ()
    # The devices on which pods hold more memory than the device offers.
    over: tuple[DeviceDrift, ...] = ()
    # The devices with more memory in use than the sum of the reserve and the pods' requests.
    outside: tuple[DeviceDrift, ...] = ()


def usage_of(node: NodeInfo) -> NodeUsage:
    by_device: dict[int, list[PodInfo]] = {index: [] for index in node.offered}
    adrift = []
    for pod in sorted(node.pods.values(), key=lambda pod: pod.uid):
        for index in node.places[pod.uid]:
            by_device[index].append(pod)
        if not node.places[pod.uid]:
            adrift.append(pod)
    inventory, room = node.inventory, node.measured_room
    measured = node.reading.unused if node.reading else {}
    return NodeUsage(
        node=node.node,
        pool=inventory.pool if inventory else None,
        unusable=inventory.unusable if inventory else None,
        devices=tuple(
            DeviceUsage(
                index=device.index,
                uuid=device.uuid,
                mib=device.mib,
                room_mib=room[device.index],
                healthy=device.healthy,
                excluded=device.excluded,
                measured_free_mib=measured.get(device.index),
                pods=tuple(by_device[device.index]),
            )
            for device in (inventory.devices if inventory else ())
        ),
        adrift=tuple(adrift),
        cpu_milli=node.cpu_milli,
    )


def drift_of(nodes: Iterable[NodeInfo]) -> Drift:
    nodes = sorted(nodes, key=lambda node: node.node)
    bound = [(node, pod) for node in nodes for _, pod in sorted(node.pods.items()) if pod.is_bound]
    return Drift(
        unplaced=tuple(pod for _, pod in bound if not pod.is_placed),
        adrift=tuple(pod for node, pod in bound if node.offered and not node.places[pod.uid]),
        over=tuple(_over(nodes)),
        outside=tuple(_outside(nodes)),
    )


def _over(nodes: Iterable[NodeInfo]) -> Iterator[DeviceDrift]:
    for node, device, held_mib in _devices(nodes):
        if held_mib > device.mib:
            yield DeviceDrift(node.node, device.index, held_mib - device.mib)


def _outside(nodes: Iterable[NodeInfo]) -> Iterator[DeviceDrift]:
    for node, device, held_mib in _devices(nodes):
        measured = node.reading.unused.get(device.index) if node.reading else None
        if measured is not None and device.mib - held_mib > measured:
            yield DeviceDrift(node.node, device.index, device.mib - held_mib - measured)


def _devices(nodes: Iterable[NodeInfo]) -> Iterator[tuple[NodeInfo, NodeDevice, int]]:
    """Yields each device with its node, and with the MiB that pods hold on the device."""
    for node in nodes:
        for device in node.inventory.devices if node.inventory else ():
            yield node, device, device.offered_mib - node.free[device.index]
