"""PriorityClasses: who is scheduled first, who is evicted first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pulumi

from components.base.manifest import Manifest, client_side, component_type, register
from components.base.spec import PriorityValue, Spec
from tenancy.names import labels

_COMPONENT = "priorities"


class PreemptionPolicy(StrEnum):
    LOWER = "PreemptLowerPriority"
    NEVER = "Never"


class PrioritySpec(Spec):
    """A PriorityClass. Its value is immutable in Kubernetes: a change is a replacement."""

    value: PriorityValue
    preemption_policy: PreemptionPolicy = PreemptionPolicy.LOWER
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class PrioritiesArgs:
    """The classes by name; and the configuration of the stack's own provider, by which they reach its cluster."""

    classes: Mapping[str, PrioritySpec]
    provider: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)


def priority_class(name: str, spec: PrioritySpec) -> Manifest:
    """The PriorityClass; never the cluster's default, so that a pod without a class keeps priority 0."""
    manifest: Manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "labels": labels(_COMPONENT)},
        "value": spec.value,
        "preemptionPolicy": str(spec.preemption_policy),
        "globalDefault": False,
    }
    return {**manifest, "description": spec.description} if spec.description else manifest


class Priorities(pulumi.ComponentResource):
    """Declares the PriorityClasses."""

    values: pulumi.Output[dict[str, int]]

    def __init__(self, name: str, args: PrioritiesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"classes": {key: spec.model_dump(mode="json") for key, spec in args.classes.items()}}
        super().__init__(component_type("Priorities"), name, props, opts)
        provider = client_side(f"{name}-provider", args.provider, parent=self)
        classes = [
            register(priority_class(key, spec), f"{name}-{key}", parent=self, provider=provider)
            for key, spec in args.classes.items()
        ]
        values = {key: spec.value for key, spec in args.classes.items()}
        self.values = pulumi.Output.all(*(declared.urn for declared in classes)).apply(lambda _: values)
        self.register_outputs({"values": self.values})
