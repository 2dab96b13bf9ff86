"""Host memory oversubscribed on purpose: steady state reserved, peaks in slack (seed 001)."""

from pydantic import Field, model_validator

from components.spec import DnsLabel, LabelKey, LabelValue, Mib, Spec


class OversubscribedSpec(Spec):
    """A workload whose memory request is its steady state and whose peak goes into slack (seed 001)."""

    tenant: DnsLabel
    priority: DnsLabel
    request_mib: Mib
    limit_mib: Mib
    steady_mib: Mib
    peak_mib: Mib

    @model_validator(mode="after")
    def _is_ordered(self) -> "OversubscribedSpec":
        if not self.request_mib <= self.limit_mib:
            raise ValueError(f"request_mib {self.request_mib} must not exceed limit_mib {self.limit_mib}")
        if not self.steady_mib <= self.peak_mib <= self.limit_mib:
            raise ValueError(
                f"steady_mib {self.steady_mib} <= peak_mib {self.peak_mib} <= limit_mib {self.limit_mib} must hold"
            )
        return self


class DisposableSpec(Spec):
    """Pods that may be killed first: BestEffort, of the lowest class."""

    tenant: DnsLabel
    priority: DnsLabel


class MemoryPoolSpec(Spec):
    """Nodes whose host memory is oversubscribed on purpose."""

    node_selector: dict[LabelKey, LabelValue] = Field(min_length=1)
    allocatable_mib: Mib
    workloads: dict[DnsLabel, OversubscribedSpec] = Field(min_length=1)
    disposable: dict[DnsLabel, DisposableSpec] = Field(default_factory=dict)
