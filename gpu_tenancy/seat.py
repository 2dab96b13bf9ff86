"""A resident's seat: the fields that the platform's stack requires in the resident's pods."""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, Unpack

import pulumi

from components.base.manifest import component_type
from gpu_tenancy import arguments
from gpu_tenancy.arguments import UNGIVEN, ArgumentError
from stacks.problems import nearest

_KIND = "Seat"


class SeatArgs(TypedDict):
    """The arguments of a Seat: the resident, and the platform that declares it."""

    platform: NotRequired[str]
    """The platform's stack, such as organization/gpu-tenancy/prod, which exports `residents`."""

    residents: NotRequired[pulumi.Input[dict[str, Any]]]
    """The output `residents` of a Platform in the same program, or a copy of this output. Set `residents`
    instead of `platform`."""

    resident: NotRequired[str]
    """The resident's name in the platform's settings. Default: the component's name."""


class Seat(pulumi.ComponentResource):
    """A resident's seat, for a workload that you declare yourself. The pods of the workload need the seat's labels."""

    namespace: pulumi.Output[str]
    """The tenant's namespace."""

    labels: pulumi.Output[dict[str, str]]
    """The pod's labels, which name the seat."""

    node_selector: pulumi.Output[dict[str, str]]
    """The pod's nodeSelector, with the node labels of the seat's pool."""

    tolerations: pulumi.Output[list[dict[str, Any]]]
    """The pod's tolerations, for the taints of the pool's nodes."""

    priority_class_name: pulumi.Output[str]
    """The pod's PriorityClass. The name is empty if the platform has no setting `admission`."""

    resources: pulumi.Output[dict[str, Any]]
    """The `resources` of the container that uses the device, with the budget."""

    replicas: pulumi.Output[int]
    """The number of the resident's replicas."""

    def __init__(
        self,
        name: str,
        args: SeatArgs = UNGIVEN,
        opts: pulumi.ResourceOptions | None = None,
        **keywords: Unpack[SeatArgs],
    ) -> None:
        given = arguments.override_with_keywords(SeatArgs, args, keywords)
        if problems := [*arguments.name_problems(SeatArgs, given), *seat_problems(given)]:
            raise ArgumentError(_KIND, name, problems)
        super().__init__(component_type(_KIND), name, {}, opts)
        self._given_name = name
        self._stanza = stanza(_KIND, name, given, parent=self)
        self.namespace = self._stanza["namespace"]
        self.labels = self._stanza.apply(lambda it: it.get("labels", {}))
        self.node_selector = self._stanza["nodeSelector"]
        self.tolerations = self._stanza.apply(lambda it: it.get("tolerations", []))
        self.priority_class_name = self._stanza.apply(lambda it: it.get("priorityClassName", ""))
        self.resources = self._stanza["resources"]
        self.replicas = self._stanza.apply(lambda it: int(it.get("replicas", 1)))
        self.register_outputs(
            {
                "namespace": self.namespace,
                "labels": self.labels,
                "nodeSelector": self.node_selector,
                "tolerations": self.tolerations,
                "priorityClassName": self.priority_class_name,
                "resources": self.resources,
                "replicas": self.replicas,
            }
        )

    def pod_spec(self, spec: pulumi.Input[Mapping[str, Any]]) -> pulumi.Output[dict[str, Any]]:
        """Returns a pod's spec with the fields of the seat. The first container uses the device."""

        def filled(both: Any) -> dict[str, Any]:
            pod, stanza = both
            if not pod.get("containers"):
                raise ArgumentError(_KIND, self._given_name, ["pod_spec: has no containers; add who uses the device"])
            return override_with_stanza(pod, stanza)

        return pulumi.Output.all(spec, self._stanza).apply(filled)


def seat_problems(given: Mapping[str, Any]) -> list[str]:
    """Returns one line for each problem with the arguments that choose the seat."""
    return [
        *arguments.choice_problems(given, "platform", "residents"),
        *arguments.type_problems(given, platform=str, resident=str),
    ]


def stanza(kind: str, name: str, given: Mapping[str, Any], *, parent: pulumi.Resource) -> pulumi.Output[dict[str, Any]]:
    """Returns the fields that the resident's pods need, from the platform's outputs. When the outputs are known, raises
    ArgumentError if the platform has no such resident."""
    resident = given.get("resident", name)

    def found(residents: Mapping[str, Any] | None) -> dict[str, Any]:
        if residents is None:
            raise ArgumentError(kind, name, [missing_output(given["platform"], "residents")])
        if resident not in residents:
            near = nearest(resident, residents, "residents")
            raise ArgumentError(kind, name, [f"resident: {resident!r} is none of the platform's residents; {near}"])
        return dict(residents[resident])

    return output(name, given, "residents", parent=parent).apply(found)


def output(name: str, given: Mapping[str, Any], which: str, *, parent: pulumi.Resource) -> pulumi.Output[Any]:
    """Returns an output of the platform: the argument with this name, or the output of the platform's stack. Returns
    None if the platform's stack has no such output."""
    if which in given:
        return pulumi.Output.from_input(given[which])
    opts = pulumi.ResourceOptions(parent=parent)
    return pulumi.StackReference(f"{name}-platform", given["platform"], opts).get_output(which)


def missing_output(stack: str, which: str) -> str:
    return (
        f"platform: the stack {stack} has no output {which}; roll it out first, and call export() of its Platform, or "
        "name another stack"
    )


def override_with_stanza(pod: Mapping[str, Any], stanza: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the pod's spec with the fields of the resident's stanza. The fields of the stanza override fields of the
    pod."""
    first, *others = pod["containers"]
    spec = {
        **pod,
        "nodeSelector": {**pod.get("nodeSelector", {}), **stanza["nodeSelector"]},
        "tolerations": [*pod.get("tolerations", ()), *stanza.get("tolerations", ())],
        "containers": [{**first, "resources": _resources(first.get("resources", {}), stanza["resources"])}, *others],
    }
    if "priorityClassName" in stanza:
        spec["priorityClassName"] = stanza["priorityClassName"]
    return spec


def _resources(own: Mapping[str, Any], seat: Mapping[str, Any]) -> dict[str, Any]:
    return {**own, **{field: {**own.get(field, {}), **value} for field, value in seat.items()}}
