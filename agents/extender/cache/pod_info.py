"""A pod's request, the devices that the pod holds, and the node that the pod is nominated to.

The Binding writes the pod's devices into annotations of the Pod (bind.py). This module reads these annotations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from agents.kube.client import Object
from agents.kube.pods import Pod
from agents.runtime.errors import AgentError
from tenancy.devices.allocate import MemoryRequest
from tenancy.names import Names
from tenancy.workload import Manifest


class MemoryRequestError(AgentError):
    """A pod's request is invalid, for example not a whole number of MiB. The pod's author reads the message."""


class PodState(StrEnum):
    """The states of a pod that holds devices, in their order."""

    RESERVED = "reserved"  # The filter chose devices, and the bind has not begun.
    ASSUMED = "assumed"  # The bind has begun.
    BOUND = "bound"
    TERMINATING = "terminating"


@dataclass(frozen=True, kw_only=True)
class PodInfo:
    """A pod that holds devices of a node. `namespace` and `name` are empty until the pod is bound.

    `indices` and `uuids` are None if the annotations do not name the devices. If both are set, `uuids` counts, because
    a device keeps its UUID when its index changes. `expires_at` is the end of a reservation, in monotonic seconds.
    `accepted_at` is the monotonic time when the API accepted the binding of an assumed pod. `due` is the time by which
    a terminating pod should have ended.
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
    expires_at: float | None = None
    accepted_at: float | None = None
    due: datetime | None = None

    @property
    def is_placed(self) -> bool:
        return self.indices is not None or self.uuids is not None

    @property
    def is_bound(self) -> bool:
        return self.state in (PodState.BOUND, PodState.TERMINATING)

    def is_going(self, server_now: datetime | None) -> bool:
        """Returns True if the pod terminates and its deadline `due` has not passed. After this deadline, the node has
        probably failed or a process hangs.
        """
        on_time = self.due is None or server_now is None or server_now < self.due
        return self.state is PodState.TERMINATING and on_time

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class PodWithoutGpu:
    """A bound pod without a GPU request. `cpu_milli` is the pod's CPU request in millicores."""

    uid: str
    node: str
    cpu_milli: int
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Nomination:
    """A pod for which victims were evicted from a node. Only this pod may use the memory that the victims free.

    `until` is the end of a nomination that the API shows, or 0. After a refusal or a removed nomination, the memory is
    kept until `retained_until`, which is otherwise 0. Both times are in monotonic seconds.
    """

    uid: str
    node: str
    request: MemoryRequest
    priority: int
    until: float = 0.0
    retained_until: float = 0.0

    @property
    def ends(self) -> float:
        return max(self.until, self.retained_until)

    def confirmed(self, known: "Nomination | None", until: float) -> "Nomination":
        """Returns this nomination with the end `until`. A known nomination to the same node keeps its end."""
        if known is None or known.node != self.node:
            return replace(self, until=until)
        return known if known.until else replace(known, until=until)


@dataclass(frozen=True, kw_only=True)
class PodRecord:
    held: PodInfo | PodWithoutGpu | None = None
    nomination: Nomination | None = None

    @property
    def parts(self) -> tuple[PodInfo | PodWithoutGpu | Nomination, ...]:
        return tuple(part for part in (self.held, self.nomination) if part is not None)

    @property
    def is_reserved(self) -> bool:
        return isinstance(self.held, PodInfo) and self.held.state is PodState.RESERVED

    @property
    def assumed(self) -> PodInfo | None:
        return self.held if isinstance(self.held, PodInfo) and self.held.state is PodState.ASSUMED else None

    def was_accepted_before(self, since: float) -> bool:
        """Returns True if the API accepted the pod's binding before `since`. A list that began at `since` then contains
        the pod, unless the pod was deleted.
        """
        at = self.assumed.accepted_at if self.assumed else None
        return at is not None and at < since

    def unlisted(self, since: float) -> "PodRecord":
        """Returns the parts of this record that a list from the time `since` cannot contain: a reservation, an assumed
        pod or retained memory.
        """
        is_ours = self.is_reserved or (self.assumed and not self.was_accepted_before(since))
        nomination = self.nomination
        is_retained = nomination is not None and nomination.retained_until
        return PodRecord(
            held=self.held if is_ours else None,
            nomination=replace(nomination, until=0.0) if nomination and is_retained else None,
        )


@dataclass(frozen=True)
class Entitlement:
    """The priority of a pod that waits for a node, and the pools where its request is within a seat."""

    priority: int = 0
    pools: frozenset[str] = frozenset()


NO_SEAT = Entitlement()


def memory_request_of(spec: Manifest, names: Names) -> MemoryRequest | None:
    """Returns the GPU memory that a pod with this spec requests, or None if it requests none. Raises
    MemoryRequestError.
    """
    try:
        return MemoryRequest.of_pod(spec, names)
    except ValueError as error:  # QuantityError and ShapeError are ValueErrors
        raise MemoryRequestError(f"{names.gpumem}: {error}") from None


def holder_of(item: Object, names: Names) -> PodInfo | PodWithoutGpu | Nomination | None:
    """Returns the GPU memory or the CPU that a bound Pod holds, or the nomination of an unbound Pod. Returns None for
    any other Pod. Raises PodError.
    """
    pod = Pod(item)
    if pod.ended:
        return None
    if not pod.node:
        return _nomination(pod, names)
    cpu_milli = pod.request("cpu", per_unit=1000)
    total, count = pod.request(names.gpumem), max(pod.request(names.gpu_count), 1)
    if total <= 0:
        return PodWithoutGpu(uid=pod.uid, node=pod.node, cpu_milli=cpu_milli, priority=pod.priority)
    # Somebody may have bound the pod by hand. A request that is not divisible by the number of devices is then rounded
    # up.
    request = MemoryRequest(-(-total // count), count, cpu_milli)
    return PodInfo(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        node=pod.node,
        request=request,
        state=PodState.TERMINATING if pod.terminating else PodState.BOUND,
        indices=_indices(pod.annotations, request, names),
        uuids=_uuids(pod.annotations, request, names),
        priority=pod.priority,
        due=pod.due,
    )


def _nomination(pod: Pod, names: Names) -> Nomination | None:
    node = pod.status.get("nominatedNodeName")
    if not node or pod.terminating:
        return None
    request = pod.memory_request(names)
    return None if request is None else Nomination(uid=pod.uid, node=node, request=request, priority=pod.priority)


def _indices(annotations: Mapping[str, str], request: MemoryRequest, names: Names) -> tuple[int, ...] | None:
    parts = annotations.get(names.device_index, "").split(",")
    if not all(part.isascii() and part.isdecimal() for part in parts):
        return None
    indices = tuple(map(int, parts))
    return indices if len(set(indices)) == len(indices) == request.count else None


def _uuids(annotations: Mapping[str, str], request: MemoryRequest, names: Names) -> tuple[str, ...] | None:
    parts = tuple(annotations.get(names.device_uuid, "").split(","))
    return parts if all(parts) and len(set(parts)) == len(parts) == request.count else None
