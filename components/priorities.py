"""PriorityClasses: who goes first, who is evicted first."""

from enum import StrEnum

from components.spec import PriorityValue, Spec


class PreemptionPolicy(StrEnum):
    LOWER = "PreemptLowerPriority"
    NEVER = "Never"


class PrioritySpec(Spec):
    """A PriorityClass. Its value is immutable in Kubernetes: a change is a replacement."""

    value: PriorityValue
    preemption_policy: PreemptionPolicy = PreemptionPolicy.LOWER
    description: str = ""
