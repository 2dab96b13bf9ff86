"""Devices: nobody chooses one; a pod with a budget gets the one that its scheduler chose."""

from collections.abc import Sequence
from dataclasses import dataclass

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, mutating, outside, validating
from components.base.manifest import Manifest
from tenancy import names, reach
from tenancy.names import Names

_COMPONENT = "admission"
_FIELDS = ("containers", "initContainers")
_DEBUGGING = (ResourceRule("UPDATE", ("pods/ephemeralcontainers",)),)


@dataclass(frozen=True, kw_only=True)
class ByDevice:
    """Placement by device: `account` is the user name of the scheduler that does it, `devices` the most that a node
    has."""

    account: str
    devices: int


@dataclass(frozen=True, kw_only=True)
class DeviceArgs:
    """`exempt`: namespaces out of every policy on pods. `by_device` is None where the device plugin chooses."""

    names: Names
    exempt: Sequence[str]
    by_device: ByDevice | None


def device_stamps(args: DeviceArgs) -> list[Manifest]:
    """Who asks for no device sees none, in whichever pod; who has a budget is sent to the scheduler that places by
    device, and sees what that chose.

    Images bake NVIDIA_VISIBLE_DEVICES=all in, and the runtime takes an image that has CUDA_VERSION alone to mean the
    same. So each container needs the variable, also a debugger that comes later, and one that a webhook adds. In a
    container `env` comes after `envFrom` and after what the device plugin adds, and the last one counts: a container
    with a device of the plugin's alone must be left as it is.
    """
    hide = [cel.hide_devices(field, args.names) for field in _FIELDS]
    debugger = [cel.hide_devices_from_new("ephemeralContainers")]
    everywhere = outside(args.exempt)
    return [
        *([_device_shown(args)] if args.by_device else []),
        mutating(_COMPONENT, names.DEVICE_HIDE, Scope(everywhere, {}), hide),
        mutating(_COMPONENT, names.DEVICE_STAMP_DEBUG, Scope(everywhere, {}, _DEBUGGING), debugger),
    ]


def _device_shown(args: DeviceArgs) -> Manifest:
    asks = {"asks-for-gpumem": cel.asks_for_gpumem(args.names)}
    operations = [
        cel.set_field("schedulerName", names.SCHEDULER_NAME),
        cel.default_field("runtimeClassName", names.GPU_RUNTIME_CLASS),
        *(cel.show_device(field, args.names) for field in _FIELDS),
    ]
    return mutating(_COMPONENT, names.DEVICE_STAMP, Scope(outside(args.exempt), asks), operations)


def device_placed(args: DeviceArgs, by_device: ByDevice) -> Manifest:
    """A pod with a budget is as the stamp makes it, asks for what devices can give, and no other pod looks like it."""
    gpumem, gpu_count, visible = args.names.gpumem, args.names.gpu_count, names.VISIBLE_DEVICES
    ours = f"object.spec.schedulerName == {cel.text(names.SCHEDULER_NAME)}"
    runtime = cel.text(names.GPU_RUNTIME_CLASS)
    variables = {
        "asks": cel.asks_for_gpumem(args.names),
        "initContainers": cel.INIT_CONTAINERS,
        "asked": cel.amounts_of("object.spec.containers + variables.initContainers", gpumem),
        "devices": cel.devices_of(args.names),
    }
    requirements = {
        ours: f"a pod with {gpumem} is placed by device: remove schedulerName",
        "!has(object.spec.nodeName)": f"a pod with {gpumem} is placed by device: use nodeSelector instead of nodeName",
        f"has(object.spec.runtimeClassName) && object.spec.runtimeClassName == {runtime}": (
            f"a pod with {gpumem} runs under NVIDIA's runtime: remove runtimeClassName"
        ),
        f"{cel.CONTAINERS}.all(c, {cel.sees_its_device('c', args.names)})": (
            f"this pod sets {visible}: remove it; a container that asks for {gpumem} gets its device"
        ),
        f"{cel.amounts_of('variables.initContainers', gpu_count)}.sum() == 0": (
            f"{gpu_count} is for the whole pod: ask for it in the containers, not in the init containers"
        ),
        f"variables.devices <= {by_device.devices}": (
            f"this pod asks for more {gpu_count} than a node has ({by_device.devices}): lower its limits"
        ),
        "variables.asked.all(mib, mib % variables.devices == 0)": (
            f"{gpumem} of each container is shared evenly by the pod's {gpu_count} devices: make it a multiple"
        ),
    }
    validations = {f"!variables.asks || ({holds})": message for holds, message in requirements.items()}
    validations[f"variables.asks || !({ours})"] = (
        f"schedulerName {names.SCHEDULER_NAME} is for pods with {gpumem}: remove it"
    )
    return validating(_COMPONENT, names.DEVICE_PLACED, Scope(outside(args.exempt), {}), validations, variables)


def device_choice(args: DeviceArgs) -> Manifest:
    """Nobody chooses a device: neither by environment, nor by the annotations that the scheduler's Binding writes, nor
    by those that a container runtime follows.

    An update is judged by what it changes, so that a pod from before the policy can still report its status and go.
    """
    prefix, ours = args.names.device_annotation_prefix, _is_the_schedulers(args)
    rules = (
        ResourceRule("CREATE", ("pods",)),
        ResourceRule("UPDATE", ("pods", "pods/status", "pods/ephemeralcontainers", "pods/resize")),
    )
    no_choice = f"!variables.started.exists(c, {cel.chooses_device('c', args.names)})"
    as_before = "k in variables.before && variables.before[k] == variables.after[k]"
    unchanged = (
        f"variables.after.all(k, !{ours} || {as_before}) && variables.before.all(k, !{ours} || k in variables.after)"
    )
    not_injected = f"variables.after.all(k, !k.matches({cel.text(reach.DEVICE_ANNOTATIONS)}) || {as_before})"
    validations = {
        no_choice: f"this pod chooses its device by {names.VISIBLE_DEVICES}: remove the variable; the scheduler gives "
        "one",
        unchanged: f"annotations under {prefix} are the scheduler's: leave them as they are",
        not_injected: "this pod has a container runtime add devices, by an annotation under cdi.k8s.io, nri.io or "
        "alike: remove it",
    }
    variables = {
        "started": f"request.operation == 'CREATE' ? {cel.CONTAINERS} : "
        "request.subResource == 'ephemeralcontainers' && has(object.spec.ephemeralContainers) ? "
        "object.spec.ephemeralContainers : []",
        "before": "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}",
        "after": "has(object.metadata.annotations) ? object.metadata.annotations : {}",
    }
    return validating(_COMPONENT, names.DEVICE_CHOICE, Scope(outside(args.exempt), {}, rules), validations, variables)


def device_binding(args: DeviceArgs) -> Manifest:
    """A Binding says which device a pod gets only if it is the scheduler's.

    That nobody else binds the pod itself cannot be said here: a Binding does not tell what its pod asks for. Bound
    without the annotations, its containers get no device.
    """
    account = args.by_device.account if args.by_device else names.SCHEDULER_ACCOUNT
    stranger = {"is-not-the-scheduler": f"request.userInfo.username != {cel.text(account)}"}
    scope = Scope({}, stranger, (ResourceRule("CREATE", ("pods/binding", "bindings")),))
    written = f"object.metadata.annotations.exists(k, {_is_the_schedulers(args)})"
    message = f"annotations under {args.names.device_annotation_prefix} are the scheduler's: remove them"
    return validating(
        _COMPONENT, names.DEVICE_BINDING, scope, {f"!has(object.metadata.annotations) || !{written}": message}
    )


def _is_the_schedulers(args: DeviceArgs) -> str:
    """The annotation `k` is one that only the scheduler writes."""
    return f"k.startsWith({cel.text(args.names.device_annotation_prefix)})"
