"""A snapshot of the cache: which pod holds what, and where that differs from the API and the devices."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from agents.extender.cache.inventory import NodeDevice
from agents.extender.cache.node_info import DeviceShare, NodeInfo
from agents.extender.cache.pod_info import PodInfo


class ShareState(StrEnum):
    """How a pod comes to have memory on a device."""

    BOUND = "bound"
    BINDING = "binding"
    RESERVED = "reserved"  # between filter and bind


@dataclass(frozen=True, kw_only=True)
class Share:
    """`mib` on each of its devices. Of a pod that is not bound, the ledger knows the uid alone."""

    uid: str
    namespace: str = ""
    name: str = ""
    mib: int
    standing: ShareState


@dataclass(frozen=True, kw_only=True)
class DeviceUsage:
    """`mib` is what the device may hand out, `free_mib` what a new pod could have of it. `measured_free_mib` is None
    without a fresh measurement."""

    index: int
    uuid: str
    mib: int
    free_mib: int
    healthy: bool
    excluded: bool
    measured_free_mib: int | None
    shares: tuple[Share, ...]

    @property
    def held_mib(self) -> int:
        return sum(share.mib for share in self.shares)


@dataclass(frozen=True, kw_only=True)
class NodeUsage:
    """`adrift` are pods that no device of the node is known to hold. `cpu_milli` is the CPU that no pod requests, None
    where it is not known."""

    node: str
    pool: str | None
    unusable: str | None
    devices: tuple[DeviceUsage, ...]
    adrift: tuple[Share, ...]
    cpu_milli: int | None


@dataclass(frozen=True)
class DeviceDrift:
    node: str
    index: int
    mib: int


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Where the ledger, the API and the devices do not agree; pods by uid.

    missing    bound by the API, unknown to the ledger
    stale      in the ledger, not bound by the API
    moved      not on the node or the devices that the API says
    unplaced   bound without a device in the annotations
    adrift     their device is no longer on the node
    over       more is held on a device than it may hand out
    outside    more is in use on a device than its pods declare and the reserve covers
    """

    missing: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    unplaced: tuple[str, ...] = ()
    adrift: tuple[str, ...] = ()
    over: tuple[DeviceDrift, ...] = ()
    outside: tuple[DeviceDrift, ...] = ()


def usage_of(room: NodeInfo) -> NodeUsage:
    """What is where on one node."""
    shares = {claim.uid: _share(claim) for claim in room.claims()}
    by_device: dict[int, list[Share]] = {index: [] for index in room.offered}
    adrift = []
    for uid, indices in room.places.items():
        for index in indices:
            by_device[index].append(shares[uid])
        if not indices:
            adrift.append(shares[uid])
    inventory = room.inventory
    measured = room.reading.free if room.reading else {}
    return NodeUsage(
        node=room.node,
        pool=inventory.pool if inventory else None,
        unusable=inventory.unusable if inventory else None,
        devices=tuple(
            DeviceUsage(
                index=device.index,
                uuid=device.uuid,
                mib=device.mib,
                free_mib=room.free[device.index],
                healthy=device.healthy,
                excluded=device.excluded,
                measured_free_mib=measured.get(device.index),
                shares=tuple(sorted(by_device[device.index], key=lambda share: share.uid)),
            )
            for device in (inventory.devices if inventory else ())
        ),
        adrift=tuple(sorted(adrift, key=lambda share: share.uid)),
        cpu_milli=room.cpu_milli,
    )


def drift_of(rooms: Iterable[NodeInfo], listed: Mapping[str, PodInfo]) -> Drift:
    """Compares what the rooms hold with the pods of a list, by uid, that is as old as they are."""
    rooms = sorted(rooms, key=lambda room: room.node)
    held = {pod.uid: pod for room in rooms for pod in room.pods.values()}
    both = listed.keys() & held.keys()
    return Drift(
        missing=tuple(sorted(listed.keys() - held.keys())),
        stale=tuple(sorted(held.keys() - listed.keys())),
        moved=tuple(sorted(uid for uid in both if _place(listed[uid]) != _place(held[uid]))),
        unplaced=tuple(sorted(pod.uid for pod in held.values() if not pod.placed)),
        adrift=tuple(
            sorted(uid for room in rooms if room.offered for uid in room.pods if not room.places.get(uid)),
        ),
        over=tuple(_over(rooms)),
        outside=tuple(_outside(rooms)),
    )


def _share(claim: PodInfo | DeviceShare) -> Share:
    if isinstance(claim, PodInfo):
        return Share(
            uid=claim.uid, namespace=claim.namespace, name=claim.name, mib=claim.ask.mib, standing=ShareState.BOUND
        )
    standing = ShareState.BINDING if claim.until is None else ShareState.RESERVED
    return Share(uid=claim.uid, mib=claim.ask.mib, standing=standing)


def _place(pod: PodInfo) -> tuple[object, ...]:
    return pod.node, pod.ask, pod.uuids or pod.indices


def _over(rooms: Iterable[NodeInfo]) -> Iterator[DeviceDrift]:
    for room, device, held_mib in _devices(rooms):
        if held_mib > device.mib:
            yield DeviceDrift(room.node, device.index, held_mib - device.mib)


def _outside(rooms: Iterable[NodeInfo]) -> Iterator[DeviceDrift]:
    for room, device, held_mib in _devices(rooms):
        measured = room.reading.free.get(device.index) if room.reading else None
        if measured is not None and device.mib - held_mib > measured:
            yield DeviceDrift(room.node, device.index, device.mib - held_mib - measured)


def _devices(rooms: Iterable[NodeInfo]) -> Iterator[tuple[NodeInfo, NodeDevice, int]]:
    """Every device, and how much of it is held."""
    for room in rooms:
        for device in room.inventory.devices if room.inventory else ():
            yield room, device, device.offered_mib - room.unheld[device.index]
