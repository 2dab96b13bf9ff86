"""Lists pods and decodes Pod objects for all agents."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from agents.kube.client import Api, Object
from agents.kube.events import Reference
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import WaitingSeat, seats_for
from tenancy.ledger import Ledger, Seat
from tenancy.names import MIRROR_ANNOTATION, REFUSED_AS_MEASURED, SCHEDULER_NAME, Names
from tenancy.reach import MOST_GRACE_SECONDS
from tenancy.workload import map_at, maps_at, pod_request

PODS = "/api/v1/pods"
# Field selectors for pods. UNSCHEDULED selects unbound pods of our scheduler. LIVE selects pods that have not ended.
# BOUND selects bound pods that have not ended.
UNSCHEDULED = {"fieldSelector": f"spec.nodeName=,spec.schedulerName={SCHEDULER_NAME}"}
LIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
BOUND = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
_ENDED = ("Succeeded", "Failed")
_LATE_SECONDS = 60  # A terminating pod may take this much longer than its grace period.
_DEFAULT_GRACE_SECONDS = 30  # Source: pkg/apis/core/v1/defaults.go.
# The longest grace period for which deletionTimestamp is correct. A tenant may write any grace period. With a grace
# period of more than 292 years, the API server's sum overflows 63 bits of nanoseconds.
_MOST_GRACE_SECONDS = 2**63 // 10**9
# On the mirror of a static pod, this annotation has the UID in the pod's control group (pkg/kubelet/types).
_STATIC_POD_UID = "kubernetes.io/config.hash"


class PodError(AgentError):
    """A field of the pod is invalid. The message names this field."""


def bound_pods_selector(node: str) -> str:
    """Returns the field selector of the pods that are bound to the node and have not ended."""
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, kw_only=True)
class Controller:
    """The owner that controls a pod and replaces it."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class Pod:
    """A Pod object of the API. A null field counts as absent."""

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
        return map_at(self.item, "status")

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

        For a static pod, this UID differs from the UID of its mirror in the API.
        """
        return self.annotations.get(_STATIC_POD_UID, self.uid) if self.static else self.uid

    @property
    def static(self) -> bool:
        """Returns True for the mirror of a static pod, which the node's kubelet creates
        (pkg/kubelet/pod/mirror_client.go).

        A tenant cannot create a pod with both the owner and the annotation: an admission policy allows the annotation
        only to nodes (components/admission/mirror.py). Nobody can add the annotation to an existing pod, and the
        kubelet does not run a pod with this annotation.
        """
        owner = self.controller
        owned = owner is not None and owner.kind == "Node" and owner.name == self.node
        return owned and MIRROR_ANNOTATION in self.annotations

    @property
    def annotations(self) -> Mapping[str, str]:
        return map_at(self.metadata, "annotations")

    @property
    def labels(self) -> Mapping[str, str]:
        return map_at(self.metadata, "labels")

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
        """Returns True if all containers of the pod have ended for good. Such a pod holds no resources of its node."""
        return self.status.get("phase") in _ENDED

    @property
    def terminating(self) -> bool:
        """Returns True if the pod's deletion has begun. The pod still holds its devices until it has ended."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def gone_by(self) -> datetime | None:
        """Returns the end of a terminating pod's grace period, or None for any other pod.

        If deletionTimestamp has overflowed, the grace period counts from the pod's creation.
        """
        moment = self.metadata.get("deletionTimestamp")
        if not moment:
            return None
        if self.going_seconds < _MOST_GRACE_SECONDS:
            return datetime.fromisoformat(moment)
        return self.created + timedelta(seconds=_MOST_GRACE_SECONDS)

    @property
    def due(self) -> datetime | None:
        """Returns the time by which a terminating pod should have freed its devices, or None for any other pod.

        A grace period counts for at most MOST_GRACE_SECONDS, the limit for GPU pods without a seat.
        """
        if self.gone_by is None:
            return None
        began = self.gone_by - timedelta(seconds=self.going_seconds)
        return began + timedelta(seconds=min(self.going_seconds, MOST_GRACE_SECONDS) + _LATE_SECONDS)

    @property
    def going_seconds(self) -> int:
        """Returns the grace period of the pod's deletion in seconds, or 0 if the pod does not terminate."""
        return _seconds(self.metadata.get("deletionGracePeriodSeconds"), 0)

    @property
    def grace_seconds(self) -> int:
        """Returns the pod's default grace period in seconds."""
        return _seconds(self.spec.get("terminationGracePeriodSeconds"), _DEFAULT_GRACE_SECONDS)

    @property
    def created(self) -> datetime:
        return datetime.fromisoformat(self.metadata["creationTimestamp"])

    @property
    def started(self) -> datetime:
        """Returns the time when the kubelet accepted the pod, or the pod's creation before that."""
        started = self.status.get("startTime")
        return datetime.fromisoformat(started) if started else self.created

    @property
    def waiting(self) -> bool:
        """Returns True if the pod waits for our scheduler and lacks only free memory."""
        ours = self.spec.get("schedulerName") == SCHEDULER_NAME
        held = self.node or self.terminating or self.ended or self.spec.get("schedulingGates") or self._lacks_more
        return ours and not held

    @property
    def _lacks_more(self) -> bool:
        """Returns True if our scheduler last refused the pod for another reason than memory in use."""
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
        """Returns the names of the pod's containers by the id in `containerd://<id>`. Includes ended containers."""
        return {_id(status): status["name"] for status in self._statuses}

    @property
    def running_containers(self) -> frozenset[str]:
        return frozenset(_id(status) for status in self._statuses if map_at(status, "state").get("running") is not None)

    @property
    def _statuses(self) -> Sequence[Object]:
        lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        return [status for name in lists for status in maps_at(self.status, name) if status.get("containerID")]

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)

    def request(self, resource: str, *, per_unit: int = 1) -> int:
        """Returns the pod's request of a resource, computed by tenancy.workload.pod_request. Raises PodError."""
        with self.reading(resource):
            return pod_request(self.spec, resource, per_unit=per_unit)

    def declared_mib(self, ledger: Ledger) -> int:
        """Returns the MiB that the pod requests as gpumem or by ResourceClaims for seats. Raises PodError."""
        with self.reading(ledger.names.gpumem):
            return ledger.declared_mib(self.namespace, self.spec)

    def budget_mib(self, ledger: Ledger, log: Log) -> int:
        """Returns `declared_mib`. If the request is invalid, logs the error and returns 0."""
        try:
            return self.declared_mib(ledger)
        except PodError as error:
            log.warning(f"counts as a pod without a budget: {error}")
            return 0

    def uuids(self, ledger: Ledger) -> tuple[str, ...]:
        """Returns the UUIDs of the pod's devices, or () if they are not known."""
        return tuple(filter(None, self.annotations.get(ledger.names.device_uuid, "").split(",")))

    def memory_request(self, names: Names) -> MemoryRequest | None:
        """Returns the pod's request of GPU memory, or None if the pod requests none. Raises PodError."""
        with self.reading(names.gpumem):
            return MemoryRequest.of_pod(self.spec, names)

    @contextmanager
    def reading(self, field: str) -> Iterator[None]:
        """Raises PodError if the block raises a ValueError, for an invalid quantity or a field of the wrong type."""
        try:
            yield
        except ValueError as error:  # QuantityError and ShapeError are ValueErrors
            raise PodError(f"pod {self}: {field}: {error}") from None


def _seconds(given: int | None, otherwise: int) -> int:
    """Returns the grace period that a tenant wrote, at most _MOST_GRACE_SECONDS."""
    return otherwise if given is None else min(max(int(given), 0), _MOST_GRACE_SECONDS)


def _id(status: Object) -> str:
    return str(status["containerID"]).partition("://")[2]


def waiting_seats(api: Api, ledger: Ledger, log: Log) -> Iterator[WaitingSeat]:
    """Yields the waiting seats. Skips unreadable pods. Raises ApiError."""
    for item in api.items(PODS, **UNSCHEDULED):
        try:
            seat = waiting_seat(item, ledger)
        except PodError as error:
            log.warning(f"it does not count as a waiting seat: {error}")
            continue
        if seat is not None:
            yield seat


def waiting_seat(item: Object, ledger: Ledger) -> WaitingSeat | None:
    """Returns the seat of a waiting Pod. Returns None for any other Pod. Raises PodError."""
    pod = Pod(item)
    request = pod.memory_request(ledger.names) if pod.waiting else None
    if request is None:
        return None
    wanted = map_at(pod.spec, "nodeSelector")
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
    """Returns seats for the pod of a queue tenant.

    The ledger promises the queue's quota, and Kueue has reserved a part of this quota for the pod.
    """
    if pod.namespace not in ledger.queue_tenants:
        return ()
    pools = sorted({quota.pool for quota in ledger.quotas if quota.resource == ledger.names.gpumem})
    return tuple(Seat(name=pod.name, tenant=pod.namespace, pool=pool, gpumem_mib=request.total_mib) for pool in pools)
