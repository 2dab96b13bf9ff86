"""kube-scheduler's extender protocol: its JSON to and from plain types.

Source: k8s.io/kube-scheduler/extender/v1 types.go, whose fields have no JSON tags, and HTTPExtender in
pkg/scheduler/extender.go. Its own requests are read with nodeCacheCapable: nodes and victims come by name.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.kube.events import Reference
from agents.runtime.errors import AgentError

FILTER, PREEMPT, BIND = "filter", "preempt", "bind"

Json = Mapping[str, Any]


class VerbError(AgentError):
    """The request is not as the protocol has it."""


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
    arguments = _object(body)
    nodes = arguments.get("NodeNames")
    if not isinstance(nodes, list) or not set(map(type, nodes)) <= {str}:
        raise VerbError("NodeNames must be a list of names; the scheduler must have nodeCacheCapable: true")
    return PodNodes(_pod(arguments), tuple(nodes))


def read_pod_victims(body: bytes) -> PodVictims:
    """Raises VerbError."""
    arguments = _object(body)
    nodes = arguments.get("NodeNameToMetaVictims")
    if not isinstance(nodes, dict):
        raise VerbError("NodeNameToMetaVictims must be a map; the scheduler must have nodeCacheCapable: true")
    return PodVictims(_pod(arguments), {name: _victims(name, victims) for name, victims in nodes.items()})


def read_binding(body: bytes) -> PodBinding:
    """Raises VerbError."""
    arguments = _object(body)
    fields = [arguments.get(field) for field in ("PodNamespace", "PodName", "PodUID", "Node")]
    if not all(isinstance(field, str) and field for field in fields):
        raise VerbError("PodNamespace, PodName, PodUID and Node must be given")
    return PodBinding(*map(str, fields))


def filtered(nodes: Iterable[str], refused: Mapping[str, str], hopeless: Mapping[str, str]) -> Json:
    """ExtenderFilterResult; evicting pods would not help on the `hopeless` nodes."""
    return {"NodeNames": list(nodes), "FailedNodes": refused, "FailedAndUnresolvableNodes": hopeless}


def preempted(victims: Mapping[str, Victims]) -> Json:
    """ExtenderPreemptionResult; a node that is left out is no candidate."""
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in each.uids], "NumPDBViolations": each.pdb_violations}
            for node, each in victims.items()
        }
    }


def failed(message: str) -> Json:
    """ExtenderFilterResult and ExtenderBindingResult: the pod is tried again."""
    return {"Error": message}


BOUND: Json = {"Error": ""}


def _object(body: bytes) -> Json:
    try:
        arguments = json.loads(body)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise VerbError("the body must be a JSON object")
    return arguments


def _pod(arguments: Json) -> Json:
    pod = arguments.get("Pod")
    metadata = pod.get("metadata") if isinstance(pod, dict) else None
    if not isinstance(pod, dict) or not isinstance(metadata, dict) or not isinstance(pod.get("spec"), dict):
        raise VerbError("Pod must be an object with metadata and spec")
    if not isinstance(metadata.get("uid"), str) or not metadata["uid"]:
        raise VerbError("Pod.metadata.uid must be given")
    return pod


def _victims(node: str, victims: object) -> Victims:
    if not isinstance(victims, dict):
        raise VerbError(f"NodeNameToMetaVictims.{node} must be an object")
    pods, violations = victims.get("Pods") or [], victims.get("NumPDBViolations", 0)
    if not isinstance(pods, list) or not all(isinstance(pod, dict) and isinstance(pod.get("UID"), str) for pod in pods):
        raise VerbError(f"NodeNameToMetaVictims.{node}.Pods must be a list of objects with a UID")
    if isinstance(violations, bool) or not isinstance(violations, int):
        raise VerbError(f"NodeNameToMetaVictims.{node}.NumPDBViolations must be a whole number")
    return Victims(tuple(pod["UID"] for pod in pods), violations)
