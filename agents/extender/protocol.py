"""Reads kube-scheduler's extender requests from JSON, and writes the answers as JSON.

Source: k8s.io/kube-scheduler/extender/v1 types.go, where the fields have no JSON tags, and HTTPExtender in
pkg/scheduler/extender.go. The setting `nodeCacheCapable` of kube-scheduler is true, so requests contain only the names
of nodes.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agents.kube.events import Reference
from agents.kube.pods import Pod

FILTER, PREEMPT, BIND = "filter", "preempt", "bind"

Json = Mapping[str, Any]


@dataclass(frozen=True)
class FilterRequest:
    """A filter request: a pod, and the names of its candidate nodes (ExtenderArgs)."""

    pod: Pod
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class PreemptRequest:
    """A preempt request: a pod, and the UIDs of kube-scheduler's victims by node (ExtenderPreemptionArgs)."""

    pod: Pod
    victims: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class BindRequest:
    """A bind request: a pod and its node (ExtenderBindingArgs)."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def reference(self) -> Reference:
        return Reference(api_version="v1", kind="Pod", namespace=self.namespace, name=self.name, uid=self.uid)


def read_filter_request(body: bytes) -> FilterRequest:
    arguments = json.loads(body)
    return FilterRequest(Pod(arguments["Pod"]), tuple(arguments["NodeNames"]))


def read_preempt_request(body: bytes) -> PreemptRequest:
    arguments = json.loads(body)
    nodes = arguments["NodeNameToMetaVictims"].items()
    victims = {name: tuple(pod["UID"] for pod in given["Pods"] or ()) for name, given in nodes}
    return PreemptRequest(Pod(arguments["Pod"]), victims)


def read_bind_request(body: bytes) -> BindRequest:
    given = json.loads(body)
    return BindRequest(*(given[field] for field in ("PodNamespace", "PodName", "PodUID", "Node")))


def filter_result(nodes: Iterable[str], refused: Mapping[str, str], hopeless: Mapping[str, str]) -> Json:
    """Returns an ExtenderFilterResult. On the `hopeless` nodes, evictions would not help."""
    return {"NodeNames": list(nodes), "FailedNodes": refused, "FailedAndUnresolvableNodes": hopeless}


def preemption_result(victims: Mapping[str, Iterable[str]]) -> Json:
    """Returns an ExtenderPreemptionResult. The scheduler drops each node that is missing in the result.

    The extender does not count disrupted PodDisruptionBudgets.
    """
    return {
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in victims.items()
        }
    }


def error_result(message: str) -> Json:
    """Returns an ExtenderFilterResult or ExtenderBindingResult with an error, after which the scheduler
    retries the pod.
    """
    return {"Error": message}


BOUND: Json = {"Error": ""}
