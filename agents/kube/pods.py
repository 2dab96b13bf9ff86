"""Lists pods and decodes Pod objects for all agents."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from agents.kube.client import Api, Object
from agents.kube.events import Reference
from agents.kube.fields import LARGEST_AMOUNT, FieldError, named, text_at, time_at, uid_of
from agents.kube.paths import ApiPath, api_path
from agents.runtime.items import ItemProblems, Unjudged, judged, shortened
from tenancy.caps import Cap, caps_of
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import WaitingSeat, seats_for
from tenancy.ledger import Ledger, Seat
from tenancy.names import GPU_POD, GPU_POD_VALUE, MIRROR_ANNOTATION, REFUSED_AS_MEASURED, SCHEDULER_NAME, Names
from tenancy.reach import MOST_GRACE_SECONDS
from tenancy.workload import map_at, maps_at, memory_limit_mib, pod_request

PODS = api_path("v1", "pods")
# Field selectors for pods. UNSCHEDULED selects unbound pods of our scheduler. LIVE selects pods that have not ended.
# BOUND selects bound pods that have not ended, and GPU_PODS those of them that reach a GPU by the label of admission.
UNSCHEDULED = {"fieldSelector": f"spec.nodeName=,spec.schedulerName={SCHEDULER_NAME}"}
LIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
BOUND = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
GPU_PODS = {**BOUND, "labelSelector": f"{GPU_POD}={GPU_POD_VALUE}"}
_ENDED = ("Succeeded", "Failed")
_LATE_SECONDS = 60  # A terminating pod may need this many seconds beyond its grace period.
# The longest kind or name of an owner that the agents accept. The API server does not limit the kind or the name of an
# owner.
_LONGEST_OWNER = 253
_INDEX_DIGITS = 4  # A device's index has at most this many digits.
_DEFAULT_GRACE_SECONDS = 30  # Source: pkg/apis/core/v1/defaults.go.
# The longest grace period for which deletionTimestamp is correct. A tenant may write any grace period. With a grace
# period of more than 292 years, the API server's calculation of deletionTimestamp overflows.
_MOST_GRACE_SECONDS = 2**63 // 10**9
# The value of this annotation on a static pod's mirror is the UID in the name of the pod's control group
# (pkg/kubelet/types).
_STATIC_POD_UID = "kubernetes.io/config.hash"


def pods_of(namespace: str) -> ApiPath:
    """Returns the path of a namespace's pods."""
    return api_path("v1", "namespaces", namespace, "pods")


def bound_pods_selector(node: str) -> str:
    """Returns the field selector of the pods that are bound to the node and have not ended."""
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, kw_only=True)
class Controller:
    """The controller that owns an object, such as a pod, and creates its replacement."""

    kind: str
    name: str
    uid: str
    api_version: str = ""


def controller_of(metadata: Object) -> Controller | None:
    """Returns the object's controller, or None if the object has no controller."""
    for owner in maps_at(metadata, "ownerReferences"):
        if owner.get("controller"):
            fields = ("kind", "name", "uid", "apiVersion")
            kind, name, uid, version = (text_at(owner, field, _LONGEST_OWNER) for field in fields)
            return Controller(kind=kind, name=name, uid=uid, api_version=version)
    return None


@dataclass(frozen=True)
class Pod:
    """A Pod object of the API. A field with the value null counts as absent. Only this module reads the fields of the
    Pod object itself.
    """

    _item: Object

    def __str__(self) -> str:
        return named(self._item)

    @property
    def _metadata(self) -> Object:
        metadata: Object = self._item["metadata"]
        return metadata

    @property
    def _spec(self) -> Object:
        return map_at(self._item, "spec")

    @property
    def _status(self) -> Object:
        return map_at(self._item, "status")

    @property
    def namespace(self) -> str:
        namespace: str = self._metadata["namespace"]
        return namespace

    @property
    def name(self) -> str:
        name: str = self._metadata["name"]
        return name

    @property
    def uid(self) -> str:
        return uid_of(self._item)

    @property
    def group_uid(self) -> str:
        """Returns the UID in the name of the pod's control group.

        The control group of a static pod has another UID than the static pod's mirror in the API.
        """
        return (self.static and self.annotation(_STATIC_POD_UID)) or self.uid

    @property
    def static(self) -> bool:
        """Returns True if the Pod is the mirror of a static pod. The kubelet of the node creates the mirror of a static
        pod (pkg/kubelet/pod/mirror_client.go).

        An admission policy permits the mirror annotation only to nodes, so a tenant cannot create a mirror
        (tenancy/admission/mirror.py). Nobody can add the mirror annotation to an existing pod. The kubelet does not
        run a pod that has the mirror annotation.
        """
        owner = self.controller
        owned = owner is not None and owner.kind == "Node" and owner.name == self.node
        return owned and MIRROR_ANNOTATION in self.annotations

    @property
    def annotations(self) -> Mapping[str, str]:
        return map_at(self._metadata, "annotations")

    @property
    def labels(self) -> Mapping[str, str]:
        return map_at(self._metadata, "labels")

    def seat_label(self, names: Names) -> str:
        """Returns the name of the seat in the pod's label, or ""."""
        return self.labels.get(names.seat_label, "")

    def annotation(self, key: str) -> str:
        """Returns the annotation, or "" if the annotation is absent, too long, or not printable ASCII."""
        return text_at(self.annotations, key)

    @property
    def node(self) -> str | None:
        """Returns the name of the pod's node, or None while the pod is not bound."""
        return self._spec.get("nodeName") or None

    @property
    def nominated_node(self) -> str | None:
        """Returns the node on which victims were evicted for the pod, or None."""
        return self._status.get("nominatedNodeName") or None

    @property
    def address(self) -> str | None:
        """Returns the pod's IP address, or None if the pod has none."""
        return self._status.get("podIP") or None

    @property
    def priority(self) -> int:
        return self._spec.get("priority") or 0

    @property
    def priority_class(self) -> str | None:
        return self._spec.get("priorityClassName") or None

    @property
    def node_selector(self) -> Mapping[str, str]:
        return map_at(self._spec, "nodeSelector")

    @property
    def running(self) -> bool:
        return self._status.get("phase") == "Running"

    @property
    def ended(self) -> bool:
        """Returns True if all containers of the pod have ended and will not restart. An ended pod holds no resources of
        its node.
        """
        return self._status.get("phase") in _ENDED

    @property
    def terminating(self) -> bool:
        """Returns True if the pod's deletion has begun. A terminating pod holds its devices until it has ended."""
        return bool(self._metadata.get("deletionTimestamp"))

    @property
    def gone_by(self) -> datetime | None:
        """Returns the end of a terminating pod's grace period, or None if the pod is not terminating.

        If deletionTimestamp is wrong because of an overflow, the grace period counts from the pod's creation.
        """
        if not self.terminating:
            return None
        if self.going_seconds < _MOST_GRACE_SECONDS:
            return time_at(self._metadata, "deletionTimestamp")
        return self.created + timedelta(seconds=_MOST_GRACE_SECONDS)

    @property
    def due(self) -> datetime | None:
        """Returns the time by which a terminating pod should have freed its devices, or None if the pod is not
        terminating.

        A longer grace period counts as MOST_GRACE_SECONDS, the limit for GPU pods without a seat.
        """
        if self.gone_by is None:
            return None
        began = self.gone_by - timedelta(seconds=self.going_seconds)
        return began + timedelta(seconds=min(self.going_seconds, MOST_GRACE_SECONDS) + _LATE_SECONDS)

    @property
    def going_seconds(self) -> int:
        """Returns the grace period of the pod's deletion in seconds, or 0 if the pod is not terminating."""
        return _seconds(self._metadata, "deletionGracePeriodSeconds", 0)

    @property
    def grace_seconds(self) -> int:
        """Returns the pod's default grace period in seconds."""
        return _seconds(self._spec, "terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)

    @property
    def created(self) -> datetime:
        return datetime.fromisoformat(self._metadata["creationTimestamp"])

    @property
    def started(self) -> datetime:
        """Returns the time when the kubelet accepted the pod, or before that, the time of the pod's creation."""
        return time_at(self._status, "startTime") or self.created

    @property
    def running_since(self) -> datetime | None:
        """Returns the time when the pod's last container started, or None until all containers have started."""
        states = [map_at(container, "state") for container in maps_at(self._status, "containerStatuses")]
        going_on = [map_at(state, "running") for state in states if state.get("terminated") is None]
        if not any(states) and self.running:  # the pod's status lists no containers
            return time_at(self._status, "startTime")
        began = [time_at(state, "startedAt") for state in going_on]
        return None if None in began else max(filter(None, began), default=None)

    @property
    def waiting(self) -> bool:
        """Returns True if our scheduler must still place the pod, and the pod lacks only free memory."""
        ours = self._spec.get("schedulerName") == SCHEDULER_NAME
        held = self.node or self.terminating or self.ended or self._spec.get("schedulingGates") or self._lacks_more
        return ours and not held

    @property
    def _lacks_more(self) -> bool:
        last: Object = next((c for c in maps_at(self._status, "conditions") if c.get("type") == "PodScheduled"), {})
        return last.get("reason") == "Unschedulable" and REFUSED_AS_MEASURED not in str(last.get("message"))

    @property
    def controller(self) -> Controller | None:
        return controller_of(self._metadata)

    @property
    def containers(self) -> Mapping[str, str]:
        """Maps the ids in `containerd://<id>` to the names of the pod's containers. Includes ended containers."""
        return {_id(status): status["name"] for status in self._statuses}

    @property
    def running_containers(self) -> frozenset[str]:
        return frozenset(_id(status) for status in self._statuses if map_at(status, "state").get("running") is not None)

    @property
    def _statuses(self) -> Sequence[Object]:
        lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        return [status for name in lists for status in maps_at(self._status, name) if _id(status)]

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)

    def request(self, resource: str, *, per_unit: int = 1) -> int:
        """Returns the pod's request of a resource, computed by tenancy.workload.pod_request. Raises FieldError."""
        return self._amount(resource, lambda: pod_request(self._spec, resource, per_unit=per_unit))

    def budget_mib(self, ledger: Ledger, problems: ItemProblems) -> int:
        """Returns the MiB that the pod requests. If the request is invalid, notes the problem and returns 0."""
        asked = judged(lambda: self.request(ledger.names.gpumem))
        problems.note("budget of pod", str(self), asked.why if isinstance(asked, Unjudged) else None)
        return 0 if isinstance(asked, Unjudged) else asked

    def uuids(self, names: Names) -> tuple[str, ...]:
        """Returns the UUIDs of the pod's devices, or () if they are not known."""
        return tuple(filter(None, self.annotation(names.device_uuid).split(",")))

    def indices(self, names: Names) -> tuple[int, ...]:
        """Returns the indices of the pod's devices, or () if they are not known."""
        parts = self.annotation(names.device_index).split(",")
        known = all(part.isdecimal() and len(part) <= _INDEX_DIGITS for part in parts)
        return tuple(map(int, parts)) if known else ()

    def memory_request(self, names: Names) -> MemoryRequest | None:
        """Returns the pod's request of GPU memory, or None if the pod requests none. Raises FieldError."""
        total = self.request(names.gpumem)
        if not total:
            return None
        count, cpu_milli = self.request(names.gpu_count), self.request("cpu", per_unit=1000)
        with self.reading(names.gpumem):
            return MemoryRequest.of(total, count or 1, cpu_milli)

    def memory_limit_mib(self) -> int | None:
        """Returns the host memory in MiB that the pod's containers may use together, or None if a container has no
        limit. Raises FieldError.
        """
        with self.reading("its memory limit"):
            return memory_limit_mib(self._spec)

    def caps(self, names: Names) -> tuple[Cap, ...]:
        """Returns the caps of the pod's containers. Raises FieldError."""
        with self.reading("its caps"):
            return tuple(caps_of(self._spec, names))

    def _amount(self, field: str, count: Callable[[], int]) -> int:
        with self.reading(field):
            amount = count()
            if not 0 <= amount <= LARGEST_AMOUNT:
                raise ValueError(f"must be from 0 to {LARGEST_AMOUNT}")
            return amount

    @contextmanager
    def reading(self, field: str) -> Iterator[None]:
        """Turns a ValueError of the block, for a wrong quantity or a wrong type, into a FieldError."""
        try:
            yield
        except ValueError as error:  # QuantityError and ShapeError are ValueErrors
            raise FieldError(shortened(f"pod {self}: {field}: {error}")) from None


def _seconds(mapping: Object, field: str, otherwise: int) -> int:
    seconds = mapping.get(field)
    return otherwise if seconds is None else min(max(seconds, 0), _MOST_GRACE_SECONDS)


def _id(status: Object) -> str:
    found: str = (status.get("containerID") or "").partition("://")[2]
    return found


def waiting_seats(api: Api, ledger: Ledger, problems: ItemProblems) -> Iterator[WaitingSeat]:
    """Yields the waiting seats. Skips unreadable pods. Raises ApiError."""
    for item in api.items(PODS, **UNSCHEDULED):
        seat = problems.judge("waiting pod", named(item), partial(waiting_seat, item, ledger), lambda why: None)
        if seat is not None:
            yield seat


def waiting_seat(item: Object, ledger: Ledger) -> WaitingSeat | None:
    """Returns the seat of a waiting Pod, or None for any other Pod. Raises FieldError."""
    pod = Pod(item)
    request = pod.memory_request(ledger.names) if pod.waiting else None
    if request is None:
        return None
    wanted, label = pod.node_selector, pod.seat_label(ledger.names)
    queued = replace(ledger, seats=_quota_seats(pod, request, ledger))
    seats = seats_for(ledger, pod.namespace, request, wanted, label) or seats_for(
        queued, pod.namespace, request, wanted
    )
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
    """Returns seats for the pod of a queue tenant, because the ledger promises a quota to the queue.

    Kueue has reserved a part of the queue's quota for the pod.
    """
    if pod.namespace not in ledger.queue_tenants:
        return ()
    pools = sorted({quota.pool for quota in ledger.quotas if quota.resource == ledger.names.gpumem})
    return tuple(Seat(name=pod.name, tenant=pod.namespace, pool=pool, gpumem_mib=request.total_mib) for pool in pools)
