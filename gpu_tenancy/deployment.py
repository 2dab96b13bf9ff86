"""A Deployment on a resident's seat."""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, Unpack, overload

import pulumi

from components.base.manifest import Manifest, component_type, register
from gpu_tenancy import arguments
from gpu_tenancy.arguments import UNGIVEN, ArgumentError
from gpu_tenancy.seat import override_with_stanza, seat_problems, stanza
from tenancy.names import LABEL_NAME

_KIND = "SeatedDeployment"
# Fields of the pod and the container that the seat or the component sets.
_THE_SEATS = ("nodeSelector", "priorityClassName")
_OURS = ("containers",)
_OUR_CONTAINERS = ("image",)


class SeatedDeploymentArgs(TypedDict):
    """The arguments of a SeatedDeployment: the image, the seat, and other fields of the pod."""

    image: pulumi.Input[str]
    """The container's image."""

    platform: NotRequired[str]
    """The platform's stack, such as organization/gpu-tenancy/prod, which exports `residents`."""

    residents: NotRequired[pulumi.Input[dict[str, Any]]]
    """The output `residents` of a Platform in the same program, or a copy of this output. Set `residents`
    instead of `platform`."""

    resident: NotRequired[str]
    """The resident's name in the platform's settings, and the Deployment's name. Default: the component's name."""

    replicas: NotRequired[int]
    """The number of pods, at most the resident's replicas. Default: the resident's replicas."""

    env: NotRequired[pulumi.Input[dict[str, str]]]
    """The container's environment variables, as a map from name to value."""

    container: NotRequired[dict[str, Any]]
    """Other fields of the container in Kubernetes' form, such as command, ports, probes, volumeMounts, and resources
    other than GPUs."""

    pod: NotRequired[dict[str, Any]]
    """Other fields of the pod's spec in Kubernetes' form, such as volumes, serviceAccountName, securityContext and
    tolerations."""


class SeatedDeployment(pulumi.ComponentResource):
    """A Deployment with one container that uses a resident's seat. Budget, nodeSelector, tolerations and PriorityClass
    come from the platform. A rollout ends the old pod before the start of the new pod, because both pods need the same
    seat. The pod meets Pod Security `restricted`, unless the arguments `pod` or `container` change its securityContext.
    """

    name: pulumi.Output[str]
    """The Deployment's name."""

    namespace: pulumi.Output[str]
    """The tenant's namespace."""

    @overload
    def __init__(self, name: str, args: SeatedDeploymentArgs, opts: pulumi.ResourceOptions | None = None) -> None: ...

    @overload
    def __init__(
        self, name: str, *, opts: pulumi.ResourceOptions | None = None, **keywords: Unpack[SeatedDeploymentArgs]
    ) -> None: ...

    def __init__(
        self,
        name: str,
        args: SeatedDeploymentArgs = UNGIVEN,
        opts: pulumi.ResourceOptions | None = None,
        **keywords: Any,
    ) -> None:
        given = arguments.override_with_keywords(SeatedDeploymentArgs, args, keywords)
        problems = [
            *arguments.name_problems(SeatedDeploymentArgs, given),
            *seat_problems(given),
            *arguments.type_problems(given, replicas=int, container=Mapping, pod=Mapping),
        ]
        if problems := problems or _taken(given):
            raise ArgumentError(_KIND, name, problems)
        super().__init__(component_type(_KIND), name, {}, opts)
        seat = stanza(_KIND, name, given, parent=self)
        resident: str = given.get("resident", name)
        made = register(deployment(resident, given, seat), f"{name}-deployment", parent=self)
        self.name = made.urn.apply(lambda _: resident)
        self.namespace = seat["namespace"]
        self.register_outputs({"name": self.name, "namespace": self.namespace})


def deployment(resident: str, given: Mapping[str, Any], seat: pulumi.Output[dict[str, Any]]) -> Manifest:
    """Returns the Deployment. A rollout replaces several pods of the Deployment one after the other."""
    labels = {LABEL_NAME: resident}
    spec = pulumi.Output.all(pod_spec(given), seat).apply(lambda both: override_with_stanza(*both))
    replicas = seat.apply(lambda it: int(given.get("replicas", it.get("replicas", 1))))
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": resident, "namespace": seat["namespace"], "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": replicas.apply(_strategy),
            "template": {"metadata": {"labels": seat.apply(lambda it: labels | it.get("labels", {}))}, "spec": spec},
        },
    }


def _strategy(replicas: int) -> dict[str, Any]:
    if replicas == 1:
        return {"type": "Recreate"}
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def pod_spec(given: Mapping[str, Any]) -> Manifest:
    """Returns the pod's spec without the fields of the seat."""
    own, pod = given.get("container", {}), given.get("pod", {})
    container = {
        "name": "main",
        **own,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            **own.get("securityContext", {}),
        },
        "image": given["image"],
    }
    if "env" in given:
        named = pulumi.Output.from_input(given["env"]).apply(lambda env: [{"name": n, "value": env[n]} for n in env])
        container["env"] = pulumi.Output.all(own.get("env", []), named).apply(lambda both: [*both[0], *both[1]])
    return {
        **pod,
        "securityContext": {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
            **pod.get("securityContext", {}),
        },
        "containers": [container],
    }


def _taken(given: Mapping[str, Any]) -> list[str]:
    pod, container = given.get("pod", {}), given.get("container", {})
    resources = container.get("resources", {})
    asked = [
        f"container.resources.{kind}.{name}"
        for kind, amounts in (resources.items() if isinstance(resources, Mapping) else ())
        for name in (amounts if isinstance(amounts, Mapping) else ())
        if name.startswith("nvidia.com/") or name.endswith(("/gpumem", "/gpu-count"))
    ]
    seats = [*(f"pod.{field}" for field in _THE_SEATS if field in pod), *asked]
    ours = [
        *(f"pod.{field}" for field in _OURS if field in pod),
        *(f"container.{field}" for field in _OUR_CONTAINERS if field in container),
    ]
    return [
        *(f"{path}: is the seat's; remove it" for path in seats),
        *(f"{path}: is set by image and container; remove it" for path in ours),
    ]
