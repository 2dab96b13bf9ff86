"""PriorityClasses decide which pods are scheduled first, and which pods are evicted first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pulumi
from pydantic import Field

from components.base.manifest import (
    Manifest,
    client_side_provider,
    component_type,
    description_field,
    manifest,
    register,
)
from components.base.spec import PriorityValue, Spec


class PreemptionPolicy(StrEnum):
    LOWER = "PreemptLowerPriority"
    NEVER = "Never"


class PrioritySpec(Spec):
    """A PriorityClass. The value of a PriorityClass is immutable in Kubernetes, so a changed value replaces the
    class."""

    value: PriorityValue
    create: bool = Field(
        default=True,
        description="false: the class exists already with the declared value and preemption policy. The stack does "
        "not change an existing class.",
        examples=[False],
    )
    preemption_policy: PreemptionPolicy = Field(
        default=PreemptionPolicy.LOWER,
        description="Allows pods of this class to preempt pods with a lower priority, or forbids preemption (Never).",
    )
    description: str = Field(
        default="",
        description="Description that kubectl shows for the class.",
        examples=["Survives memory pressure"],
    )


@dataclass(frozen=True, kw_only=True)
class PrioritiesArgs:
    """Holds the PriorityClasses by name, and the configuration of the stack's default provider."""

    classes: Mapping[str, PrioritySpec]
    provider: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)


def priority_class(name: str, spec: PrioritySpec) -> Manifest:
    """Returns the PriorityClass. `globalDefault` is false, so pods without a class keep priority 0."""
    return manifest(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        name,
        "priorities",
        value=spec.value,
        preemptionPolicy=str(spec.preemption_policy),
        globalDefault=False,
        **description_field(spec.description),
    )


def existing_class(name: str, spec: PrioritySpec) -> Manifest:
    """Returns the fields that a PriorityClass of another program must have. The stack declares some fields of the
    PriorityClass, but the class belongs to another program.
    """
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": spec.value,
        "preemptionPolicy": str(spec.preemption_policy),
    }


class Priorities(pulumi.ComponentResource):
    """The PriorityClasses. Pulumi patches another program's PriorityClass with the declared values. If the
    PriorityClass already has the declared values, nothing changes. The API server refuses a change of a PriorityClass'
    value."""

    def __init__(self, name: str, args: PrioritiesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"classes": {key: spec.model_dump(mode="json") for key, spec in args.classes.items()}}
        super().__init__(component_type("Priorities"), name, props, opts)
        provider = client_side_provider(f"{name}-provider", args.provider, parent=self)
        for key, spec in args.classes.items():
            if spec.create:
                register(priority_class(key, spec), f"{name}-{key}", parent=self, provider=provider)
            else:
                register(existing_class(key, spec), f"{name}-{key}", parent=self, patch=True)
        self.register_outputs({})
