"""Other routes to a GPU than a resource: a runtime, a claim of another driver, a ConfigMap.

Each needs a budget or is refused. What they are is tenancy/reach.py's. Paths of the node are Pod Security's
(pod_security.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, outside, validating, within
from components.base.manifest import Manifest
from tenancy import names, reach
from tenancy.names import Names

_COMPONENT = "admission"
_GROUP = names.RESOURCE_API.partition("/")[0]
_CLAIMS = (ResourceRule("CREATE", ("resourceclaims", "resourceclaimtemplates"), group=_GROUP),)
_ENVIRONMENTS = tuple(ResourceRule(operation, ("configmaps", "secrets")) for operation in ("CREATE", "UPDATE"))


@dataclass(frozen=True, kw_only=True)
class RoutesArgs:
    """`exempt`: namespaces out of every policy on pods. `without_budget`: tenants whose GPU pods carry no gpumem.
    `device_classes`: what may be claimed beside seats. `by_device`: pods with a budget are shown their device by our
    stamp, not by the device plugin."""

    names: Names
    exempt: Sequence[str]
    without_budget: Sequence[str]
    device_classes: Sequence[str]
    by_device: bool


def policies(args: RoutesArgs) -> list[Manifest]:
    """One for each route that can be there."""
    return [
        runtimes(args),
        *([environments(args)] if args.without_budget or not args.by_device else []),
        claims(args),
    ]


def runtimes(args: RoutesArgs) -> Manifest:
    """A runtime of NVIDIA's is for who asks for a device, whatever its RuntimeClass is called: the handler decides. The
    classes that are called so are gpu_budget's."""
    named = f"object.spec.runtimeClassName.contains({cel.text(reach.RUNTIME)})"
    conditions = {
        "names-another-runtime": f"has(object.spec.runtimeClassName) && !{named}",
        "asks-for-no-device": f"!({cel.asks_for_device(args.names)})",
    }
    scope = Scope(outside([*args.exempt, *args.without_budget]), conditions)
    other = (
        f"params.metadata.name != object.spec.runtimeClassName || !params.handler.contains({cel.text(reach.RUNTIME)})"
    )
    message = (
        f"this pod runs under NVIDIA's runtime without a budget: remove runtimeClassName, or add {args.names.gpumem} "
        "(MiB) to the limits of the container that uses the device"
    )
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    return validating(_COMPONENT, names.DEVICE_RUNTIMES, scope, {other: message}, params=kind)


def environments(args: RoutesArgs) -> Manifest:
    """No ConfigMap or Secret has the variable: by envFrom it would count instead of what the device plugin sets.

    Only where the plugin's choice counts. What is there already may stay, and its other keys change.
    """
    variable = cel.text(names.VISIBLE_DEVICES)
    namespaces = within(args.without_budget) if args.by_device else outside(args.exempt)
    scope = Scope(namespaces, {"has-the-variable": f"has(object.data) && {variable} in object.data"}, _ENVIRONMENTS)
    unchanged = (
        f"oldObject != null && has(oldObject.data) && {variable} in oldObject.data && "
        f"oldObject.data[{variable}] == object.data[{variable}]"
    )
    message = f"the key {names.VISIBLE_DEVICES} would choose devices by envFrom: remove it"
    return validating(_COMPONENT, names.DEVICE_ENVIRONMENT, scope, {unchanged: message})


def claims(args: RoutesArgs) -> Manifest:
    """Who claims devices claims a seat, or a class that the operator says is no GPU's. kube-scheduler's own claims, for
    a class that is asked for as an extended resource, are judged as well."""
    allowed = f"[{', '.join(map(cel.text, sorted(args.device_classes)))}]"
    suffix = cel.text(args.names.device_class(""))

    def may(request: str) -> str:
        name = f"{request}.deviceClassName"
        return f"({name}.endsWith({suffix}) || {name} in {allowed})"

    holds = (
        f"variables.requests.all(r, (!has(r.exactly) || {may('r.exactly')}) && "
        f"(!has(r.firstAvailable) || r.firstAvailable.all(s, {may('s')})))"
    )
    message = (
        "this claim asks for devices beside the budgets: claim a seat, or list the DeviceClass under "
        "admission.device_classes of the stack if it gives no GPU"
    )
    variables = {
        "claim": "object.kind == 'ResourceClaimTemplate' ? object.spec.spec : object.spec",
        "requests": cel.requests_of("variables.claim"),
    }
    scope = Scope(outside(args.exempt), {}, _CLAIMS)
    return validating(_COMPONENT, names.DEVICE_CLAIMS, scope, {holds: message}, variables)
