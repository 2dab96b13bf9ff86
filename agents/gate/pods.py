"""Pods as the gate sees them: who is on the pools' nodes, who of them is going, and which seats wait to be placed."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from agents.kube.client import Api
from agents.kube.pods import PODS, UNSCHEDULED, Pod, PodError, bound_to, waiting_seat
from agents.runtime.log import Log
from agents.telemetry.client import NodeTelemetry
from tenancy.devices.waiting import WaitingSeat
from tenancy.ledger import Ledger, Seat
from tenancy.workload import at, maps_at

STARTING_SECONDS = 300


@dataclass(frozen=True, kw_only=True)
class BoundPod:
    """A pod on a node, by the UID that the exporter knows it by. `uuids` are the devices that placement gave it.

    `running_since` is when the last of its containers started, None while one has yet to; `going_since` when its
    deletion began, with `grace_seconds` to end. Both are seconds since 1970.
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
    """The ledger's seats, the pods on the pools' nodes, and the seats that wait. A pod that has ended and is still in a
    reading is going since that was first seen. `starting_seconds` after its start a pod may still load what it will
    use."""

    seats: tuple[Seat, ...] = ()
    pods: tuple[BoundPod, ...] = ()
    waiting: tuple[WaitingSeat, ...] = ()
    starting_seconds: int = STARTING_SECONDS


def read_seating(api: Api, ledger: Ledger, readings: Sequence[NodeTelemetry], log: Log) -> Seating:
    """As of now, after the readings. Raises ApiError."""
    nodes = dict.fromkeys(reading.node for reading in readings)
    return Seating(
        seats=ledger.seats,
        pods=tuple(_bound(Pod(item), ledger, log) for item in bound_to(api, nodes)),
        waiting=tuple(_waiting(api, ledger, log)),
    )


def with_ended(seating: Seating, readings: Iterable[NodeTelemetry], before: Seating, now: int) -> Seating:
    """With the pods that use a device and are not bound to its node any more; `before` is the last sample's."""
    there, since = {pod.uid for pod in seating.pods}, {pod.uid: pod.going_since for pod in before.pods}
    ended = {
        use.uid: BoundPod(
            uid=use.uid, namespace=use.namespace, node=reading.node, going_since=since.get(use.uid) or now
        )
        for reading in readings
        for use in reading.uses
        if use.uid not in there
    }
    return replace(seating, pods=(*seating.pods, *ended.values()))


def _waiting(api: Api, ledger: Ledger, log: Log) -> Iterator[WaitingSeat]:
    for item in api.items(PODS, **UNSCHEDULED):
        try:
            seat = waiting_seat(item, ledger)
        except PodError as error:
            log.warning(f"it is no waiting seat: {error}")
            continue
        if seat is not None:
            yield seat


def _bound(pod: Pod, ledger: Ledger, log: Log) -> BoundPod:
    try:
        declared_mib = pod.declared_mib(ledger)
    except PodError as error:
        log.warning(f"it counts as without a budget: {error}")  # so that its seat counts as absent, and is kept free
        declared_mib = 0
    grace: int = pod.metadata.get("deletionGracePeriodSeconds") or 0
    return BoundPod(
        uid=pod.uid,
        namespace=pod.namespace,
        node=pod.node or "",
        declared_mib=declared_mib,
        uuids=tuple(uuid for uuid in pod.annotations.get(ledger.names.device_uuid, "").split(",") if uuid),
        running_since=_running_since(pod),
        going_since=None if pod.gone_by is None else int((pod.gone_by - timedelta(seconds=grace)).timestamp()),
        grace_seconds=grace,
    )


def _running_since(pod: Pod) -> int | None:
    states = [at(container, "state") for container in maps_at(pod.status, "containerStatuses")]
    going_on = [at(state, "running") for state in states if state.get("terminated") is None]
    if not any(states) and pod.running and pod.status.get("startTime"):  # of its containers nothing is told
        return _seconds(pod.status["startTime"])
    if not going_on or not all(going_on):
        return None
    return max(_seconds(state["startedAt"]) for state in going_on)


def _seconds(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp())
