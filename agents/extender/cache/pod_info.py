"""A pod's state, its request and the devices that it holds.

The Binding writes the pod's devices into annotations of the Pod (bind.py). This module reads the device annotations of
Pods.
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from agents.kube.client import Object
from agents.kube.pods import Pod
from tenancy.devices.allocate import MemoryRequest
from tenancy.names import Names

Key = TypeVar("Key", int, str)  # the index or the UUID of a device


class PodState(StrEnum):
    """The states of a pod on a node, from the first state to the last. A pod has one state at a time."""

    # kube-scheduler has evicted other pods for this pod, whose devices are not known yet.
    NOMINATED = "nominated"
    RESERVED = "reserved"  # The filter has chosen devices, and the bind has not begun.
    ASSUMED = "assumed"  # The bind of the pod has begun.
    BOUND = "bound"
    TERMINATING = "terminating"


@dataclass(frozen=True, kw_only=True)
class PodInfo:
    """A pod that holds memory of a node. `name` is empty until the pod is bound.

    `indices` and `uuids` are None if the annotations do not name the devices. If `indices` and `uuids` are set, the
    cache uses `uuids`, because a device keeps its UUID when its index changes. `ends` is the monotonic time when a
    pod that is not bound loses its memory, or None while the API shows its nomination. `since` is the monotonic time of
    the nomination. `due` is the time by which a terminating pod should have ended. `seat` is
    the seat in the pod's label, or "". `why` is the reason for the choice of the devices, from the reservation until
    the bind.
    """

    uid: str
    namespace: str = ""
    name: str = ""
    node: str
    request: MemoryRequest
    state: PodState = PodState.BOUND
    indices: tuple[int, ...] | None = None
    uuids: tuple[str, ...] | None = None
    priority: int = 0
    ends: float | None = None
    since: float = 0.0
    due: datetime | None = None
    seat: str = ""
    why: str = field(default="", compare=False)

    @property
    def is_placed(self) -> bool:
        return self.indices is not None or self.uuids is not None

    @property
    def is_bound(self) -> bool:
        return self.state in (PodState.BOUND, PodState.TERMINATING)

    @property
    def is_shown(self) -> bool:
        """Returns True if the API shows what the cache knows of the pod."""
        return self.is_bound or (self.state is PodState.NOMINATED and self.ends is None)

    def is_going(self, server_now: datetime | None) -> bool:
        """Returns True if the pod is terminating and its deadline `due` has not passed. After the deadline of a
        terminating pod, its node has probably failed or a process hangs.
        """
        on_time = self.due is None or server_now is None or server_now < self.due
        return self.state is PodState.TERMINATING and on_time

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class PodWithoutGpu:
    """A bound pod that requests no GPU. `cpu_milli` is the pod's CPU request in millicores."""

    uid: str
    node: str
    cpu_milli: int
    priority: int = 0


Known = PodInfo | PodWithoutGpu


@dataclass(frozen=True)
class Entitlement:
    """The priority and the tenant of a waiting pod, and the pools in which its request is not larger than a seat.
    `seat` is the seat in the pod's label, or "".
    """

    priority: int = 0
    pools: frozenset[str] = frozenset()
    tenant: str = ""
    seat: str = ""


NO_SEAT = Entitlement()


def holder_of(item: Object, names: Names) -> Known | None:
    """Returns the GPU memory or the CPU that a bound Pod holds. For an unbound Pod, returns the nomination of the Pod.
    Returns None for all other Pods. Raises FieldError.
    """
    pod = Pod(item)
    if pod.ended:
        return None
    if not pod.node:
        return _nominated(pod, names)
    cpu_milli = pod.request("cpu", per_unit=1000)
    total, count = pod.request(names.gpumem), max(pod.request(names.gpu_count), 1)
    if total <= 0:
        return PodWithoutGpu(uid=pod.uid, node=pod.node, cpu_milli=cpu_milli, priority=pod.priority)
    # If another program has bound the pod, the number of devices may not divide the request. The request for each
    # device is therefore rounded up.
    request = MemoryRequest(-(-total // count), count, cpu_milli)
    return PodInfo(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        request=request,
        state=PodState.TERMINATING if pod.terminating else PodState.BOUND,
        indices=_distinct(pod.indices(names), request),
        uuids=_distinct(pod.uuids(names), request),
        priority=pod.priority,
        due=pod.due,
        seat=pod.seat_label(names),
    )


def _nominated(pod: Pod, names: Names) -> PodInfo | None:
    node = pod.nominated_node
    request = pod.memory_request(names) if node and not pod.terminating else None
    if node is None or request is None:
        return None
    return PodInfo(uid=pod.uid, node=node, request=request, state=PodState.NOMINATED, priority=pod.priority)


def _distinct(devices: tuple[Key, ...], request: MemoryRequest) -> tuple[Key, ...] | None:
    return devices if len(set(devices)) == len(devices) == request.count else None
