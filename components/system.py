"""The namespaces of the agents and what every agent shares."""

from pydantic import Field

from components.spec import DnsDomain, DnsLabel, ImageReference, Spec


class ClusterSpec(Spec):
    """What all parts share."""

    resource_domain: DnsDomain = Field(description="Domain of the extended resource: <domain>/gpumem, in whole MiB.")
    system_namespace: DnsLabel = Field(
        default="gpu-tenancy-system", description="Namespace of the agents and the ledger; made by the stack."
    )
    agent_image: ImageReference = Field(
        description="Image of every agent: any Python >= 3.11 with the standard library; the code comes in a ConfigMap."
    )
