"""Capacity: the ledger, and the reconcile agent that advertises it on the nodes."""

from typing import Annotated

from pydantic import Field, model_validator

from components.spec import Count, LabelKey, LabelValue, Mib, Seconds, Spec
from tenancy.ledger import Sharing


class PoolSpec(Spec):
    """Nodes chosen by labels whose devices are alike."""

    node_selector: dict[LabelKey, LabelValue] = Field(min_length=1, description="Labels that a node of the pool has.")
    nodes: Count = Field(description="How many nodes the selector is expected to match.")
    device_count: Count = Field(default=1, description="Physical devices on each node.")
    sharing: Sharing = Field(
        default=Sharing.MEMORY, description="memory: budgets in MiB on shared devices; whole: one tenant a device."
    )
    memory_mib: Mib | None = Field(default=None, description="Memory of one device, as the driver reports it.")
    reserve_mib: Annotated[int, Field(ge=0, le=2**31)] = Field(
        default=0, description="Kept back on each device: driver, contexts, tenants without a budget."
    )
    floor_mib: Annotated[int, Field(ge=0, le=2**31)] = Field(
        default=0, description="Free memory of a device under which the watchdog acts."
    )
    time_slices: Count = Field(default=1, description="nvidia.com/gpu that the device plugin shows for each device.")

    @model_validator(mode="after")
    def _memory_is_given_where_it_is_shared(self) -> "PoolSpec":
        if self.sharing is Sharing.MEMORY and self.memory_mib is None:
            raise ValueError("sharing is memory, so memory_mib is needed; write the device's size or sharing: whole")
        if self.sharing is Sharing.WHOLE and (self.memory_mib, self.reserve_mib, self.floor_mib) != (None, 0, 0):
            raise ValueError("sharing is whole: remove memory_mib, reserve_mib and floor_mib or write sharing: memory")
        if self.memory_mib is not None and self.reserve_mib >= self.memory_mib:
            raise ValueError(
                f"reserve_mib {self.reserve_mib} leaves nothing of memory_mib {self.memory_mib}; lower reserve_mib"
            )
        return self


class ReconcileSpec(Spec):
    """The agent that advertises gpumem and keeps it advertised."""

    interval_seconds: Seconds = Field(default=10, le=30)
