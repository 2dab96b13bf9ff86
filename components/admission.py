"""Admission: what the API server stamps on pods and what it refuses."""

from pydantic import Field

from components.spec import DnsLabel, Spec


class AdmissionSpec(Spec):
    """What the API server stamps and refuses."""

    gpu_priority: DnsLabel = Field(description="Key of priorities: stamped on every pod that reaches a GPU.")
    tenant_priorities: dict[DnsLabel, DnsLabel] = Field(
        default_factory=dict, description="Key of tenants to key of priorities: stamped there instead."
    )
