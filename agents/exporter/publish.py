"""Writes the node's ResourceSlice when the slice differs from the node's devices."""

from functools import partial

from agents.exporter.registry import Registry
from agents.kube.client import Api
from agents.kube.paths import below
from agents.kube.slices import SLICES
from agents.runtime.items import Unjudged, judged
from agents.telemetry import resourceslice
from agents.telemetry.device import Survey
from agents.telemetry.resourceslice import PublishingNode


def publish(api: Api, node: str, survey: Survey | None, registry: Registry) -> str | None:
    """Writes the node's ResourceSlice if it differs from the devices, and returns "created", "changed" or None.

    Raises AgentError. Writes nothing before the first NVML reading and the first list from the API.
    """
    ledger, owner = registry.ledger, registry.node
    if survey is None or ledger is None or owner is None:
        return None
    name = resourceslice.name_of(node, ledger.names)
    stored = registry.slices.get(name)
    host = PublishingNode(name=node, uid=owner.uid, caps=registry.caps)
    make = partial(resourceslice.slice_of, survey, host, ledger.names)
    if stored is None:
        api.create(SLICES, make(None))
        return "created"
    changed = judged(lambda: resourceslice.differs(make(stored), stored))
    if changed is False:
        return None
    wanted = make(None if isinstance(changed, Unjudged) else stored)  # an unreadable ResourceSlice is replaced
    metadata = {**wanted["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
    api.merge_patch(below(SLICES, name), {"metadata": metadata, "spec": wanted["spec"]})
    return "changed"
