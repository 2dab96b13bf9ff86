"""Computes the memory that seats need on each device of a pool, and the memory that terminating pods will release.

A seat's pod may start at any time, so the gate keeps memory free for seats without a pod and for starting pods. When a
seat's pod waits or starts, the gate stops on-demand workloads to release memory. On-demand workloads may use memory
that the running pods of seats leave unused.

Units: whole MiB of GPU memory, whole seconds.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
class SeatNeed:
    """The memory that seats need on one device.

    `room_mib` is the memory of the device that is free by the ledger. `starting_mib` is the memory that starting pods
    can still allocate. `kept_mib` is the sum of `starting_mib`, the memory of seats without a pod, and the memory of
    pods that use no memory yet. `going_mib` is the memory that terminating pods will release. `soon_mib` is the part of
    `going_mib` that will be free in time for a waiting seat.
    """

    room_mib: int
    starting_mib: int
    kept_mib: int
    going_mib: int
    soon_mib: int


@dataclass(frozen=True, kw_only=True)
class _Share:
    """The MiB of a device that one pod holds by the ledger, and the MiB that the pod can still allocate there."""

    uuid: str
    held_mib: int
    starting_mib: int
    kept_mib: int


def seat_needs(readings: Sequence[NodeTelemetry], seating: Seating, now: int) -> Mapping[str, SeatNeed]:
    """Returns the memory that seats need on each device, by device UUID. All `readings` must belong to one pool."""
    pods: defaultdict[str, dict[str, BoundPod]] = defaultdict(dict)
    for pod in seating.pods:
        pods[pod.node][pod.uid] = pod
    staying = [pod for reading in readings for pod in pods[reading.node].values() if _stays(pod)]
    absent_mib = _absent_mib({reading.pool.name for reading in readings}, seating, staying)
    found = {}
    for reading in readings:
        here = pods[reading.node]
        used_mib: defaultdict[str, dict[str, int]] = defaultdict(dict)  # by pod, and then by device
        for use in reading.uses:
            used_mib[use.uid][use.uuid] = use.used_bytes // MIB
        staying_here = (pod for pod in here.values() if _stays(pod))
        shares = [each for pod in staying_here for each in _shares(pod, reading, used_mib[pod.uid], seating, now)]
        for device in reading.devices:
            uses = [use for use in reading.uses if use.uuid == device.uuid and use.uid in here]
            used = [(here[use.uid], use.used_bytes // MIB) for use in uses]
            own = [share for share in shares if share.uuid == device.uuid]
            room_mib = reading.offered_mib(device) - sum(share.held_mib for share in own)
            found[device.uuid] = SeatNeed(
                room_mib=room_mib,
                starting_mib=sum(share.starting_mib for share in own),
                kept_mib=sum(share.kept_mib for share in own) + max(0, min(absent_mib, room_mib)),
                going_mib=sum(mib for pod, mib in used if _is_going(pod, now, MEASURED_SECONDS, LONGEST_GRACE_SECONDS)),
                soon_mib=sum(mib for pod, mib in used if _is_going(pod, now, SOON_SECONDS, 0)),
            )
    return found


def _stays(pod: BoundPod) -> bool:
    return pod.going_since is None and bool(pod.declared_mib)


def _shares(
    pod: BoundPod, reading: NodeTelemetry, used: Mapping[str, int], seating: Seating, now: int
) -> Iterator[_Share]:
    """Yields the pod's memory for each device that the extender chose for the pod or that the pod uses.

    If the pod's devices are not known, yields the pod's memory for every device of the node. `used` maps the UUID of
    each device that the pod uses to the MiB in use.
    """
    devices = [device.uuid for device in reading.devices]
    places = [uuid for uuid in pod.uuids if uuid in devices] or [uuid for uuid in used if uuid in devices]
    share_mib = -(-pod.declared_mib // max(len(places), 1))
    starts = pod.running_since is None or now - pod.running_since < seating.starting_seconds
    for uuid in places or devices:
        rest_mib = max(0, share_mib - used.get(uuid, 0))
        unknown = uuid in reading.unknown_uses
        yield _Share(
            uuid=uuid,
            held_mib=share_mib if places or len(devices) == 1 else 0,
            starting_mib=rest_mib if starts and not unknown else 0,
            kept_mib=rest_mib if starts or not (used or unknown) else 0,
        )


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
