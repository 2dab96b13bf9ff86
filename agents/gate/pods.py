"""Reads the pods on the pools' nodes, and the waiting pods of seats."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from agents.kube.client import Object
from agents.kube.pods import Pod
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


def ended_pods(
    pods: Iterable[BoundPod], readings: Iterable[NodeTelemetry], before: Iterable[BoundPod], now: int
) -> Iterable[BoundPod]:
    """Returns the pods that still use a device, according to the readings, but are not among the node's `pods`.

    `going_since` is the time of the first sample that shows the use of a pod after its end. `before` has the pods of
    the last sample.
    """
    there, since = {pod.uid for pod in pods}, {pod.uid: pod.going_since or now for pod in before}
    return {
        use.uid: BoundPod(uid=use.uid, namespace=use.namespace, node=reading.node, going_since=since.get(use.uid, now))
        for reading in readings
        for use in reading.uses
        if use.uid not in there
    }.values()


def bound_pod(item: Object, ledger: Ledger, problems: ItemProblems) -> BoundPod | None:
    """Returns the pod if it is on a node and has not ended, or None.

    A pod with an unreadable field counts as a running pod without a budget.
    """
    pod = Pod(item)
    if pod.node is None or pod.ended:
        return None
    without_budget = BoundPod(uid=pod.uid, namespace=pod.namespace, node=pod.node)
    return problems.judge("pod", str(pod), lambda: _bound_pod(pod, ledger, problems), lambda why: without_budget)


def _bound_pod(pod: Pod, ledger: Ledger, problems: ItemProblems) -> BoundPod:
    began = None if pod.gone_by is None else pod.gone_by - timedelta(seconds=pod.going_seconds)
    return BoundPod(
        uid=pod.uid,
        namespace=pod.namespace,
        node=pod.node or "",
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
