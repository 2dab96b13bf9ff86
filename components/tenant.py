"""A tenant: a namespace, the sum of its seats as a quota, and its people."""

from enum import StrEnum

from pydantic import Field

from components.spec import Count, DnsLabel, GroupName, Mib, Spec


class Role(StrEnum):
    """Kubernetes' own user-facing roles."""

    VIEW = "view"
    EDIT = "edit"


class TenantSpec(Spec):
    """A tenant is a namespace of its own name."""

    create_namespace: bool = Field(default=True, description="false: the namespace is there already and stays.")
    groups: dict[GroupName, Role] = Field(
        default_factory=dict, description="People: group of the identity provider to role (view, edit)."
    )


class ResidentSpec(Spec):
    """An always-on workload with a seat."""

    tenant: DnsLabel = Field(description="Key of tenants: the namespace it runs in.")
    pool: DnsLabel = Field(description="Key of pools: where its seat is.")
    gpumem_mib: Mib = Field(description="Budget of one replica, on one device.")
    replicas: Count = 1


class UnbudgetedSpec(Spec):
    """A workload that uses a device with neither seat nor gate; on record so that admission lets it pass."""

    tenant: DnsLabel
    pool: DnsLabel
    measured_mib: Mib = Field(description="What it was seen to use; covered by the pool's reserve.")
