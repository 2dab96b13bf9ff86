"""Computes the memory that seats need on each device of a pool, and the memory that terminating pods will release.

A seat's pod may start at any time, so the gate keeps memory free for seats without a pod and for starting pods. When a
seat's pod waits or starts, the gate stops on-demand workloads to release memory. On-demand workloads may use memory
that the running pods of seats leave unused.

Units: whole MiB of GPU memory, whole seconds.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agents.gate.pods import BoundPod, Seating
from agents.telemetry.client import NodeTelemetry
from tenancy.devices.absent import absent_seats, present_seats, seats_by_tenant
from tenancy.units import MIB

# The gate expects a terminating pod to release its memory within its grace period, but at most within 60 s. After 60 s,
# a process of the terminating pod probably hangs.
LONGEST_GRACE_SECONDS = 60
MEASURED_SECONDS = 15
# The gate assumes that a terminating pod with a budget ends within this many seconds. When this time is over, the
# memory of a terminating pod is free for a waiting seat.
SOON_SECONDS = 15


@dataclass(frozen=True, kw_only=True)
class PoolDevice:
    """One device, and the memory that seats and on-demand workloads need on it.

    `repeated` is True if the last sample used the same reading. `free_mib` is measured, and `room_mib` is the memory
    that is free by the ledger. `starting_mib` is the memory that starting pods can still allocate. `kept_mib` is the
    sum of `starting_mib`, the memory of seats without a pod, and the memory of pods that use no memory yet. `going_mib`
    is the memory that terminating pods will release, and `soon_mib` the part of it that will be free in time for a
    waiting seat. Pods of running on-demand workloads can still allocate `loading_mib`. Pods of on-demand workloads that
    the gate has just stopped will release `closing_mib`.
    """

    node: str
    uuid: str
    gpu: int
    repeated: bool
    free_mib: int
    room_mib: int
    starting_mib: int
    kept_mib: int
    going_mib: int
    soon_mib: int
    loading_mib: int = 0
    closing_mib: int = 0

    def __str__(self) -> str:
        return f"{self.node}, gpu {self.gpu}"

    @property
    def newcomers_mib(self) -> int:
        """Returns the free memory that starting workloads may use."""
        return self.free_mib - self.loading_mib - self.kept_mib


def pool_devices(readings: Sequence[NodeTelemetry], seating: Seating, now: int) -> list[PoolDevice]:
    """Returns the devices with what seats need on them. All `readings` must belong to one pool."""
    nodes = {reading.node: {pod.uid: pod for pod in seating.pods if pod.node == reading.node} for reading in readings}
    staying = [pod for pods in nodes.values() for pod in pods.values() if _stays(pod)]
    absent_mib = _absent_mib({reading.pool.name for reading in readings}, seating, staying)
    return [
        replace(device, kept_mib=device.kept_mib + max(0, min(absent_mib, device.room_mib)))
        for reading in readings
        for device in _beside_pods(reading, nodes[reading.node], seating.starting_seconds, now)
    ]


def _beside_pods(
    reading: NodeTelemetry, pods: Mapping[str, BoundPod], starting_seconds: int, now: int
) -> list[PoolDevice]:
    """Returns the devices of a node with what its pods need on them.

    A pod's memory counts on the devices that the extender chose for the pod or that the pod uses. If its devices are
    not known, its memory counts on every device of the node.
    """
    room = {device.uuid: reading.offered_mib(device) for device in reading.devices}
    starting, kept, going, soon = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    used_mib: dict[str, dict[str, int]] = {}  # by pod, and then by device
    for use in reading.uses:
        used_mib.setdefault(use.uid, {})[use.uuid] = mib = use.used_bytes // MIB
        if use.uid in pods:
            going[use.uuid] += mib * _is_going(pods[use.uid], now, MEASURED_SECONDS, LONGEST_GRACE_SECONDS)
            soon[use.uuid] += mib * _is_going(pods[use.uid], now, SOON_SECONDS, 0)
    for pod in filter(_stays, pods.values()):
        used = used_mib.get(pod.uid, {})
        places = [uuid for uuid in pod.uuids if uuid in room] or [uuid for uuid in used if uuid in room]
        share_mib = -(-pod.declared_mib // max(len(places), 1))
        starts = pod.running_since is None or now - pod.running_since < starting_seconds
        for uuid in places or room:
            rest_mib, unknown = max(0, share_mib - used.get(uuid, 0)), uuid in reading.unknown_uses
            room[uuid] -= share_mib if places or len(room) == 1 else 0
            starting[uuid] += rest_mib if starts and not unknown else 0
            kept[uuid] += rest_mib if starts or not (used or unknown) else 0
    return [
        PoolDevice(
            node=reading.node,
            uuid=device.uuid,
            gpu=device.gpu,
            repeated=reading.repeated,
            free_mib=device.free_bytes // MIB,
            room_mib=room[device.uuid],
            starting_mib=starting[device.uuid],
            kept_mib=kept[device.uuid],
            going_mib=going[device.uuid],
            soon_mib=soon[device.uuid],
        )
        for device in reading.devices
    ]


def _stays(pod: BoundPod) -> bool:
    return pod.going_since is None and bool(pod.declared_mib)


def _is_going(pod: BoundPod, now: int, seconds: int, grace_seconds: int) -> bool:
    """Returns True until the pod's grace period and another `seconds` have passed.

    A grace period longer than `grace_seconds` counts as `grace_seconds`. For a pod without a budget, the maximum is 60
    s.
    """
    if pod.going_since is None:
        return False
    grace = min(pod.grace_seconds, grace_seconds if pod.declared_mib else LONGEST_GRACE_SECONDS)
    return now - pod.going_since < grace + seconds


def _absent_mib(pools: set[str], seating: Seating, staying: Sequence[BoundPod]) -> int:
    """Returns the MiB of the pool that seats without a pod and waiting pods of queues can still allocate."""
    queued = (seat for seat in seating.waiting_in(pools) if set(seat.seats).isdisjoint(seating.seats))
    absent_mib = sum(seat.request.total_mib for seat in queued)
    for pool in pools:
        present = present_seats(seating.seats, pool, ((pod.namespace, pod.request, pod.seat) for pod in staying))
        for tenant, seats in seats_by_tenant(seating.seats, pool).items():
            absent = absent_seats(seats, present.get(tenant, {}))
            absent_mib += sum(shape.total_mib * count for shape, count in absent.items())
    return absent_mib
