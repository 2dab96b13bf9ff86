"""Functions that return CEL expressions about a pod, for admission policies.

https://kubernetes.io/docs/reference/using-api/cel/ describes the language and its libraries. Reading an absent optional
field is an error in CEL, so each expression first tests such a field with has(). The CEL expressions read only the
limits of extended resources. The API server refuses a request for an extended resource that differs from the limit.
"""

import json
from collections.abc import Callable, Iterable, Mapping

from tenancy import reach
from tenancy.names import GPU, VISIBLE_DEVICES, Names, service_account_user

INIT_CONTAINERS = "(has(object.spec.initContainers) ? object.spec.initContainers : [])"
CONTAINERS = f"(object.spec.containers + {INIT_CONTAINERS})"

POD_CONTAINERS = ("containers", "initContainers")
_HIDDEN = json.dumps({"name": VISIBLE_DEVICES, "value": "void"})


def quoted(value: str) -> str:
    return json.dumps(value)


def quoted_list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, values))}]"


def quoted_account(namespace: str, name: str) -> str:
    """Returns the user name of a ServiceAccount."""
    return quoted(service_account_user(namespace, name))


def reaches_gpu(names: Names) -> str:
    """Returns CEL: the pod reaches a device by a resource, its environment, a mount, a runtime class or a host path."""
    given = f"{nvidias_gpu('k')} || k.startsWith({quoted(reach.CLAIMED_RESOURCES)})"
    resource = _has_limit("c", f"{given} || k == {quoted(names.gpumem)}")
    environment = f"has(c.env) && c.env.exists(e, {names_devices('e')})"
    volume = f"has(v.hostPath) && v.hostPath.path.matches({quoted(reach.DEVICE_PATHS)})"
    mount = f"has(c.volumeMounts) && c.volumeMounts.exists(m, m.mountPath.contains({quoted(reach.DEVICE_LIST_MOUNT)}))"
    return (
        f"{CONTAINERS}.exists(c, ({resource}) || ({environment}) || ({mount})) || "
        f"(has(object.spec.runtimeClassName) && object.spec.runtimeClassName.contains({quoted(reach.RUNTIME)})) || "
        f"(has(object.spec.volumes) && object.spec.volumes.exists(v, {volume}))"
    )


def nvidias_gpu(resource: str) -> str:
    """Returns CEL: the resource is one of NVIDIA, and not of a network card."""
    network = f"{resource}.matches({quoted(reach.NETWORK_RESOURCES)})"
    return f"({resource}.startsWith({quoted(reach.GPU_RESOURCES)}) && !{network})"


def about(pod: str, expression: str) -> str:
    """Returns the CEL expression for another pod than the object of the request."""
    return expression.replace("object.spec.", f"{pod}.spec.")


def seat_label(names: Names) -> str:
    """Returns CEL: the seat in the pod's label, or an empty string."""
    return f"object.metadata.?labels[?{quoted(names.seat_label)}].orValue('')"


def asks_for_device(names: Names) -> str:
    """Returns CEL: a container of the pod asks for gpumem, or for a device of NVIDIA's device plugin."""
    return f"{CONTAINERS}.exists(c, {_asks_for_device('c', names)})"


def asks_for(condition: str) -> str:
    """Returns CEL: a container of the pod has a limit above zero for a resource `k` that meets the condition."""
    return f"{CONTAINERS}.exists(c, {_has_limit('c', condition)})"


def asks_for_gpumem(names: Names) -> str:
    return asks_for(f"k == {quoted(names.gpumem)}")


def amounts_of(containers: str, resource: str) -> str:
    """Returns the list of the containers' requests for the resource, without containers that request none."""
    key = quoted(resource)
    asking = f"has(c.resources) && has(c.resources.limits) && {key} in c.resources.limits"
    return f"({containers}).filter(c, {asking}).map(c, quantity(c.resources.limits[{key}]).asInteger())"


def most_at_once(amount: Callable[[str], str]) -> str:
    """Returns CEL: the pod's largest total request at any time, as the scheduler counts it
    (tenancy.workload.largest_at_once).

    The total is the largest of several sums: all containers with all sidecars, and each init container with the
    sidecars before it. `amount` is the CEL for the request of one container.
    """
    running = f"object.spec.containers.map(c, {amount('c')}).sum()"
    sidecars = f"{INIT_CONTAINERS}.filter(s, {_is_sidecar('s')}).map(s, {amount('s')}).sum()"
    names = f"{INIT_CONTAINERS}.map(n, n.name)"
    earlier = f"{names}.indexOf(s.name) < {names}.indexOf(c.name)"
    before = f"{INIT_CONTAINERS}.filter(s, {_is_sidecar('s')} && {earlier}).map(s, {amount('s')}).sum()"
    starting = f"{INIT_CONTAINERS}.filter(c, !{_is_sidecar('c')}).map(c, {amount('c')} + {before})"
    return f"([{running} + {sidecars}] + {starting}).max()"


def requested(resource: str, per_unit: int) -> str:
    """Returns CEL: the most that the pod requests of cpu or memory at any time, in parts of a unit, as an integer. A
    request of the pod's own resources replaces those of its containers."""

    def of(owner: str) -> str:
        requests, key = f"{owner}.resources.requests", quoted(resource)
        amount = f"int(quantity({requests}[{key}]).asApproximateFloat() * {per_unit}.0)"
        return f"has({owner}.resources) && has({requests}) && {key} in {requests} ? {amount} : "

    return f"({of('object.spec')} {most_at_once(lambda container: f'({of(container)} 0)')})"


def gpumem_of(container: str, names: Names) -> str:
    """Returns the container's request for gpumem, or 0."""
    limits, key = f"{container}.resources.limits", quoted(names.gpumem)
    says = f"has({container}.resources) && has({limits}) && {key} in {limits}"
    return f"({says} ? quantity({limits}[{key}]).asInteger() : 0)"


def whole_devices_of(container: str) -> str:
    """Returns the number of devices that the container requests from the device plugin, summed over the plugin's
    resource names."""
    limits = f"{container}.resources.limits"
    asked = f"{limits}.filter(k, {of_device_plugin('k')}).map(k, quantity({limits}[k]).asInteger()).sum()"
    return f"(has({container}.resources) && has({limits}) ? {asked} : 0)"


def devices_of(names: Names) -> str:
    """Returns the number of devices on which the pod's gpumem is spread: the pod's gpu-count, or 1."""
    counts = amounts_of("object.spec.containers", names.gpu_count)
    return f"[1, {counts}.sum()].max()"


def claim_requests(claim: str) -> str:
    """Returns the list of requests in a ResourceClaim's spec. The list of requests is null in a claim that asks for
    nothing."""
    requests = f"{claim}.devices.requests"
    return f"has({claim}.devices) && has({requests}) && {requests} != null ? {requests} : []"


def chooses_device(container: str, names: Names) -> str:
    """Returns CEL: a variable of the container chooses devices without a reference to the scheduler's annotation."""
    scheduled = quoted(f"metadata.annotations['{names.device_annotation_prefix}")
    reference = (
        f"has(e.valueFrom) && has(e.valueFrom.fieldRef) && e.valueFrom.fieldRef.fieldPath.startsWith({scheduled})"
    )
    # envFrom adds its prefix before each key of the ConfigMap or Secret. The prefix and a key together can be the name
    # NVIDIA_VISIBLE_DEVICES.
    prefix = f"has(f.prefix) && f.prefix != '' && {quoted(VISIBLE_DEVICES)}.startsWith(f.prefix)"
    return (
        f"has({container}.env) && {container}.env.exists(e, {names_devices('e')} && !({reference})) || "
        f"has({container}.envFrom) && {container}.envFrom.exists(f, {prefix})"
    )


def sees_its_device(container: str, names: Names) -> str:
    """Returns CEL: the container has the variable NVIDIA_VISIBLE_DEVICES exactly once. The variable names the device
    that the scheduler chose, or has a value for no device.
    """
    nothing = quoted_list(reach.NO_DEVICES)
    device = (
        "has(e.valueFrom) && has(e.valueFrom.fieldRef) && "
        f"e.valueFrom.fieldRef.fieldPath == {quoted(_device_path(names))} || "
        f"!has(e.valueFrom) && (!has(e.value) || e.value in {nothing})"
    )
    variable, visible = f"{container}.env", f"e.name == {quoted(VISIBLE_DEVICES)}"
    return f"has({variable}) && {variable}.exists_one(e, {visible}) && {variable}.all(e, !({visible}) || {device})"


def add(path: str, value: str) -> str:
    """JSON Patch: adds a value at the path. The value of the JSON Patch is a CEL expression."""
    return f"[JSONPatch{{op: 'add', path: {quoted(path)}, value: {value}}}]"


def set_field(field: str, value: str) -> str:
    """JSON Patch: sets a top-level string of the pod's spec."""
    return add(f"/spec/{field}", quoted(value))


def default_field(field: str, value: str) -> str:
    """JSON Patch: sets a top-level string of the pod's spec if the pod lacks the field."""
    return f"(has(object.spec.{field}) ? [] : {set_field(field, value)})"


def drop_field(field: str) -> str:
    """JSON Patch: removes a top-level field of the pod's spec if the field is there."""
    return f"(has(object.spec.{field}) ? [JSONPatch{{op: 'remove', path: '/spec/{field}'}}] : [])"


def asking_containers(names: Names) -> dict[str, str]:
    """Returns a variable for each list of containers, with the names of the containers that ask for a device.

    `show_device` and `hide_devices` read these variables, because the limits of all containers would cost too much
    several times.
    """
    asking = f"filter(c, {_asks_for_device('c', names)}).map(c, c.name)"
    return {_asking(field): f"object.spec.{field}.{asking}" for field in POD_CONTAINERS}


def show_device(field: str, names: Names) -> str:
    """JSON Patch: makes the scheduler's device visible to each container that asks for a device and lacks the
    variable."""
    reference = json.dumps({"fieldRef": {"fieldPath": _device_path(names)}})
    device = f"{{'name': dyn({quoted(VISIBLE_DEVICES)}), 'valueFrom': dyn({reference})}}"
    return _add_variable(field, device, f"c.name in variables.{_asking(field)}")


def hide_devices(field: str) -> str:
    """JSON Patch: hides all devices from each container that asks for no device."""
    return _add_variable(field, _HIDDEN, f"!(c.name in variables.{_asking(field)})")


def hide_devices_from_new(field: str) -> str:
    """JSON Patch: hides all devices from each container that an update adds, even if the container asks for a
    device."""
    return _add_variable(
        field, _HIDDEN, f"!has(oldObject.spec.{field}) || !oldObject.spec.{field}.exists(o, o.name == c.name)"
    )


def path_of_container(field: str) -> str:
    """Returns CEL for the JSON Patch path of the container `c` in the list `field` of the pod's spec."""
    return f"'/spec/{field}/' + string(object.spec.{field}.map(n, n.name).indexOf(c.name))"


def override_node_selector(node_selector: Mapping[str, str]) -> str:
    """JSON Patch: adds labels to the pod's nodeSelector and overrides equal keys.

    An ApplyConfiguration would replace the whole nodeSelector, because the nodeSelector is an atomic field.
    """
    start = f"(has(object.spec.nodeSelector) ? [] : {add('/spec/nodeSelector', '{}')})"
    labels = (set_field(f"nodeSelector/{_escaped(key)}", value) for key, value in sorted(node_selector.items()))
    return " + ".join([start, *labels])


def set_label(key: str, value: str) -> str:
    """JSON Patch: sets a label of the object."""
    start = f"(has(object.metadata.labels) ? [] : {add('/metadata/labels', '{}')})"
    return f"{start} + {add(f'/metadata/labels/{_escaped(key)}', quoted(value))}"


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _add_variable(field: str, variable: str, condition: str) -> str:
    containers, path = f"object.spec.{field}", path_of_container(field)
    lacks = f"({condition}) && !(has(c.env) && c.env.exists(e, e.name == {quoted(VISIBLE_DEVICES)}))"
    start = f"filter(c, {lacks} && !has(c.env)).map(c, JSONPatch{{op: 'add', path: {path} + '/env', value: []}})"
    added = f"filter(c, {lacks}).map(c, JSONPatch{{op: 'add', path: {path} + '/env/-', value: {variable}}})"
    return f"(has({containers}) ? {containers}.{start} + {containers}.{added} : [])"


def _asking(field: str) -> str:
    return f"{field}Ask"


def _device_path(names: Names) -> str:
    return f"metadata.annotations['{names.device_uuid}']"


def _asks_for_device(container: str, names: Names) -> str:
    """Returns CEL: the container asks for gpumem or for a device of the device plugin.

    Other resources of NVIDIA, for example network cards, do not set the variable for GPUs. If a container has only such
    a resource, the variable NVIDIA_VISIBLE_DEVICES in the container's image would choose the GPUs.
    """
    return _has_limit(container, f"k == {quoted(names.gpumem)} || {of_device_plugin('k')}")


def of_device_plugin(resource: str) -> str:
    """Returns CEL: the device plugin offers devices, or parts of devices, under this resource name."""
    others = " || ".join(f"{resource}.startsWith({quoted(prefix)})" for prefix in reach.PLUGIN_RESOURCES)
    return f"({resource} == {quoted(GPU)} || {others})"


def _is_sidecar(container: str) -> str:
    return f"(has({container}.restartPolicy) && {container}.restartPolicy == 'Always')"


def _has_limit(container: str, condition: str) -> str:
    limits = f"{container}.resources.limits"
    exists = f"{limits}.exists(k, ({condition}) && {limits}[k] != '0')"
    return f"has({container}.resources) && has({limits}) && {exists}"


def names_devices(variable: str) -> str:
    """Returns CEL: the environment variable chooses devices, by a value or by a reference."""
    nothing = quoted_list(reach.NO_DEVICES)
    value = f"has({variable}.valueFrom) || (has({variable}.value) && !({variable}.value in {nothing}))"
    return f"{variable}.name == {quoted(VISIBLE_DEVICES)} && ({value})"
