"""PriorityClasses decide which pods are scheduled first, and which pods are evicted first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pulumi
from pydantic import Field

from components.base.manifest import Manifest, client_side, component_type, description_field, manifest, register
from components.base.spec import PriorityValue, Spec


class PreemptionPolicy(StrEnum):
    LOWER = "PreemptLowerPriority"
    NEVER = "Never"


class PrioritySpec(Spec):
    """A PriorityClass. Its value is immutable in Kubernetes: a change is a replacement."""

    value: PriorityValue
    create: bool = Field(
        default=True,
        description="false: the class is there already, with this value and policy. It stays as it is.",
        examples=[False],
    )
    preemption_policy: PreemptionPolicy = Field(
        default=PreemptionPolicy.LOWER,
        description="Permits its pods to preempt pods of a lower priority, or forbids it (Never).",
    )
    description: str = Field(
        default="", description="Description of the class for people.", examples=["Survives memory pressure"]
    )


@dataclass(frozen=True, kw_only=True)
class PrioritiesArgs:
    """Holds the classes by name, and the configuration of the stack's own provider."""

    classes: Mapping[str, PrioritySpec]
    provider: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)


def priority_class(name: str, spec: PrioritySpec) -> Manifest:
    """Returns the PriorityClass. The class is never the cluster's default, so a pod without a class keeps priority
    0."""
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
    """Returns the fields in which a PriorityClass that the stack does not own must agree."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": spec.value,
        "preemptionPolicy": str(spec.preemption_policy),
    }


class Priorities(pulumi.ComponentResource):
    """The PriorityClasses. A class of somebody else is patched with the values that it has: nothing changes, and the
    API server refuses another value."""

    def __init__(self, name: str, args: PrioritiesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"classes": {key: spec.model_dump(mode="json") for key, spec in args.classes.items()}}
        super().__init__(component_type("Priorities"), name, props, opts)
        provider = client_side(f"{name}-provider", args.provider, parent=self)
        for key, spec in args.classes.items():
            if spec.create:
                register(priority_class(key, spec), f"{name}-{key}", parent=self, provider=provider)
            else:
                register(existing_class(key, spec), f"{name}-{key}", parent=self, patch=True)
        self.register_outputs({})
