"""Pods of the measured nodes, as much of them as the watchdog decides on."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.api import Api, Object
from agents.errors import AgentError
from agents.events import Reference
from tenancy.budget import declared_mib
from tenancy.ledger import Ledger
from tenancy.names import KUEUE_POD_SET_LABEL, KUEUE_WORKLOAD_ANNOTATION, POD_TEMPLATE_HASH
from tenancy.quantity import QuantityError

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The controller that replaces a pod."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class Pod:
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
    owner: Owner | None = None
    queued_as: str | None = None

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read_pods(api: Api, node: str, ledger: Ledger) -> Iterator[Pod]:
    """Every pod bound to the node, with what it declares. Raises ApiError, and AgentError for a request that cannot be
    read."""
    for item in api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}"):
        yield _pod(item, ledger)


def _pod(item: Object, ledger: Ledger) -> Pod:
    metadata, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    try:
        declared = declared_mib(ledger, metadata["namespace"], spec)
    except QuantityError as error:
        raise AgentError(f"pod {metadata['namespace']}/{metadata['name']}: {ledger.names.gpumem}: {error}") from None
    owner = _owner(metadata)
    queued_as = _queued_as(metadata)
    return Pod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        node=spec["nodeName"],
        declared_mib=declared,
        started=_moment(status.get("startTime") or metadata["creationTimestamp"]),
        workload=_workload(metadata, owner, queued_as),
        priority=spec.get("priority") or 0,
        gone_by=_moment(metadata["deletionTimestamp"]) if "deletionTimestamp" in metadata else None,
        ended=status.get("phase") in _ENDED,
        owner=owner,
        queued_as=queued_as,
    )


def _owner(metadata: Mapping[str, Any]) -> Owner | None:
    for reference in metadata.get("ownerReferences") or ():
        if reference.get("controller"):
            return Owner(kind=reference["kind"], name=reference["name"], uid=reference["uid"])
    return None


def _queued_as(metadata: Mapping[str, Any]) -> str | None:
    if KUEUE_POD_SET_LABEL not in (metadata.get("labels") or {}):
        return None
    name: str = (metadata.get("annotations") or {}).get(KUEUE_WORKLOAD_ANNOTATION, "")
    return name


def _workload(metadata: Mapping[str, Any], owner: Owner | None, queued_as: str | None) -> str:
    """A Deployment makes a ReplicaSet for each rollout, named after itself and the hash of its template."""
    namespace = metadata["namespace"]
    if queued_as:
        return f"{namespace}/Workload/{queued_as}"
    if owner is None:
        return f"{namespace}/Pod/{metadata['name']}"
    template_hash = (metadata.get("labels") or {}).get(POD_TEMPLATE_HASH)
    if owner.kind == "ReplicaSet" and template_hash and owner.name.endswith(f"-{template_hash}"):
        return f"{namespace}/Deployment/{owner.name.removesuffix(f'-{template_hash}')}"
    return f"{namespace}/{owner.kind}/{owner.name}"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
