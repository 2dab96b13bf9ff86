"""Devices: no user may choose a device. A pod with a budget gets the device that its scheduler chose."""

from tenancy import names, policy_names, reach
from tenancy.admission import cel
from tenancy.admission.policy import (
    POD_CREATION,
    POD_WRITES,
    Manifest,
    ResourceRule,
    Scope,
    mutating,
    outside_namespaces,
    validating,
)
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


def device_placed(resources: Names) -> Manifest:
    """Denies a pod that has a budget and lacks a field of `device_stamps`.

    Also denies a pod that names our scheduler and has no budget.
    """
    gpumem, gpu_count, visible = resources.gpumem, resources.gpu_count, names.VISIBLE_DEVICES
    ours = f"object.spec.schedulerName == {cel.quoted(names.SCHEDULER_NAME)}"
    asks, runtime = cel.asks_for_gpumem(resources), cel.quoted(names.GPU_RUNTIME_CLASS)
    requirements = {
        ours: f"a pod with {gpumem} is placed by device: remove schedulerName",
        "!has(object.spec.nodeName)": f"a pod with {gpumem} is placed by device: use nodeSelector instead of nodeName",
        f"has(object.spec.runtimeClassName) && object.spec.runtimeClassName == {runtime}": (
            f"a pod with {gpumem} runs under NVIDIA's runtime: remove runtimeClassName"
        ),
        f"{cel.CONTAINERS}.all(c, {cel.sees_its_device('c', resources)})": (
            f"this pod sets {visible}: remove it; a container that asks for {gpumem} gets its device"
        ),
        f"{cel.amounts_of(cel.INIT_CONTAINERS, gpu_count)}.sum() == 0": (
            f"{gpu_count} is for the whole pod: ask for it in the containers, not in the init containers"
        ),
    }
    validations = {f"!variables.asks || ({holds})": message for holds, message in requirements.items()}
    validations[f"variables.asks || !({ours})"] = (
        f"schedulerName {names.SCHEDULER_NAME} is for pods with {gpumem}: remove it"
    )
    by_device = {"is-placed-by-device": f"{asks} || {ours}"}
    return validating(policy_names.DEVICE_PLACED, Scope(outside_namespaces(), by_device), validations, {"asks": asks})


def device_spread(resources: Names, devices: int) -> Manifest:
    """Denies a pod that asks for more devices than a node has, or whose gpumem is not the same on each of its devices.

    `devices` is the largest number of devices on a node.
    """
    gpumem, gpu_count = resources.gpumem, resources.gpu_count
    variables = {"asked": cel.amounts_of(cel.CONTAINERS, gpumem), "devices": cel.devices_of(resources)}
    validations = {
        f"variables.devices <= {devices}": (
            f"this pod asks for more {gpu_count} than a node has ({devices}): lower its limits"
        ),
        "variables.asked.all(mib, mib % variables.devices == 0)": (
            f"{gpumem} of each container is shared evenly by the pod's {gpu_count} devices: make it a multiple"
        ),
    }
    scope = Scope(outside_namespaces(), {"asks-for-gpumem": cel.asks_for_gpumem(resources)})
    return validating(policy_names.DEVICE_SPREAD, scope, validations, variables)


def device_choices(resources: Names) -> list[Manifest]:
    """Denies a pod that chooses a device by an environment variable, or by an annotation that a container runtime
    obeys.

    For an update of a pod, the policies judge only the changes. Therefore a pod that is older than the policies can
    still report its status and end.
    """
    started = f"(request.operation == 'CREATE' ? {cel.CONTAINERS} : object.spec.?ephemeralContainers.orValue([]))"
    by_variable = {"chooses-a-device": f"{started}.exists(c, {cel.chooses_device('c', resources)})"}
    chosen = f"this pod chooses its device by {names.VISIBLE_DEVICES}: remove the variable, and ask for a GPU"
    by_annotation = {"has-devices-added": _writes_an_annotation(f"k.matches({cel.quoted(reach.DEVICE_ANNOTATIONS)})")}
    added = (
        "this pod has a container runtime add devices, by an annotation under cdi.k8s.io, nri.io or alike: remove it"
    )
    starts = Scope(outside_namespaces(), by_variable, (*POD_CREATION, *DEBUGGING))
    writes = Scope(outside_namespaces(), by_annotation, POD_WRITES)
    return [
        validating(policy_names.DEVICE_CHOICE, starts, {"false": chosen}),
        validating(f"{policy_names.DEVICE_CHOICE}-annotations", writes, {"false": added}),
    ]


def device_annotations(resources: Names) -> Manifest:
    """Denies changes to the scheduler's annotations on a pod. The extender computes the memory that pods hold on each
    device from the scheduler's annotations.
    """
    ours = _is_the_schedulers(resources)
    changes = f"{_writes_an_annotation(ours)} || {_BEFORE}.exists(k, {ours} && !(k in {_AFTER}))"
    message = f"annotations under {resources.device_annotation_prefix} are the scheduler's: leave them as they are"
    scope = Scope(outside_namespaces(), {"changes-an-annotation": changes}, POD_WRITES)
    return validating(policy_names.DEVICE_ANNOTATIONS, scope, {"false": message})


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


_AFTER = "object.metadata.?annotations.orValue({})"
_BEFORE = "(oldObject == null ? {} : oldObject.metadata.?annotations.orValue({}))"


def _writes_an_annotation(condition: str) -> str:
    """Returns CEL: the request adds or changes an annotation, and the annotation's key `k` meets the condition."""
    return f"{_AFTER}.exists(k, {condition} && !(k in {_BEFORE} && {_BEFORE}[k] == {_AFTER}[k]))"


def _is_the_schedulers(resources: Names) -> str:
    return f"k.startsWith({cel.quoted(resources.device_annotation_prefix)})"
