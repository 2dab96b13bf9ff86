"""Reads the pods on the pools' nodes, and the waiting pods of seats."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from agents.kube.client import Api
from agents.kube.pods import Pod, waiting_seats
from agents.runtime.log import Log
from agents.telemetry.client import NodeTelemetry
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Ledger, Seat
from tenancy.workload import map_at, maps_at


@dataclass(frozen=True, kw_only=True)
class BoundPod:
    """A pod on a node. `uuids` are the UUIDs of its devices. Times are seconds since 1970.

    `running_since` is the time when its last container started, or None until all containers have started.
    `going_since` is the time when the pod's deletion began, and `grace_seconds` is its grace period.
    """

    uid: str
    namespace: str
    node: str
    declared_mib: int = 0
    uuids: tuple[str, ...] = ()
    running_since: int | None = None
    going_since: int | None = None
    grace_seconds: int = 30


@dataclass(frozen=True, kw_only=True)
class Seating:
    """The ledger's seats, the pods on the pools' nodes, and the waiting pods of seats.

    A pod may still load for `starting_seconds` after its start.
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
    log: Log,
    *,
    starting_seconds: int,
) -> Seating:
    """Returns the seats, those of the pods that are on the nodes of the readings, and the waiting pods.

    The readings must be older than the pods. Reads the waiting pods from the API. Raises ApiError.
    """
    nodes = {reading.node for reading in readings}
    return Seating(
        seats=ledger.seats,
        pods=tuple(pod for pod in pods if pod.node in nodes),
        waiting=tuple(waiting_seats(api, ledger, log)),
        starting_seconds=starting_seconds,
    )


def with_ended(seating: Seating, readings: Iterable[NodeTelemetry], before: Seating, now: int) -> Seating:
    """Adds the pods that have ended but still use a device in the readings.

    Such a pod counts as ending since the first sample with such a reading. `before` is the result of the last sample.
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
    """Returns True if a pod is missing in `pods`, the pods of the watches, and may run.

    This is a pod that used a device but was never seen, or that waited for its seat at the last sample. `before` is the
    result of the last sample, and `seating` includes the pods that only the readings show.
    """
    watched = {pod.uid for pod in pods}
    seen = watched.union(pod.uid for pod in before.pods)
    waiting = {seat.uid for seat in seating.waiting}
    return any(pod.uid not in seen for pod in seating.pods) or any(
        seat.uid not in watched and seat.uid not in waiting for seat in before.waiting
    )


def bound_pod(pod: Pod, ledger: Ledger, log: Log) -> BoundPod:
    return BoundPod(
        uid=pod.uid,
        namespace=pod.namespace,
        node=pod.node or "",
        declared_mib=pod.budget_mib(ledger, log),
        uuids=pod.uuids(ledger),
        running_since=_running_since(pod),
        going_since=None
        if pod.gone_by is None
        else int((pod.gone_by - timedelta(seconds=pod.going_seconds)).timestamp()),
        grace_seconds=pod.going_seconds,
    )


def _running_since(pod: Pod) -> int | None:
    states = [map_at(container, "state") for container in maps_at(pod.status, "containerStatuses")]
    going_on = [map_at(state, "running") for state in states if state.get("terminated") is None]
    if not any(states) and pod.running and pod.status.get("startTime"):  # a pod with a status that lists no containers
        return _seconds(pod.status["startTime"])
    if not going_on or not all(going_on):
        return None
    return max(_seconds(state["startedAt"]) for state in going_on)


def _seconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp())
