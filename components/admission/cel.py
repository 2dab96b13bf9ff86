"""CEL over a pod, for admission policies: expressions as text, put together from what names.py says.

The language and its libraries: https://kubernetes.io/docs/reference/using-api/cel/. An absent optional field is an
error in CEL, so each one stands behind has(). Only limits are read: the API refuses an extended resource without one.
"""

import json
from collections.abc import Callable, Mapping

from tenancy import reach
from tenancy.names import GPU, VISIBLE_DEVICES, Names

INIT_CONTAINERS = "(has(object.spec.initContainers) ? object.spec.initContainers : [])"
CONTAINERS = f"(object.spec.containers + {INIT_CONTAINERS})"

_HIDDEN = json.dumps({"name": VISIBLE_DEVICES, "value": "void"})


def text(value: str) -> str:
    """A CEL string literal."""
    return json.dumps(value)


def reaches_gpu(names: Names) -> str:
    """The pod gets at a device: by resource, environment, mount, runtime class or host path."""
    given = f"k.startsWith({text(reach.GPU_RESOURCES)}) || k.startsWith({text(reach.CLAIMED_RESOURCES)})"
    resource = _has_limit("c", f"{given} || k == {text(names.gpumem)}")
    environment = f"has(c.env) && c.env.exists(e, {_names_devices('e')})"
    volume = f"has(v.hostPath) && v.hostPath.path.matches({text(reach.DEVICE_PATHS)})"
    mount = f"has(c.volumeMounts) && c.volumeMounts.exists(m, m.mountPath.contains({text(reach.DEVICE_LIST_MOUNT)}))"
    return (
        f"{CONTAINERS}.exists(c, ({resource}) || ({environment}) || ({mount})) || "
        f"(has(object.spec.runtimeClassName) && object.spec.runtimeClassName.contains({text(reach.RUNTIME)})) || "
        f"(has(object.spec.volumes) && object.spec.volumes.exists(v, {volume}))"
    )


def of_old(expression: str) -> str:
    """What is said of a pod, of the pod as it was."""
    return expression.replace("object.spec.", "oldObject.spec.")


def asks_for_device(names: Names) -> str:
    """Some container of the pod asks for gpumem, or for a device of NVIDIA's plugin."""
    return f"{CONTAINERS}.exists(c, {_asks_for_device('c', names)})"


def asks_for(condition: str) -> str:
    """Some container of the pod has a limit above zero on a resource `k` that meets the condition."""
    return f"{CONTAINERS}.exists(c, {_has_limit('c', condition)})"


def asks_for_gpumem(names: Names) -> str:
    """Some container of the pod has a gpumem budget."""
    return asks_for(f"k == {text(names.gpumem)}")


def amounts_of(containers: str, resource: str) -> str:
    """What each of the containers asks for of the resource, as a list; those that ask for none are left out."""
    key = text(resource)
    asking = f"has(c.resources) && has(c.resources.limits) && {key} in c.resources.limits"
    return f"({containers}).filter(c, {asking}).map(c, quantity(c.resources.limits[{key}]).asInteger())"


def most_at_once(amount: Callable[[str], str]) -> str:
    """The most of something that a pod takes at once, as the scheduler reckons it (tenancy.workload.at_once): its
    containers and sidecars together, or an init container next to the sidecars before it. `amount` is a container's."""
    running = f"object.spec.containers.map(c, {amount('c')}).sum()"
    sidecars = f"{INIT_CONTAINERS}.filter(s, {_is_sidecar('s')}).map(s, {amount('s')}).sum()"
    before = f"{INIT_CONTAINERS}.transformList(j, s, j < i && {_is_sidecar('s')}, {amount('s')}).sum()"
    starting = f"{INIT_CONTAINERS}.transformList(i, c, !{_is_sidecar('c')}, {amount('c')} + {before})"
    return f"([{running} + {sidecars}] + {starting}).max()"


def gpumem_of(container: str, names: Names) -> str:
    """What the container asks for of gpumem, 0 where it does not say."""
    limits, key = f"{container}.resources.limits", text(names.gpumem)
    says = f"has({container}.resources) && has({limits}) && {key} in {limits}"
    return f"({says} ? quantity({limits}[{key}]).asInteger() : 0)"


def whole_devices_of(container: str) -> str:
    """How many devices of the device plugin's the container asks for, under all of their names together."""
    limits = f"{container}.resources.limits"
    asked = f"{limits}.transformList(k, v, {is_the_plugins('k')}, quantity(v).asInteger()).sum()"
    return f"(has({container}.resources) && has({limits}) ? {asked} : 0)"


def devices_of(names: Names) -> str:
    """The devices that the pod's gpumem is spread over: its gpu-count, and one where it says none."""
    counts = amounts_of("object.spec.containers", names.gpu_count)
    return f"[1, {counts}.sum()].max()"


def requests_of(claim: str) -> str:
    """What a ResourceClaim's spec asks for, as a list. One that asks for nothing has null there."""
    requests = f"{claim}.devices.requests"
    return f"has({claim}.devices) && has({requests}) && {requests} != null ? {requests} : []"


def chooses_device(container: str, names: Names) -> str:
    """The container's environment chooses devices, and not by what the scheduler wrote on the pod."""
    scheduled = text(f"metadata.annotations['{names.device_annotation_prefix}")
    reference = (
        f"has(e.valueFrom) && has(e.valueFrom.fieldRef) && e.valueFrom.fieldRef.fieldPath.startsWith({scheduled})"
    )
    # A prefix that the name begins with: a key makes the rest of it.
    prefix = f"has(f.prefix) && f.prefix != '' && {text(VISIBLE_DEVICES)}.startsWith(f.prefix)"
    return (
        f"has({container}.env) && {container}.env.exists(e, {_names_devices('e')} && !({reference})) || "
        f"has({container}.envFrom) && {container}.envFrom.exists(f, {prefix})"
    )


def sees_its_device(container: str, names: Names) -> str:
    """The container's environment has the variable once, and it shows the device that the scheduler chose, or none."""
    nothing = ", ".join(text(value) for value in reach.NO_DEVICES)
    device = (
        "has(e.valueFrom) && has(e.valueFrom.fieldRef) && "
        f"e.valueFrom.fieldRef.fieldPath == {text(_device_path(names))} || "
        f"!has(e.valueFrom) && (!has(e.value) || e.value in [{nothing}])"
    )
    variable, visible = f"{container}.env", f"e.name == {text(VISIBLE_DEVICES)}"
    return f"has({variable}) && {variable}.exists_one(e, {visible}) && {variable}.all(e, !({visible}) || {device})"


def set_field(field: str, value: str) -> str:
    """The JSON Patch operation that sets a top-level string of the pod's spec."""
    return add(f"/spec/{field}", text(value))


def default_field(field: str, value: str) -> str:
    """The JSON Patch operation that sets a top-level string of the pod's spec, where it says none itself."""
    return f"(has(object.spec.{field}) ? [] : {set_field(field, value)})"


def show_device(field: str, names: Names) -> str:
    """The JSON Patch operations that show the device that the scheduler chose to those of the pod's containers that ask
    for one. A container that has the variable is left alone."""
    reference = json.dumps({"fieldRef": {"fieldPath": _device_path(names)}})
    device = f"{{'name': dyn({text(VISIBLE_DEVICES)}), 'valueFrom': dyn({reference})}}"
    return _add_variable(field, device, _asks_for_device("c", names))


def hide_devices(field: str, names: Names) -> str:
    """The JSON Patch operations that show no device to those of the pod's containers that ask for none."""
    return _add_variable(field, _HIDDEN, f"!({_asks_for_device('c', names)})")


def hide_devices_from_new(field: str) -> str:
    """The same for those of the pod's containers that an update adds, whatever they ask for."""
    return _add_variable(
        field, _HIDDEN, f"!has(oldObject.spec.{field}) || !oldObject.spec.{field}.exists(o, o.name == c.name)"
    )


def drop_field(field: str) -> str:
    """The JSON Patch operation that removes a top-level field of the pod's spec, if it is there."""
    return f"(has(object.spec.{field}) ? [JSONPatch{{op: 'remove', path: '/spec/{field}'}}] : [])"


def merge_node_selector(node_selector: Mapping[str, str]) -> str:
    """The JSON Patch operations that add labels to the pod's nodeSelector, over what it says itself.

    Not an ApplyConfiguration: nodeSelector is atomic there, so that the pod's other labels would be lost.
    """
    start = f"(has(object.spec.nodeSelector) ? [] : {add('/spec/nodeSelector', '{}')})"
    escaped = ((key.replace("~", "~0").replace("/", "~1"), value) for key, value in sorted(node_selector.items()))
    return " + ".join([start, *(set_field(f"nodeSelector/{key}", value) for key, value in escaped)])


def _add_variable(field: str, variable: str, condition: str) -> str:
    """Adds the environment variable to the containers `c` of a list that meet the condition and lack it."""
    containers, path = f"object.spec.{field}", f"'/spec/{field}/' + string(i)"
    lacks = f"({condition}) && !(has(c.env) && c.env.exists(e, e.name == {text(VISIBLE_DEVICES)}))"
    start = f"transformList(i, c, {lacks} && !has(c.env), JSONPatch{{op: 'add', path: {path} + '/env', value: []}})"
    added = f"transformList(i, c, {lacks}, JSONPatch{{op: 'add', path: {path} + '/env/-', value: {variable}}})"
    return f"(has({containers}) ? {containers}.{start} + {containers}.{added} : [])"


def _device_path(names: Names) -> str:
    return f"metadata.annotations['{names.device_uuid}']"


def add(path: str, value: str) -> str:
    """The JSON Patch operation that adds a value, given as CEL, at the path."""
    return f"[JSONPatch{{op: 'add', path: {text(path)}, value: {value}}}]"


def _asks_for_device(container: str, names: Names) -> str:
    """The container asks for what shows it a device: gpumem, by our stamp, or a resource by which the device plugin
    does. Others of NVIDIA's, such as a network card, show none: an image's own variable would count."""
    return _has_limit(container, f"k == {text(names.gpumem)} || {is_the_plugins('k')}")


def is_the_plugins(resource: str) -> str:
    """The resource is one by which the device plugin gives a device, or a part of it."""
    others = " || ".join(f"{resource}.startsWith({text(prefix)})" for prefix in reach.PLUGIN_RESOURCES)
    return f"({resource} == {text(GPU)} || {others})"


def _is_sidecar(container: str) -> str:
    return f"(has({container}.restartPolicy) && {container}.restartPolicy == 'Always')"


def _has_limit(container: str, condition: str) -> str:
    """The container has a limit above zero on some resource `k` that meets the condition."""
    limits = f"{container}.resources.limits"
    exists = f"{limits}.exists(k, ({condition}) && {limits}[k] != '0')"
    return f"has({container}.resources) && has({limits}) && {exists}"


def _names_devices(variable: str) -> str:
    """The environment variable chooses devices: by a value that shows any, or by a reference to one."""
    nothing = ", ".join(text(value) for value in reach.NO_DEVICES)
    value = f"has({variable}.valueFrom) || (has({variable}.value) && !({variable}.value in [{nothing}]))"
    return f"{variable}.name == {text(VISIBLE_DEVICES)} && ({value})"
