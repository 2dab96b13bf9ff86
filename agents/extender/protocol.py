"""Reads and writes kube-scheduler's extender protocol, as JSON from and to plain types.

Source: k8s.io/kube-scheduler/extender/v1 types.go (its fields have no JSON tags), and HTTPExtender in
pkg/scheduler/extender.go. The scheduler has nodeCacheCapable: true, so requests name nodes and victims.
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
    """A filter request: a pod, and the nodes to judge (ExtenderArgs)."""

    pod: Json
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Victims:
    """The victims on one node by UID, and how many a PodDisruptionBudget would rather keep (MetaVictims)."""

    uids: tuple[str, ...]
    pdb_violations: int = 0


@dataclass(frozen=True)
class PodVictims:
    """A preempt request: a pod, and by node the pods that the scheduler would evict (ExtenderPreemptionArgs)."""

    pod: Json
    victims: Mapping[str, Victims]


@dataclass(frozen=True)
class PodBinding:
    """A bind request: a pod and its node (ExtenderBindingArgs)."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)


def read_pod_nodes(body: bytes) -> PodNodes:
    """Reads a filter request. Raises VerbError."""
    with _reading():
        arguments = json.loads(body)
        return PodNodes(_pod(arguments), tuple(map(str, arguments["NodeNames"])))


def read_pod_victims(body: bytes) -> PodVictims:
    """Reads a preempt request. Raises VerbError."""
    with _reading():
        arguments = json.loads(body)
        nodes = arguments["NodeNameToMetaVictims"].items()
        return PodVictims(_pod(arguments), {name: _victims(victims) for name, victims in nodes})


def read_binding(body: bytes) -> PodBinding:
    """Reads a bind request. Raises VerbError."""
    with _reading():
        given = json.loads(body)
        return PodBinding(*(str(given[field]) for field in ("PodNamespace", "PodName", "PodUID", "Node")))


def filter_result(nodes: Iterable[str], refused: Mapping[str, str], hopeless: Mapping[str, str]) -> Json:
    """Returns an ExtenderFilterResult. Evicting pods would not help on the `hopeless` nodes."""
    return {"NodeNames": list(nodes), "FailedNodes": refused, "FailedAndUnresolvableNodes": hopeless}


def preemption_result(victims: Mapping[str, Victims]) -> Json:
    """Returns an ExtenderPreemptionResult. A node that is left out is no candidate."""
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in each.uids], "NumPDBViolations": each.pdb_violations}
            for node, each in victims.items()
        }
    }


def error_result(message: str) -> Json:
    """Returns an ExtenderFilterResult or ExtenderBindingResult with an error, after which the scheduler
    retries the pod.
    """
    return {"Error": message}


BOUND: Json = {"Error": ""}


@contextmanager
def _reading() -> Iterator[None]:
    """Turns a wrong shape into a VerbError.

    Only the pod's own scheduler can ask, so its version or settings are wrong.
    """
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
