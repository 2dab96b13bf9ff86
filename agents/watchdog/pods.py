"""Pods of the measured nodes: what the watchdog decides on."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from agents.kube.client import Api, Object
from agents.kube.events import Reference
from agents.kube.pods import PODS, Controller, Pod, PodError
from agents.runtime.log import Log
from tenancy.ledger import Ledger
from tenancy.names import KUEUE_POD_SET_LABEL, KUEUE_WORKLOAD_ANNOTATION, POD_TEMPLATE_HASH

_DEFAULT_GRACE_SECONDS = 30  # of a pod (pkg/apis/core/v1/defaults.go)


@dataclass(frozen=True, kw_only=True)
class GpuPod:
    """A pod that is bound to a node. `gone_by` is when a pod that terminates must be gone, its grace included, and
    `going_seconds` how long that grace is; `grace_seconds` is the one that it asks for.

    `workload` is what it is one of, the same across its replacements: namespace/kind/name. `queued`: Kueue admitted it,
    under the Workload of the name `queued_as`, "" where the pod does not tell. `uuids` are the devices that it was
    placed on, where that is known. `static`: its node's kubelet runs it from a file.
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
        """Whether it goes with the other pods of its queued Job; one that terminates comes back no more."""
        return bool(self.queued_as) and self.gone_by is None

    @property
    def recycled_as(self) -> str:
        """What it is recycled with: its queued Job, or itself alone. The Job is known by its controller, too: a pod
        may name any Workload, and would else speak for the Job that is spared or stopped."""
        return f"{self.workload}/{self.owner.uid if self.owner else ''}" if self.stops_with_its_job else self.uid

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read_pods(api: Api, node: str, ledger: Ledger, log: Log) -> Iterator[GpuPod]:
    """Every pod bound to the node, with what it declares: nothing, where its request cannot be read. Raises
    ApiError."""
    for item in api.items(PODS, fieldSelector=f"spec.nodeName={node}"):
        pod = Pod(item)
        try:
            declared_mib = pod.declared_mib(ledger)
        except PodError as error:
            log.warning(f"is left alone: {error}")
            declared_mib = 0
        yield _pod(pod, declared_mib, ledger)


def _pod(pod: Pod, declared_mib: int, ledger: Ledger) -> GpuPod:
    queued_as = pod.annotations.get(KUEUE_WORKLOAD_ANNOTATION, "") if KUEUE_POD_SET_LABEL in pod.labels else None
    return GpuPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        node=pod.node or "",
        declared_mib=declared_mib,
        started=pod.started,
        workload=_workload(pod, queued_as),
        priority=pod.priority,
        grace_seconds=_seconds(pod.spec, "terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS),
        gone_by=pod.gone_by,
        going_seconds=_seconds(pod.metadata, "deletionGracePeriodSeconds", 0),
        ended=pod.ended,
        owner=pod.controller,
        queued_as=queued_as,
        uuids=tuple(filter(None, pod.annotations.get(ledger.names.device_uuid, "").split(","))),
        static=pod.static,
    )


def _seconds(holder: Object, key: str, otherwise: int) -> int:
    found = holder.get(key)
    return otherwise if found is None else int(found)


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
