"""Judges if the cluster has a node that can run the agents. Pure."""

from collections import Counter
from collections.abc import Iterable

from stacks.existing.lookup import Object
from tenancy.workload import map_at, maps_at

_SIMULATED = "kwok.x-k8s.io/node"


def why_none(nodes: Iterable[Object]) -> str | None:
    """Returns the reason why no node can run the agents, or None if a node can.

    Judges no taints. A webhook can add tolerations to a pod, so only the pod itself shows if it tolerates a taint.
    """
    reasons = Counter[str]()
    for node in nodes:
        if _SIMULATED in map_at(node, "metadata", "annotations"):
            reasons["simulated by kwok"] += 1
        elif not _is_ready(node):
            reasons["not Ready"] += 1
        else:
            return None
    found = ", ".join(f"{count} {reason}" for reason, count in reasons.items()) or "none"
    return f"no node of the cluster can run the agents ({found}); add a node, or repair one"


def _is_ready(node: Object) -> bool:
    conditions = maps_at(map_at(node, "status"), "conditions")
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)
