"""kube-scheduler's extender protocol: its JSON to and from plain types.

Source: k8s.io/kube-scheduler/extender/v1 types.go (its fields have no JSON tags), and HTTPExtender in
pkg/scheduler/extender.go. The scheduler has nodeCacheCapable: true, so nodes and victims come by name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agents.kube.events import Reference
from agents.runtime.errors import AgentError

FILTER, PREEMPT, BIND = "filter", "preempt", "bind"

Json = Mapping[str, Any]


class VerbError(AgentError):
    """The request does not follow the protocol."""


@dataclass(frozen=True)
class PodNodes:
    """Filter: a pod, and the nodes to judge (ExtenderArgs)."""

    pod: Json
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Victims:
    """Pods of a node by UID, and how many of them a PodDisruptionBudget would rather keep (MetaVictims)."""

    uids: tuple[str, ...]
    pdb_violations: int = 0


@dataclass(frozen=True)
class PodVictims:
    """Preempt: a pod, and by node the pods that the scheduler would evict for it (ExtenderPreemptionArgs)."""

    pod: Json
    victims: Mapping[str, Victims]


@dataclass(frozen=True)
class PodBinding:
    """Bind: a pod and its node (ExtenderBindingArgs)."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)


def read_pod_nodes(body: bytes) -> PodNodes:
    """Raises VerbError."""
    with _reading():
        arguments = json.loads(body)
        return PodNodes(_pod(arguments), tuple(map(str, arguments["NodeNames"])))


def read_pod_victims(body: bytes) -> PodVictims:
    """Raises VerbError."""
    with _reading():
        arguments = json.loads(body)
        nodes = arguments["NodeNameToMetaVictims"].items()
        return PodVictims(_pod(arguments), {name: _victims(victims) for name, victims in nodes})


def read_binding(body: bytes) -> PodBinding:
    """Raises VerbError."""
    with _reading():
        given = json.loads(body)
        return PodBinding(*(str(given[field]) for field in ("PodNamespace", "PodName", "PodUID", "Node")))


def filter_result(nodes: Iterable[str], refused: Mapping[str, str], hopeless: Mapping[str, str]) -> Json:
    """ExtenderFilterResult; evicting pods would not help on the `hopeless` nodes."""
    return {"NodeNames": list(nodes), "FailedNodes": refused, "FailedAndUnresolvableNodes": hopeless}


def preemption_result(victims: Mapping[str, Victims]) -> Json:
    """ExtenderPreemptionResult; a node that is left out is no candidate."""
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in each.uids], "NumPDBViolations": each.pdb_violations}
            for node, each in victims.items()
        }
    }


def error_result(message: str) -> Json:
    """ExtenderFilterResult and ExtenderBindingResult: the pod is tried again."""
    return {"Error": message}


BOUND: Json = {"Error": ""}


@contextmanager
def _reading() -> Iterator[None]:
    """Only the pod's own scheduler has the certificate to ask: a wrong shape is a wrong version or configuration."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise VerbError(f"the request does not follow the extender's protocol: {error!r}") from None


def _pod(arguments: Json) -> Json:
    pod: Json = arguments["Pod"]
    if not pod["metadata"]["uid"] or not isinstance(pod["spec"], dict):
        raise ValueError("Pod must have a UID and a spec")
    return pod


def _victims(victims: Json) -> Victims:
    return Victims(tuple(str(pod["UID"]) for pod in victims["Pods"] or ()), int(victims.get("NumPDBViolations", 0)))
