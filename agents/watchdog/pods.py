"""Reads the pods of a node for the watchdog."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agents.kube.client import Api
from agents.kube.events import Reference
from agents.kube.fields import is_name
from agents.kube.pods import PODS, Controller, Pod
from agents.runtime.items import ItemProblems
from tenancy.ledger import Ledger
from tenancy.names import (
    KUEUE_POD_SET_LABEL,
    KUEUE_WORKLOAD_ANNOTATION,
    LEADER_WORKER_SET_LABEL,
    POD_TEMPLATE_HASH,
)


@dataclass(frozen=True, kw_only=True)
class GpuPod:
    """A pod that is bound to a node.

    `workload` is the pod's controller as namespace/kind/name. A new pod of the same controller has the same `workload`.
    `grace_seconds` is the pod's grace period. `gone_by` is the end of a terminating pod's grace period, `going_seconds`
    after its deletion began. `queued_as` is the name of the Kueue Workload in the pod's annotation, or "" for a pod
    that is recycled alone. `uuids` has the UUIDs of the pod's devices.
    `static` is True if the kubelet runs the pod from a file.
    """

    namespace: str
    name: str
    uid: str
    node: str
    declared_mib: int
    started: datetime
    workload: str
    priority: int = 0
    grace_seconds: int = 30
    gone_by: datetime | None = None
    going_seconds: int = 0
    ended: bool = False
    owner: Controller | None = None
    queued_as: str = ""
    uuids: tuple[str, ...] = ()
    static: bool = False

    @property
    def stops_with_its_work(self) -> bool:
        """Returns True if the pod is recycled together with the other pods of its Workload.

        A terminating pod is a target of its own, because it will end in any case.
        """
        return bool(self.queued_as) and self.gone_by is None

    @property
    def recycled_as(self) -> str:
        """Returns a key that is the same for all pods of one target. A target is one Workload or a single pod.

        The annotation of a pod may name a foreign Workload, so `recycle` checks each pod of the target.
        """
        return self.workload if self.stops_with_its_work else self.uid

    @property
    def declared_each_mib(self) -> int:
        """Returns the MiB that the pod requests on each of its devices."""
        return -(-self.declared_mib // max(len(self.uuids), 1))

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read_pods(api: Api, node: str, ledger: Ledger, problems: ItemProblems) -> Iterator[GpuPod]:
    """Yields the pods that are bound to the node. Raises ApiError.

    A pod with an unreadable request counts as a pod without a budget, so the watchdog never recycles it.
    """
    for item in api.items(PODS, fieldSelector=f"spec.nodeName={node}"):
        yield _gpu_pod(Pod(item), ledger, problems)


def _gpu_pod(pod: Pod, ledger: Ledger, problems: ItemProblems) -> GpuPod:
    queued_as = _queued_as(pod) if pod.namespace in ledger.queue_tenants else ""
    return GpuPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        node=pod.node or "",
        declared_mib=pod.budget_mib(ledger, problems),
        started=pod.started,
        workload=_workload(pod, queued_as),
        priority=pod.priority,
        grace_seconds=pod.grace_seconds,
        gone_by=pod.gone_by,
        going_seconds=pod.going_seconds,
        ended=pod.ended,
        owner=pod.controller,
        queued_as=queued_as,
        uuids=pod.uuids(ledger.names),
        static=pod.static,
    )


def _queued_as(pod: Pod) -> str:
    """Returns the name of the Kueue Workload in the pod's annotation, or "" without a valid name.

    Also returns "" for a pod of a Deployment or StatefulSet, because a service is recycled by evictions.
    """
    kind = pod.controller.kind if pod.controller else ""
    serves = kind == "ReplicaSet" or (kind == "StatefulSet" and LEADER_WORKER_SET_LABEL not in pod.labels)
    if KUEUE_POD_SET_LABEL not in pod.labels or serves:
        return ""
    named = pod.annotation(KUEUE_WORKLOAD_ANNOTATION)
    return named if is_name(named) else ""


def _workload(pod: Pod, queued_as: str) -> str:
    """Returns the controller of the pod, or the pod itself if the controller's kind or name is unreadable.

    For a ReplicaSet of a Deployment, returns the Deployment, because the ReplicaSet's name ends with a hash of the pod
    template.
    """
    owner, template_hash = pod.controller, pod.labels.get(POD_TEMPLATE_HASH)
    if queued_as:
        return f"{pod.namespace}/Workload/{queued_as}"
    if owner is None or not (owner.kind and owner.name):
        return f"{pod.namespace}/Pod/{pod.name}"
    if owner.kind == "ReplicaSet" and template_hash and owner.name.endswith(f"-{template_hash}"):
        return f"{pod.namespace}/Deployment/{owner.name.removesuffix(f'-{template_hash}')}"
    return f"{pod.namespace}/{owner.kind}/{owner.name}"
