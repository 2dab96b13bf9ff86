"""Pods: where they are listed, and the one decoder; each agent makes its own view of what it finds there."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from agents.kube.client import PAGE, Api, Object
from agents.kube.events import Reference
from agents.runtime.errors import AgentError
from tenancy.devices.allocate import Ask
from tenancy.devices.waiting import WaitingSeat, seats_for
from tenancy.ledger import Ledger, Seat
from tenancy.names import MIRROR_ANNOTATION, REFUSED_AS_MEASURED, SCHEDULER_NAME
from tenancy.workload import at, maps_at, pod_request

PODS = "/api/v1/pods"
# Of our scheduler, and not bound.
UNSCHEDULED = {"fieldSelector": f"spec.nodeName=,spec.schedulerName={SCHEDULER_NAME}"}
# Not ended.
LIVE = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
# Bound and not ended: what the scheduler counts against a node.
BOUND = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
_ENDED = ("Succeeded", "Failed")
# Of fewer nodes the pods are listed node by node, whatever else there is.
_MANY_NODES = 10
# In the mirror of a static pod: the UID by which the kubelet, and so the control group, knows it (pkg/kubelet/types).
_STATIC_POD_UID = "kubernetes.io/config.hash"


class PodError(AgentError):
    """The pod holds what cannot be read; the message names it."""


def on_node(node: str) -> str:
    """The field selector of the pods that are bound to the node and have not ended."""
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"


def bound_to(api: Api, nodes: Collection[str]) -> Iterator[Object]:
    """The pods that are bound to these nodes and have not ended: node by node, or where that takes at most half as many
    requests, out of a list of all pods. Raises ApiError."""
    if len(nodes) >= _MANY_NODES and 2 * _pages(api) <= len(nodes):
        wanted = frozenset(nodes)
        yield from (item for item in api.items(PODS, **BOUND) if Pod(item).node in wanted)
    else:
        for node in nodes:
            yield from api.items(PODS, fieldSelector=on_node(node))


def _pages(api: Api) -> float:
    """How many requests a list of all pods takes, about; infinite where the server does not say."""
    metadata = api.get(f"{PODS}?limit=1")["metadata"]
    left: float | None = metadata.get("remainingItemCount")
    if left is None:
        left = math.inf if metadata.get("continue") else 0
    return left / PAGE


@dataclass(frozen=True, kw_only=True)
class Controller:
    """Who replaces a pod: its controlling owner."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True)
class Pod:
    """A Pod object of the API. A field that is null is absent; requests are read when they are asked for."""

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
        """The UID that the name of the pod's control group bears: of a static pod it is not that of its mirror."""
        return self.annotations.get(_STATIC_POD_UID, self.uid) if self.static else self.uid

    @property
    def static(self) -> bool:
        """Whether it is the mirror of a static pod, as its node's kubelet makes it (pkg/kubelet/pod/mirror_client.go).

        Anybody may write either half. Nobody adds the annotation later, no kubelet runs a pod that has it, and
        admission refuses it of whoever is no node (components/admission/mirror.py).
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
        """None while it is not bound."""
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
        """Its containers have stopped and do not start again: it holds nothing of its node."""
        return self.status.get("phase") in _ENDED

    @property
    def terminating(self) -> bool:
        """Its deletion began; until it ends it holds what it has."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def gone_by(self) -> datetime | None:
        """When a pod that terminates must be gone, its grace included."""
        moment = self.metadata.get("deletionTimestamp")
        return datetime.fromisoformat(moment) if moment else None

    @property
    def created(self) -> datetime:
        return datetime.fromisoformat(self.metadata["creationTimestamp"])

    @property
    def started(self) -> datetime:
        """When its node took it up; before that, when it was made."""
        started = self.status.get("startTime")
        return datetime.fromisoformat(started) if started else self.created

    @property
    def waiting(self) -> bool:
        """It is our scheduler's to place: not bound, not going, held by no scheduling gate, and by nothing else that
        giving memory back would not help."""
        ours = self.spec.get("schedulerName") == SCHEDULER_NAME
        held = self.node or self.terminating or self.ended or self.spec.get("schedulingGates") or self._lacks_more
        return ours and not held

    @property
    def _lacks_more(self) -> bool:
        """Whether our scheduler's last try found no node that only memory in use keeps it from. Not yet tried, or only
        failed to try, is no such word."""
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
        """Names by the runtime's id: a containerID reads `containerd://<id>`. One that ended keeps its id until it
        restarts."""
        return {_id(status): status["name"] for status in self._statuses}

    @property
    def running_containers(self) -> frozenset[str]:
        """The runtime's ids of those that run."""
        return frozenset(_id(status) for status in self._statuses if at(status, "state").get("running") is not None)

    @property
    def _statuses(self) -> Sequence[Object]:
        """Of the containers that have an id."""
        lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        return [status for name in lists for status in maps_at(self.status, name) if status.get("containerID")]

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)

    def request(self, resource: str, *, per_unit: int = 1) -> int:
        """What it requests, as the scheduler counts it; see tenancy.workload.pod_request. Raises PodError."""
        with self.reading(resource):
            return pod_request(self.spec, resource, per_unit=per_unit)

    def declared_mib(self, ledger: Ledger) -> int:
        """The GPU memory that it declares, by its request or by claims on seats. Raises PodError."""
        with self.reading(ledger.names.gpumem):
            return ledger.declared_mib(self.namespace, self.spec)

    def ask(self, ledger: Ledger) -> Ask | None:
        """What it asks of devices; None where it asks for no GPU memory. Raises PodError."""
        with self.reading(ledger.names.gpumem):
            return Ask.of_pod(self.spec, ledger.names)

    @contextmanager
    def reading(self, field: str) -> Iterator[None]:
        """Raises PodError for a quantity or a shape that cannot be read within the block."""
        try:
            yield
        except ValueError as error:  # also QuantityError and ShapeError
            raise PodError(f"pod {self}: {field}: {error}") from None


def _id(status: Object) -> str:
    return str(status["containerID"]).partition("://")[2]


def waiting_seat(item: Object, ledger: Ledger) -> WaitingSeat | None:
    """The seat that waits with a Pod; None for one that does not wait, or was promised no such memory. Raises
    PodError."""
    pod = Pod(item)
    ask = pod.ask(ledger) if pod.waiting else None
    if ask is None:
        return None
    wanted = at(pod.spec, "nodeSelector")
    queued = replace(ledger, seats=_quota_seats(pod, ask, ledger))
    seats = seats_for(ledger, pod.namespace, ask, wanted) or seats_for(queued, pod.namespace, ask, wanted)
    if not seats:
        return None
    return WaitingSeat(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        ask=ask,
        seats=seats,
        priority=pod.priority,
        created=pod.created,
    )


def _quota_seats(pod: Pod, ask: Ask, ledger: Ledger) -> tuple[Seat, ...]:
    """A queue's pod is there because Kueue reserved quota for it, which is promised on the ledger as a seat is."""
    if pod.namespace not in ledger.queue_tenants:
        return ()
    pools = sorted({quota.pool for quota in ledger.quotas if quota.resource == ledger.names.gpumem})
    return tuple(Seat(name=pod.name, tenant=pod.namespace, pool=pool, gpumem_mib=ask.total_mib) for pool in pools)
