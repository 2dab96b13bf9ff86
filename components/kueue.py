"""Kueue itself, from its Helm chart."""

from pydantic import Field

from components.spec import ChartVersion, DnsLabel, Spec


class KueueSpec(Spec):
    """Kueue itself, from its Helm chart. Leave the key out where Kueue is installed already."""

    version: ChartVersion = Field(description="Chart and image; 0.18.6, 0.19.2 or later (docs/adr/0002).")
    namespace: DnsLabel = "kueue-system"
    exclude_resource_prefixes: list[str] = Field(
        default=["cpu", "memory", "ephemeral-storage"], description="Resources that the queues do not count."
    )
