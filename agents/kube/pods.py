"""Lists pods and decodes Pod objects, for all agents. Each agent derives its own view."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from agents.kube.client import PAGE, Api, Object
from agents.kube.events import Reference
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import WaitingSeat, seats_for
from tenancy.ledger import Ledger, Seat
from tenancy.names import MIRROR_ANNOTATION, REFUSED_AS_MEASURED, SCHEDULER_NAME, Names
from tenancy.reach import MOST_GRACE_SECONDS
from tenancy.workload import at, maps_at, pod_request

PODS = "/api/v1/pods"
# The field selectors of pods: pods of our scheduler without a node; pods that have not ended; bound pods that have not
# ended.
UNSCHEDULED = {"fieldSelector": f"spec.nodeName=,spec.schedulerName={SCHEDULER_NAME}"}
LIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
BOUND = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
_ENDED = ("Succeeded", "Failed")
_LATE_SECONDS = 60  # after its grace period a pod counts as going for so long
_DEFAULT_GRACE_SECONDS = 30  # pkg/apis/core/v1/defaults.go
# A tenant may write any grace period. The API server adds the period to a time as nanoseconds of 63 bits. Beyond 292
# years the sum, deletionTimestamp, overflows to some other time.
_MOST_GRACE_SECONDS = 2**63 // 10**9
# With fewer nodes, the pods are always listed node by node.
_MANY_NODES = 10
# A static pod's mirror has this annotation: the UID of the pod's control group (pkg/kubelet/types).
_STATIC_POD_UID = "kubernetes.io/config.hash"


class PodError(AgentError):
    """A field of the pod cannot be read; the message names it."""


def on_node(node: str) -> str:
    """Returns the field selector of the pods that are bound to the node and have not ended."""
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"


def bound_to(api: Api, nodes: Collection[str]) -> Iterator[Object]:
    """Yields the pods that are bound to these nodes and have not ended. Raises ApiError.

    Lists node by node, or lists all pods if that takes at most half as many requests.
    """
    if len(nodes) >= _MANY_NODES and 2 * _pages(api) <= len(nodes):
        wanted = frozenset(nodes)
        yield from (item for item in api.items(PODS, **BOUND) if Pod(item).node in wanted)
    else:
        for node in nodes:
            yield from api.items(PODS, fieldSelector=on_node(node))


def _pages(api: Api) -> float:
    """Returns the approximate number of requests for a list of all pods; infinite if the server does not send
    a count.
    """
    metadata = api.get(f"{PODS}?limit=1")["metadata"]
    left: float | None = metadata.get("remainingItemCount")
    if left is None:
        left = math.inf if metadata.get("continue") else 0
    return left / PAGE


@dataclass(frozen=True, kw_only=True)
class Controller:
    """The owner that controls a pod and replaces it."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class Pod:
    """A Pod object of the API. A null field counts as absent. Requests are read on demand."""

    item: Object

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def metadata(self) -> Object:
        found: Object = self.item["metadata"]
        return found

    @property
    def spec(self) -> Object:
        found: Object = self.item["spec"]
        return found

    @property
    def status(self) -> Object:
        return at(self.item, "status")

    @property
    def namespace(self) -> str:
        return str(self.metadata["namespace"])

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def uid(self) -> str:
        return str(self.metadata["uid"])

    @property
    def group_uid(self) -> str:
        """Returns the UID in the name of the pod's control group.

        The UID of a static pod differs from that of its mirror.
        """
        return self.annotations.get(_STATIC_POD_UID, self.uid) if self.static else self.uid

    @property
    def static(self) -> bool:
        """Returns True for the mirror of a static pod, made by its node's kubelet (pkg/kubelet/pod/mirror_client.go).

        A tenant may write the owner or the annotation, but not both. The annotation cannot be added later, and
        no kubelet runs a pod with it. Admission allows the annotation only to nodes (components/admission/mirror.py).
        """
        owner = self.controller
        owned = owner is not None and owner.kind == "Node" and owner.name == self.node
        return owned and MIRROR_ANNOTATION in self.annotations

    @property
    def annotations(self) -> Mapping[str, str]:
        return at(self.metadata, "annotations")

    @property
    def labels(self) -> Mapping[str, str]:
        return at(self.metadata, "labels")

    @property
    def node(self) -> str | None:
        """Returns the node's name, or None while the pod is not bound."""
        return self.spec.get("nodeName") or None

    @property
    def priority(self) -> int:
        return self.spec.get("priority") or 0

    @property
    def priority_class(self) -> str | None:
        return self.spec.get("priorityClassName")

    @property
    def running(self) -> bool:
        return self.status.get("phase") == "Running"

    @property
    def ended(self) -> bool:
        """Returns True if the pod's containers have stopped for good. Such a pod holds nothing of its node."""
        return self.status.get("phase") in _ENDED

    @property
    def terminating(self) -> bool:
        """Returns True if the pod's deletion began. The pod holds its devices until it has ended."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def gone_by(self) -> datetime | None:
        """Returns the end of a terminating pod's grace period, else None.

        A grace period that the API server cannot add up counts from the pod's creation.
        """
        moment = self.metadata.get("deletionTimestamp")
        if not moment:
            return None
        if self.going_seconds < _MOST_GRACE_SECONDS:
            return datetime.fromisoformat(moment)
        return self.created + timedelta(seconds=_MOST_GRACE_SECONDS)

    @property
    def due(self) -> datetime | None:
        """Returns the time by which the devices of a terminating pod should be free, else None.

        A grace period counts at most as long as the longest of a pod with a GPU and without a seat.
        """
        if self.gone_by is None:
            return None
        began = self.gone_by - timedelta(seconds=self.going_seconds)
        return began + timedelta(seconds=min(self.going_seconds, MOST_GRACE_SECONDS) + _LATE_SECONDS)

    @property
    def going_seconds(self) -> int:
        """Returns the grace period of the pod's deletion; 0 if the pod does not terminate."""
        return _seconds(self.metadata.get("deletionGracePeriodSeconds"), 0)

    @property
    def grace_seconds(self) -> int:
        """Returns the grace period that a deletion uses by default."""
        return _seconds(self.spec.get("terminationGracePeriodSeconds"), _DEFAULT_GRACE_SECONDS)

    @property
    def created(self) -> datetime:
        return datetime.fromisoformat(self.metadata["creationTimestamp"])

    @property
    def started(self) -> datetime:
        """Returns the time at which the node started the pod; before that, the pod's creation."""
        started = self.status.get("startTime")
        return datetime.fromisoformat(started) if started else self.created

    @property
    def waiting(self) -> bool:
        """Returns True if our scheduler still has to place the pod, and only memory keeps the pod waiting."""
        ours = self.spec.get("schedulerName") == SCHEDULER_NAME
        held = self.node or self.terminating or self.ended or self.spec.get("schedulingGates") or self._lacks_more
        return ours and not held

    @property
    def _lacks_more(self) -> bool:
        """Returns True if at our scheduler's last try, free memory alone would not have made the pod schedulable."""
        last: Object = next((c for c in maps_at(self.status, "conditions") if c.get("type") == "PodScheduled"), {})
        return last.get("reason") == "Unschedulable" and REFUSED_AS_MEASURED not in (last.get("message") or "")

    @property
    def controller(self) -> Controller | None:
        for owner in maps_at(self.metadata, "ownerReferences"):
            if owner.get("controller"):
                return Controller(kind=owner["kind"], name=owner["name"], uid=owner["uid"])
        return None

    @property
    def containers(self) -> Mapping[str, str]:
        """Returns the names of the pod's containers by the runtime's id (of `containerd://<id>`), including
        ended containers.
        """
        return {_id(status): status["name"] for status in self._statuses}

    @property
    def running_containers(self) -> frozenset[str]:
        return frozenset(_id(status) for status in self._statuses if at(status, "state").get("running") is not None)

    @property
    def _statuses(self) -> Sequence[Object]:
        lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        return [status for name in lists for status in maps_at(self.status, name) if status.get("containerID")]

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)

    def request(self, resource: str, *, per_unit: int = 1) -> int:
        """Returns the pod's request of a resource, as tenancy.workload.pod_request counts it. Raises PodError."""
        with self.reading(resource):
            return pod_request(self.spec, resource, per_unit=per_unit)

    def declared_mib(self, ledger: Ledger) -> int:
        """Returns the MiB that the pod declares, by its request or by ResourceClaims on seats. Raises PodError."""
        with self.reading(ledger.names.gpumem):
            return ledger.declared_mib(self.namespace, self.spec)

    def budget_mib(self, ledger: Ledger, log: Log) -> int:
        """Returns `declared_mib`, or 0 with a log line if the request cannot be read."""
        try:
            return self.declared_mib(ledger)
        except PodError as error:
            log.warning(f"counts as a pod without a budget: {error}")
            return 0

    def uuids(self, ledger: Ledger) -> tuple[str, ...]:
        """Returns the devices that the pod was placed on, if they are known."""
        return tuple(filter(None, self.annotations.get(ledger.names.device_uuid, "").split(",")))

    def memory_request(self, names: Names) -> MemoryRequest | None:
        """Returns the devices that the pod requests; None if the pod requests no GPU memory. Raises PodError."""
        with self.reading(names.gpumem):
            return MemoryRequest.of_pod(self.spec, names)

    @contextmanager
    def reading(self, field: str) -> Iterator[None]:
        """Raises PodError if a quantity or a shape cannot be read within the block."""
        try:
            yield
        except ValueError as error:  # also QuantityError and ShapeError
            raise PodError(f"pod {self}: {field}: {error}") from None


def _seconds(given: int | None, otherwise: int) -> int:
    """Returns a number of seconds that a tenant wrote, limited to what the API server can add up."""
    return otherwise if given is None else min(max(int(given), 0), _MOST_GRACE_SECONDS)


def _id(status: Object) -> str:
    return str(status["containerID"]).partition("://")[2]


def waiting_seats(api: Api, ledger: Ledger, log: Log) -> Iterator[WaitingSeat]:
    """Yields the seats that wait, without pods that cannot be read. Raises ApiError."""
    for item in api.items(PODS, **UNSCHEDULED):
        try:
            seat = waiting_seat(item, ledger)
        except PodError as error:
            log.warning(f"it does not count as a waiting seat: {error}")
            continue
        if seat is not None:
            yield seat


def waiting_seat(item: Object, ledger: Ledger) -> WaitingSeat | None:
    """Returns the seat of a waiting Pod. None if the pod is placed, or lacks a seat of its size. Raises PodError."""
    pod = Pod(item)
    request = pod.memory_request(ledger.names) if pod.waiting else None
    if request is None:
        return None
    wanted = at(pod.spec, "nodeSelector")
    queued = replace(ledger, seats=_quota_seats(pod, request, ledger))
    seats = seats_for(ledger, pod.namespace, request, wanted) or seats_for(queued, pod.namespace, request, wanted)
    if not seats:
        return None
    return WaitingSeat(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        request=request,
        seats=seats,
        priority=pod.priority,
        created=pod.created,
    )


def _quota_seats(pod: Pod, request: MemoryRequest, ledger: Ledger) -> tuple[Seat, ...]:
    """Returns the seats of a queue's pod. Kueue reserved quota for the pod, which the ledger promises like a seat."""
    if pod.namespace not in ledger.queue_tenants:
        return ()
    pools = sorted({quota.pool for quota in ledger.quotas if quota.resource == ledger.names.gpumem})
    return tuple(Seat(name=pod.name, tenant=pod.namespace, pool=pool, gpumem_mib=request.total_mib) for pool in pools)
