"""The quotas of ClusterQueues and Cohorts, and the quantities that a quota accepts."""

from typing import Annotated

from pydantic import AfterValidator, Field

from components.base.amount import Amount
from components.base.spec import DnsLabel, ResourceName, Spec
from tenancy.quantity import QuantityError, whole

# Kueue counts cpu in thousandths, memory and ephemeral-storage in bytes, and all other resources in whole units.
PARTIAL_RESOURCES = ("cpu", "memory", "ephemeral-storage")
NonNegative = Annotated[int, Field(ge=0)]


class QuotaSpec(Spec):
    """The quota of one resource in one flavor."""

    nominal: Amount = Field(description="Quota that belongs to the queue or cohort itself (Kueue's nominalQuota).")
    borrowing_limit: Amount | None = Field(
        default=None,
        description="Maximum idle quota that the queue or cohort may borrow from its cohort. Default: nothing.",
    )
    lending_limit: Amount | None = Field(
        default=None,
        description="Maximum of the queue's or cohort's own quota that other queues of the cohort may "
        "borrow. Default: all.",
    )


Quotas = dict[DnsLabel, dict[ResourceName, QuotaSpec]]


def _count_devices_whole(quotas: Quotas) -> Quotas:
    for flavor, resources in quotas.items():
        for resource, quota in resources.items():
            for name, amount in quota if resource not in PARTIAL_RESOURCES else ():
                try:
                    whole(amount or 0)
                except QuantityError:
                    raise ValueError(f"{flavor}.{resource}.{name} must be a whole number (got {amount!r})") from None
    return quotas


ResourceGroups = Annotated[Quotas, AfterValidator(_count_devices_whole)]
