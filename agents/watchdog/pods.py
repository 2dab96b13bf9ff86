"""Reads the pods of a node for the watchdog."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agents.kube.client import Api
from agents.kube.events import Reference
from agents.kube.pods import PODS, Controller, Pod
from agents.runtime.log import Log
from tenancy.ledger import Ledger
from tenancy.names import KUEUE_POD_SET_LABEL, KUEUE_WORKLOAD_ANNOTATION, POD_TEMPLATE_HASH

# The name of a Kueue Workload is a DNS subdomain of at most 253 characters. The name comes from a tenant, and the
# watchdog uses it in the journal and in URLs.
_WORKLOAD_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
# The longest workload name in the journal. Names from Kubernetes' controllers are shorter, but the API server has no
# limit for an owner's name.
_LONGEST_WORKLOAD = 400


@dataclass(frozen=True, kw_only=True)
class GpuPod:
    """A pod on a node.

    `workload` is the pod's controller as namespace/kind/name, and stays the same for the pod's replacements.
    `grace_seconds` is the pod's grace period. `gone_by` is the end of a terminating pod's grace period, `going_seconds`
    after the deletion. `queued_as` is the name of the pod's Kueue Workload, "" if the name is invalid, or None for a
    pod without a queue. `uuids` are the UUIDs of the pod's devices. `static` is True if the kubelet runs the pod from a
    file.
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
    queued_as: str | None = None
    uuids: tuple[str, ...] = ()
    static: bool = False

    @property
    def stops_with_its_job(self) -> bool:
        """Returns True if the pod is recycled with the other pods of its queued Job.

        A terminating pod is recycled alone, because it never comes back.
        """
        return bool(self.queued_as) and self.gone_by is None

    @property
    def recycled_as(self) -> str:
        """Returns a key that is the same for all pods of one target. A target is one queued Job or a single pod.

        The key contains the controller's UID, because a pod may have the name of a different Job's Workload in its
        annotation.
        """
        return f"{self.workload}/{self.owner.uid if self.owner else ''}" if self.stops_with_its_job else self.uid

    @property
    def declared_each_mib(self) -> int:
        """Returns the MiB that the pod requests on each of its devices."""
        return -(-self.declared_mib // max(len(self.uuids), 1))

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read_pods(api: Api, node: str, ledger: Ledger, log: Log) -> Iterator[GpuPod]:
    """Yields the pods bound to the node. An invalid request counts as 0. Raises ApiError."""
    for item in api.items(PODS, fieldSelector=f"spec.nodeName={node}"):
        pod = Pod(item)
        queued_as = _queued_as(pod) if pod.namespace in ledger.queue_tenants else None
        yield GpuPod(
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            node=pod.node or "",
            declared_mib=pod.budget_mib(ledger, log),
            started=pod.started,
            workload=_workload(pod, queued_as),
            priority=pod.priority,
            grace_seconds=pod.grace_seconds,
            gone_by=pod.gone_by,
            going_seconds=pod.going_seconds,
            ended=pod.ended,
            owner=pod.controller,
            queued_as=queued_as,
            uuids=pod.uuids(ledger),
            static=pod.static,
        )


def _queued_as(pod: Pod) -> str | None:
    """Returns the name of the pod's Kueue Workload, "" if the name is invalid, or None for a pod without a queue."""
    if KUEUE_POD_SET_LABEL not in pod.labels:
        return None
    named = pod.annotations.get(KUEUE_WORKLOAD_ANNOTATION, "")
    return named if _WORKLOAD_NAME.fullmatch(named) else ""


def _workload(pod: Pod, queued_as: str | None) -> str:
    """Returns the pod's workload. If the name of its controller is too long or not ASCII, returns the pod instead."""
    named = _owned_by(pod, queued_as)
    is_short = len(named) <= _LONGEST_WORKLOAD and named.isascii() and named.isprintable()
    return named if is_short else f"{pod.namespace}/Pod/{pod.name}"


def _owned_by(pod: Pod, queued_as: str | None) -> str:
    """Returns the pod's controller. For a ReplicaSet of a Deployment, returns the Deployment: the ReplicaSet's name
    ends with the hash of the pod template.
    """
    owner, template_hash = pod.controller, pod.labels.get(POD_TEMPLATE_HASH)
    if queued_as:
        return f"{pod.namespace}/Workload/{queued_as}"
    if owner is None:
        return f"{pod.namespace}/Pod/{pod.name}"
    if owner.kind == "ReplicaSet" and template_hash and owner.name.endswith(f"-{template_hash}"):
        return f"{pod.namespace}/Deployment/{owner.name.removesuffix(f'-{template_hash}')}"
    return f"{pod.namespace}/{owner.kind}/{owner.name}"
