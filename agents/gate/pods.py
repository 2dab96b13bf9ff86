"""Reads the pods on the pools' nodes, and the waiting pods of seats."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from agents.kube.client import Api, Object
from agents.kube.pods import Pod, waiting_seats
from agents.runtime.items import ItemProblems
from agents.telemetry.client import NodeTelemetry
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Ledger, Seat


@dataclass(frozen=True, kw_only=True)
class BoundPod:
    """A pod on a node, with a request of `declared_mib` in total on `devices` devices.

    `uuids` has the UUIDs of the pod's devices, and `seat` is the seat in its label, or "". All times are in seconds
    since 1970.

    `running_since` is the time when the pod's last container started, or None until all containers have started.
    `going_since` is the time when the pod's deletion began, and `grace_seconds` is the pod's grace period.
    """

    uid: str
    namespace: str
    node: str
    declared_mib: int = 0
    devices: int = 1
    seat: str = ""
    uuids: tuple[str, ...] = ()
    running_since: int | None = None
    going_since: int | None = None
    grace_seconds: int = 30

    @property
    def request(self) -> MemoryRequest:
        """Returns the request of a pod with a budget."""
        return MemoryRequest(-(-self.declared_mib // self.devices), self.devices)


@dataclass(frozen=True, kw_only=True)
class Seating:
    """The ledger's seats, the pods on the pools' nodes, and the waiting pods of seats.

    A pod can still allocate memory for `starting_seconds` after its start.
    """

    seats: tuple[Seat, ...] = ()
    pods: tuple[BoundPod, ...] = ()
    waiting: tuple[WaitingSeat, ...] = ()
    starting_seconds: int = 0

    def waiting_in(self, pools: Collection[str]) -> list[WaitingSeat]:
        return [seat for seat in self.waiting if not seat.pools.isdisjoint(pools)]


def read_seating(
    api: Api,
    ledger: Ledger,
    readings: Iterable[NodeTelemetry],
    pods: Iterable[BoundPod],
    problems: ItemProblems,
    *,
    starting_seconds: int,
) -> Seating:
    """Returns the seats, the pods on nodes with readings, and the waiting pods.

    The readings must be older than the list of pods. Reads the waiting pods from the API. Raises ApiError.
    """
    nodes = {reading.node for reading in readings}
    return Seating(
        seats=ledger.seats,
        pods=tuple(pod for pod in pods if pod.node in nodes),
        waiting=tuple(waiting_seats(api, ledger, problems)),
        starting_seconds=starting_seconds,
    )


def with_ended(seating: Seating, readings: Iterable[NodeTelemetry], before: Seating, now: int) -> Seating:
    """Adds each ended pod that still uses a device, according to the readings.

    For an ended pod, `going_since` is the time of the first sample that shows its use after its end. `before` is the
    result of the last sample.
    """
    there, since = {pod.uid for pod in seating.pods}, {pod.uid: pod.going_since or now for pod in before.pods}
    ended = {
        use.uid: BoundPod(uid=use.uid, namespace=use.namespace, node=reading.node, going_since=since.get(use.uid, now))
        for reading in readings
        for use in reading.uses
        if use.uid not in there
    }
    return replace(seating, pods=(*seating.pods, *ended.values()))


def is_incomplete(seating: Seating, before: Seating, pods: Iterable[BoundPod]) -> bool:
    """Returns True if a pod that may be running is missing in the watched `pods`.

    The missing pod uses a device and was never seen, or it waited for its seat at the last sample. `before` is the
    result of the last sample. `seating` includes pods that only the readings show.
    """
    watched = {pod.uid for pod in pods}
    seen = watched.union(pod.uid for pod in before.pods)
    waiting = {seat.uid for seat in seating.waiting}
    return any(pod.uid not in seen for pod in seating.pods) or any(
        seat.uid not in watched and seat.uid not in waiting for seat in before.waiting
    )


def bound_pod(item: Object, nodes: Collection[str], ledger: Ledger, problems: ItemProblems) -> BoundPod | None:
    """Returns the pod if it is on one of these nodes and has not ended, or None.

    A pod with an unreadable field counts as a running pod without a budget.
    """
    pod = Pod(item)

    def without_budget(why: str) -> BoundPod | None:
        here = pod.node if pod.node in nodes else None
        return BoundPod(uid=pod.uid, namespace=pod.namespace, node=here) if here else None

    return problems.judge("pod", str(pod), lambda: _bound_pod(pod, nodes, ledger, problems), without_budget)


def _bound_pod(pod: Pod, nodes: Collection[str], ledger: Ledger, problems: ItemProblems) -> BoundPod | None:
    if pod.node is None or pod.node not in nodes or pod.ended:
        return None
    began = None if pod.gone_by is None else pod.gone_by - timedelta(seconds=pod.going_seconds)
    return BoundPod(
        uid=pod.uid,
        namespace=pod.namespace,
        node=pod.node,
        declared_mib=pod.budget_mib(ledger, problems),
        devices=max(pod.request(ledger.names.gpu_count), 1),
        seat=pod.seat_label(ledger.names),
        uuids=pod.uuids(ledger.names),
        running_since=_seconds(pod.running_since),
        going_since=_seconds(began),
        grace_seconds=pod.going_seconds,
    )


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())
