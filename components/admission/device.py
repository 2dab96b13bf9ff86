"""Devices: nobody chooses one; a pod with a budget gets the one that its scheduler chose."""

from collections.abc import Sequence
from dataclasses import dataclass

from components.admission import cel
from components.admission.policy import ResourceRule, Scope, mutating, outside, validating
from components.base.manifest import Manifest
from tenancy import names
from tenancy.names import Names

_COMPONENT = "admission"
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
    """Sends the pods with a budget to the scheduler that places by device, and shows them what it chose.

    Images bake NVIDIA_VISIBLE_DEVICES=all in, so each container of such a pod needs the variable: the device where it
    asks for one, no device where it does not, also in a debugger that comes later. In a container `env` comes after
    `envFrom` and after what the device plugin adds, and the last one counts.
    """
    asks = {"asks-for-gpumem": cel.asks_for_gpumem(args.names)}
    operations = [
        cel.set_field("schedulerName", names.SCHEDULER_NAME),
        cel.default_field("runtimeClassName", names.GPU_RUNTIME_CLASS),
        *(cel.show_device(field, args.names) for field in ("containers", "initContainers")),
    ]
    debugger = [cel.hide_devices("ephemeralContainers")]
    return [
        mutating(_COMPONENT, names.DEVICE_STAMP, Scope(outside(args.exempt), asks), operations),
        mutating(_COMPONENT, names.DEVICE_STAMP_DEBUG, Scope(outside(args.exempt), asks, _DEBUGGING), debugger),
    ]


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
    """Nobody chooses a device: neither by environment nor by the annotations that the scheduler's Binding writes.

    An update is judged by what it changes, so that a pod from before the policy can still report its status and go.
    """
    prefix, ours = args.names.device_annotation_prefix, _is_the_schedulers(args)
    rules = (
        ResourceRule("CREATE", ("pods",)),
        ResourceRule("UPDATE", ("pods", "pods/status", "pods/ephemeralcontainers", "pods/resize")),
    )
    no_choice = f"!variables.started.exists(c, {cel.chooses_device('c', args.names)})"
    unchanged = (
        f"variables.after.all(k, !{ours} || k in variables.before && variables.before[k] == variables.after[k]) && "
        f"variables.before.all(k, !{ours} || k in variables.after)"
    )
    validations = {
        no_choice: f"this pod chooses its device by {names.VISIBLE_DEVICES}: remove the variable; the scheduler gives "
        "one",
        unchanged: f"annotations under {prefix} are the scheduler's: leave them as they are",
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
