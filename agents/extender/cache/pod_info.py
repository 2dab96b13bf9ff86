"""Records for each pod what it requests, which devices it holds on its node, and where it is nominated.

The Binding writes a pod's devices into annotations on the Pod (bind.py). This module reads the annotations again.
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
    """A pod requests an amount that no scheduler can give; the message is for the pod's owner."""


class PodState(StrEnum):
    """The states of a pod that holds devices, in the order in which a pod passes through them."""

    RESERVED = "reserved"  # between filter and bind
    ASSUMED = "assumed"  # the bind has begun
    BOUND = "bound"
    TERMINATING = "terminating"


@dataclass(frozen=True, kw_only=True)
class PodInfo:
    """A pod that holds devices of a node. The pod's namespace and name are known after the bind.

    `indices` and `uuids` are None if the annotations do not name the devices. UUIDs count before indices, because a
    UUID stays when a device gets another index. `expires_at` is the end of a reservation. `accepted_at` is the time at
    which the API accepted the binding of an assumed pod. Both are monotonic seconds. `due` is the time by which a
    terminating pod should have ended.
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
        """Returns True if the pod terminates and is not late. Later, its node is gone or its process hangs."""
        on_time = self.due is None or server_now is None or server_now < self.due
        return self.state is PodState.TERMINATING and on_time

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Bystander:
    """A bound pod without GPU memory, which takes CPU (in thousandths) from its node."""

    uid: str
    node: str
    cpu_milli: int
    priority: int = 0


@dataclass(frozen=True, kw_only=True)
class Nomination:
    """A pod for which others were evicted from a node. Only this pod may use the memory that they free.

    `until` is the end of a nomination that the API shows, else 0. The memory stays reserved after a
    refusal there, or after a lost nomination: `retained_until` is the end of this, else 0. Both are monotonic seconds.
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
        """Returns the nomination that the API shows. Does not prolong a known nomination to the same node."""
        if known is None or known.node != self.node:
            return replace(self, until=until)
        return known if known.until else replace(known, until=until)


@dataclass(frozen=True, kw_only=True)
class PodRecord:
    held: PodInfo | Bystander | None = None
    nomination: Nomination | None = None

    @property
    def parts(self) -> tuple[PodInfo | Bystander | Nomination, ...]:
        return tuple(part for part in (self.held, self.nomination) if part is not None)

    @property
    def is_reserved(self) -> bool:
        return isinstance(self.held, PodInfo) and self.held.state is PodState.RESERVED

    @property
    def assumed(self) -> PodInfo | None:
        return self.held if isinstance(self.held, PodInfo) and self.held.state is PodState.ASSUMED else None

    def was_accepted_before(self, since: float) -> bool:
        """Returns True if the pod was bound before `since`, so that a list that began then shows the pod."""
        at = self.assumed.accepted_at if self.assumed else None
        return at is not None and at < since

    def unlisted(self, since: float) -> "PodRecord":
        """Returns the part of the nomination that a list of the API cannot show, if the list began at `since`."""
        is_ours = self.is_reserved or (self.assumed and not self.was_accepted_before(since))
        nomination = self.nomination
        is_retained = nomination is not None and nomination.retained_until
        return PodRecord(
            held=self.held if is_ours else None,
            nomination=replace(nomination, until=0.0) if nomination and is_retained else None,
        )


@dataclass(frozen=True)
class Entitlement:
    """The priority of a pod that is to be placed, and the pools in which it keeps within a seat."""

    priority: int = 0
    pools: frozenset[str] = frozenset()


NO_SEAT = Entitlement()


def memory_request_of(spec: Manifest, names: Names) -> MemoryRequest | None:
    """Returns the devices that a pod with that spec requests; None without GPU memory. Raises MemoryRequestError."""
    try:
        return MemoryRequest.of_pod(spec, names)
    except ValueError as error:  # also QuantityError and ShapeError
        raise MemoryRequestError(f"{names.gpumem}: {error}") from None


def holder(item: Object, names: Names) -> PodInfo | Bystander | Nomination | None:
    """Returns the devices that a Pod holds or is nominated for, or None without either. Raises PodError."""
    pod = Pod(item)
    if pod.ended:
        return None
    if not pod.node:
        return _nomination(pod, names)
    cpu_milli = pod.request("cpu", per_unit=1000)
    total, count = pod.request(names.gpumem), max(pod.request(names.gpu_count), 1)
    if total <= 0:
        return Bystander(uid=pod.uid, node=pod.node, cpu_milli=cpu_milli, priority=pod.priority)
    # A request that cannot be split equally is rounded up: somebody bound the pod by hand.
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
