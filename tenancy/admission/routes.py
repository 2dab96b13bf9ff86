"""Ways to get a GPU without an extended resource: a runtime, a claim for another driver's devices, a ConfigMap
(tenancy/reach.py).

Admission denies a pod without a budget that gets a GPU in one of these ways. The policies in namespaces.py cover host
paths by Pod Security.
"""

from collections.abc import Sequence

from tenancy import names, policy_names, reach
from tenancy.admission import cel
from tenancy.admission.policy import Manifest, ResourceRule, Scope, in_namespaces, outside_namespaces, validating
from tenancy.names import Names

_CLAIMS = (ResourceRule("CREATE", ("resourceclaims", "resourceclaimtemplates"), group=names.RESOURCE_GROUP),)
_ENVIRONMENTS = tuple(ResourceRule(operation, ("configmaps", "secrets")) for operation in ("CREATE", "UPDATE"))


def runtimes(resources: Names, budgetless: Sequence[str]) -> Manifest:
    """Allows NVIDIA's runtime only to a pod that asks for a device. The name of a RuntimeClass does not matter.

    The policy judges the handler of the RuntimeClass. The policy `gpu_budget` judges the RuntimeClasses that have
    NVIDIA's name.
    """
    named = f"object.spec.runtimeClassName.contains({cel.quoted(reach.RUNTIME)})"
    conditions = {
        "names-another-runtime": f"has(object.spec.runtimeClassName) && !{named}",
        "asks-for-no-device": f"!({cel.asks_for_device(resources)})",
    }
    other = (
        f"params.metadata.name != object.spec.runtimeClassName || !params.handler.contains({cel.quoted(reach.RUNTIME)})"
    )
    message = (
        f"this pod runs under NVIDIA's runtime without a budget: remove runtimeClassName, or add {resources.gpumem} "
        "(MiB) to the limits of the container that uses the device"
    )
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
    scope = Scope(outside_namespaces(budgetless), conditions)
    return validating(policy_names.DEVICE_RUNTIMES, scope, {other: message}, params=kind)


def environments(without_budget: Sequence[str], *, by_device: bool) -> list[Manifest]:
    """Denies a ConfigMap or Secret with the variable NVIDIA_VISIBLE_DEVICES. If a container reads
    NVIDIA_VISIBLE_DEVICES by envFrom, its value overrides the device plugin's choice.

    The policy for ConfigMaps and Secrets covers only namespaces in which the device plugin chooses devices. An object
    that already has the variable NVIDIA_VISIBLE_DEVICES may keep it.
    """
    if by_device and not without_budget:
        return []
    variable = cel.quoted(names.VISIBLE_DEVICES)
    namespaces = in_namespaces(without_budget) if by_device else outside_namespaces()
    scope = Scope(namespaces, {"has-the-variable": f"has(object.data) && {variable} in object.data"}, _ENVIRONMENTS)
    unchanged = (
        f"oldObject != null && has(oldObject.data) && {variable} in oldObject.data && "
        f"oldObject.data[{variable}] == object.data[{variable}]"
    )
    message = f"the key {names.VISIBLE_DEVICES} would choose devices by envFrom: remove it"
    return [validating(policy_names.DEVICE_ENVIRONMENT, scope, {unchanged: message})]


def claims(device_classes: Sequence[str]) -> Manifest:
    """Allows a claim only for a DeviceClass in `device_classes`, which give no GPU.

    The policy also judges the claims that kube-scheduler makes if a pod requests a DeviceClass as an extended resource.
    """
    allowed = cel.quoted_list(sorted(device_classes))
    holds = (
        f"variables.requests.all(r, (!has(r.exactly) || r.exactly.deviceClassName in {allowed}) && "
        f"(!has(r.firstAvailable) || r.firstAvailable.all(s, s.deviceClassName in {allowed})))"
    )
    message = (
        "this claim asks for devices beside the budgets: remove it, or list the DeviceClass under "
        "admission.device_classes of the stack if it gives no GPU"
    )
    variables = {
        "claim": "object.kind == 'ResourceClaimTemplate' ? object.spec.spec : object.spec",
        "requests": cel.claim_requests("variables.claim"),
    }
    return validating(policy_names.DEVICE_CLAIMS, Scope(outside_namespaces(), {}, _CLAIMS), {holds: message}, variables)
