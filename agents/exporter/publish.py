"""Writes the node's ResourceSlice when the slice differs from the node's devices."""

from agents.exporter.registry import Registry
from agents.kube.client import Api
from agents.kube.slices import SLICES
from agents.telemetry import resourceslice
from agents.telemetry.device import Survey
from agents.telemetry.resourceslice import PublishingNode


def publish(api: Api, node: str, survey: Survey | None, registry: Registry) -> str | None:
    """Writes the ResourceSlice if the slice differs from the devices. Returns "created", "changed" or None.

    Raises AgentError. Writes nothing before the first NVML reading and the first list from the API.
    """
    ledger, owner = registry.ledger, registry.node
    if survey is None or ledger is None or owner is None:
        return None
    name = resourceslice.name_of(node, ledger.names)
    stored = registry.slices.get(name)
    host = PublishingNode(name=node, uid=owner.uid, caps=registry.caps)
    wanted = resourceslice.slice_of(survey, host, ledger.names, stored)
    if stored is None:
        api.create(SLICES, wanted)
        return "created"
    if not resourceslice.differs(wanted, stored):
        return None
    metadata = {**wanted["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
    api.merge_patch(f"{SLICES}/{name}", {"metadata": metadata, "spec": wanted["spec"]})
    return "changed"
