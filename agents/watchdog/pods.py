"""Pods of the measured nodes: what the watchdog decides on."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agents.kube.client import Api
from agents.kube.events import Reference
from agents.kube.pods import PODS, Controller, Pod
from tenancy.ledger import Ledger
from tenancy.names import KUEUE_POD_SET_LABEL, KUEUE_WORKLOAD_ANNOTATION, POD_TEMPLATE_HASH


@dataclass(frozen=True, kw_only=True)
class GpuPod:
    """A pod that is bound to a node. `gone_by` is when a pod that terminates must be gone, its grace included.

    `workload` is what it is one of, the same across its replacements: namespace/kind/name. `queued`: Kueue admitted it,
    under the Workload of the name `queued_as`, "" where the pod does not tell.
    """

    namespace: str
    name: str
    uid: str
    node: str
    declared_mib: int
    started: datetime
    workload: str
    priority: int = 0
    gone_by: datetime | None = None
    ended: bool = False
    owner: Controller | None = None
    queued_as: str | None = None

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read_pods(api: Api, node: str, ledger: Ledger) -> Iterator[GpuPod]:
    """Every pod bound to the node, with what it declares. Raises ApiError, and PodError for a request that cannot be
    read."""
    for item in api.items(PODS, fieldSelector=f"spec.nodeName={node}"):
        yield _pod(Pod(item), ledger)


def _pod(pod: Pod, ledger: Ledger) -> GpuPod:
    queued_as = pod.annotations.get(KUEUE_WORKLOAD_ANNOTATION, "") if KUEUE_POD_SET_LABEL in pod.labels else None
    return GpuPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        node=pod.node or "",
        declared_mib=pod.declared_mib(ledger),
        started=pod.started,
        workload=_workload(pod, queued_as),
        priority=pod.priority,
        gone_by=pod.gone_by,
        ended=pod.ended,
        owner=pod.controller,
        queued_as=queued_as,
    )


def _workload(pod: Pod, queued_as: str | None) -> str:
    """A Deployment makes a ReplicaSet for each rollout, named after itself and the hash of its template."""
    owner, template_hash = pod.controller, pod.labels.get(POD_TEMPLATE_HASH)
    if queued_as:
        return f"{pod.namespace}/Workload/{queued_as}"
    if owner is None:
        return f"{pod.namespace}/Pod/{pod.name}"
    if owner.kind == "ReplicaSet" and template_hash and owner.name.endswith(f"-{template_hash}"):
        return f"{pod.namespace}/Deployment/{owner.name.removesuffix(f'-{template_hash}')}"
    return f"{pod.namespace}/{owner.kind}/{owner.name}"
