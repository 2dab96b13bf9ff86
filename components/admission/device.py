"""Devices: no user may choose a device. A pod with a budget gets the device that its scheduler chose."""

from components.admission import cel
from components.admission.policy import POD_WRITES, ResourceRule, Scope, mutating, outside_namespaces, validating
from components.base.manifest import Manifest
from tenancy import names, policy_names, reach
from tenancy.names import Names

DEBUGGING = (ResourceRule("UPDATE", ("pods/ephemeralcontainers",)),)


def device_stamps(resources: Names, *, by_device: bool) -> list[Manifest]:
    """Hides all devices from containers that ask for no device, and makes the chosen device visible to containers with
    a budget.

    Many images set NVIDIA_VISIBLE_DEVICES=all. The container runtime treats an image that sets only CUDA_VERSION like
    NVIDIA_VISIBLE_DEVICES=all. Therefore admission sets NVIDIA_VISIBLE_DEVICES in each container. Debug containers and
    containers that a webhook adds later also need NVIDIA_VISIBLE_DEVICES. A value in a container's `env` overrides the
    values of `envFrom` and of the device plugin. Therefore the policies do not change a container that asks only for a
    device of the device plugin.
    """
    hide = [cel.hide_devices(field) for field in cel.POD_CONTAINERS]
    debugger = [cel.hide_devices_from_new("ephemeralContainers")]
    everywhere = outside_namespaces()
    return [
        *([_device_shown(resources)] if by_device else []),
        mutating(policy_names.DEVICE_HIDE, Scope(everywhere, {}), hide, cel.asking_containers(resources)),
        mutating(policy_names.DEVICE_STAMP_DEBUG, Scope(everywhere, {}, DEBUGGING), debugger),
    ]


def _device_shown(resources: Names) -> Manifest:
    asks = {"asks-for-gpumem": cel.asks_for_gpumem(resources)}
    operations = [
        cel.set_field("schedulerName", names.SCHEDULER_NAME),
        cel.default_field("runtimeClassName", names.GPU_RUNTIME_CLASS),
        *(cel.show_device(field, resources) for field in cel.POD_CONTAINERS),
    ]
    return mutating(
        policy_names.DEVICE_STAMP, Scope(outside_namespaces(), asks), operations, cel.asking_containers(resources)
    )


def device_placed(resources: Names, devices: int) -> Manifest:
    """Denies a pod that has a budget and lacks a field of `device_stamps`, or asks for more devices than a node has.

    The policy also denies a pod that names our scheduler and has no budget.

    `devices` is the largest number of devices on a node.
    """
    gpumem, gpu_count, visible = resources.gpumem, resources.gpu_count, names.VISIBLE_DEVICES
    ours = f"object.spec.schedulerName == {cel.quoted(names.SCHEDULER_NAME)}"
    runtime = cel.quoted(names.GPU_RUNTIME_CLASS)
    variables = {
        "asks": cel.asks_for_gpumem(resources),
        "initContainers": cel.INIT_CONTAINERS,
        "asked": cel.amounts_of("object.spec.containers + variables.initContainers", gpumem),
        "devices": cel.devices_of(resources),
    }
    requirements = {
        ours: f"a pod with {gpumem} is placed by device: remove schedulerName",
        "!has(object.spec.nodeName)": f"a pod with {gpumem} is placed by device: use nodeSelector instead of nodeName",
        f"has(object.spec.runtimeClassName) && object.spec.runtimeClassName == {runtime}": (
            f"a pod with {gpumem} runs under NVIDIA's runtime: remove runtimeClassName"
        ),
        f"{cel.CONTAINERS}.all(c, {cel.sees_its_device('c', resources)})": (
            f"this pod sets {visible}: remove it; a container that asks for {gpumem} gets its device"
        ),
        f"{cel.amounts_of('variables.initContainers', gpu_count)}.sum() == 0": (
            f"{gpu_count} is for the whole pod: ask for it in the containers, not in the init containers"
        ),
        f"variables.devices <= {devices}": (
            f"this pod asks for more {gpu_count} than a node has ({devices}): lower its limits"
        ),
        "variables.asked.all(mib, mib % variables.devices == 0)": (
            f"{gpumem} of each container is shared evenly by the pod's {gpu_count} devices: make it a multiple"
        ),
    }
    validations = {f"!variables.asks || ({holds})": message for holds, message in requirements.items()}
    validations[f"variables.asks || !({ours})"] = (
        f"schedulerName {names.SCHEDULER_NAME} is for pods with {gpumem}: remove it"
    )
    return validating(policy_names.DEVICE_PLACED, Scope(outside_namespaces(), {}), validations, variables)


_ANNOTATIONS = {
    "before": "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}",
    "after": "has(object.metadata.annotations) ? object.metadata.annotations : {}",
}
_AS_BEFORE = "k in variables.before && variables.before[k] == variables.after[k]"


def device_choice(resources: Names) -> Manifest:
    """Denies a pod that chooses a device by an environment variable, or by an annotation that a container runtime
    obeys.

    For an update of a pod, the policy judges only the changes. Therefore a pod that is older than the policy can still
    report its status and end.
    """
    no_choice = f"!variables.started.exists(c, {cel.chooses_device('c', resources)})"
    not_injected = f"variables.after.all(k, !k.matches({cel.quoted(reach.DEVICE_ANNOTATIONS)}) || {_AS_BEFORE})"
    validations = {
        no_choice: f"this pod chooses its device by {names.VISIBLE_DEVICES}: remove the variable; the scheduler gives "
        "one",
        not_injected: "this pod has a container runtime add devices, by an annotation under cdi.k8s.io, nri.io or "
        "alike: remove it",
    }
    variables = {
        "started": f"request.operation == 'CREATE' ? {cel.CONTAINERS} : "
        "request.subResource == 'ephemeralcontainers' && has(object.spec.ephemeralContainers) ? "
        "object.spec.ephemeralContainers : []",
        **_ANNOTATIONS,
    }
    return validating(policy_names.DEVICE_CHOICE, Scope(outside_namespaces(), {}, POD_WRITES), validations, variables)


def device_annotations(resources: Names) -> Manifest:
    """Denies changes to the scheduler's annotations on a pod. The extender computes the memory that pods hold on each
    device from the scheduler's annotations.
    """
    ours = _is_the_schedulers(resources)
    unchanged = (
        f"variables.after.all(k, !{ours} || {_AS_BEFORE}) && variables.before.all(k, !{ours} || k in variables.after)"
    )
    message = f"annotations under {resources.device_annotation_prefix} are the scheduler's: leave them as they are"
    scope = Scope(outside_namespaces(), {}, POD_WRITES)
    return validating(policy_names.DEVICE_ANNOTATIONS, scope, {unchanged: message}, _ANNOTATIONS)


def device_binding(resources: Names, account: str) -> Manifest:
    """Allows only the scheduler's account to write a Binding that names the pod's device.

    A Binding does not contain the pod's requests. Therefore no policy can know which Bindings of other accounts to
    deny. A pod that another account bound has no device annotations, so its containers get no device.
    """
    stranger = {"is-not-the-scheduler": f"request.userInfo.username != {cel.quoted(account)}"}
    scope = Scope({}, stranger, (ResourceRule("CREATE", ("pods/binding", "bindings")),))
    written = f"object.metadata.annotations.exists(k, {_is_the_schedulers(resources)})"
    message = f"annotations under {resources.device_annotation_prefix} are the scheduler's: remove them"
    return validating(policy_names.DEVICE_BINDING, scope, {f"!has(object.metadata.annotations) || !{written}": message})


def _is_the_schedulers(resources: Names) -> str:
    return f"k.startsWith({cel.quoted(resources.device_annotation_prefix)})"
