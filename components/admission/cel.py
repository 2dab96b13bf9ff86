"""CEL over a pod, for admission policies: expressions as text, put together from what names.py says.

The language and its libraries: https://kubernetes.io/docs/reference/using-api/cel/. An absent optional field is an
error in CEL, so each one stands behind has(). Only limits are read: the API refuses an extended resource without one.
"""

import json
from collections.abc import Mapping

from tenancy.names import GPU, GPU_RUNTIME_CLASS, VISIBLE_DEVICES, Names

INIT_CONTAINERS = "(has(object.spec.initContainers) ? object.spec.initContainers : [])"
CONTAINERS = f"(object.spec.containers + {INIT_CONTAINERS})"

# Every resource of NVIDIA's device plugin: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb.
_GPU_PREFIX = f"{GPU.partition('/')[0]}/"
# /dev itself and /dev/nvidia*, however they are spelled; the API refuses "..".
_DEVICE_PATH = "^(/+[.]?)*dev(/+[.]?)*(nvidia.*)?$"
# Values that show a container no device (internal/config/image/devices.go of nvidia-container-toolkit).
_NO_DEVICES = ("", "none", "void")
_HIDDEN = json.dumps({"name": VISIBLE_DEVICES, "value": "void"})


def text(value: str) -> str:
    """A CEL string literal."""
    return json.dumps(value)


def reaches_gpu(names: Names) -> str:
    """The pod gets at a device: by resource, environment, runtime class or host path."""
    resource = _has_limit("c", f"k.startsWith({text(_GPU_PREFIX)}) || k == {text(names.gpumem)}")
    environment = f"has(c.env) && c.env.exists(e, {_names_devices('e')})"
    volume = f"has(v.hostPath) && v.hostPath.path.matches({text(_DEVICE_PATH)})"
    return (
        f"{CONTAINERS}.exists(c, ({resource}) || ({environment})) || "
        f"(has(object.spec.runtimeClassName) && object.spec.runtimeClassName == {text(GPU_RUNTIME_CLASS)}) || "
        f"(has(object.spec.volumes) && object.spec.volumes.exists(v, {volume}))"
    )


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


def devices_of(names: Names) -> str:
    """The devices that the pod's gpumem is spread over: its gpu-count, and one where it says none."""
    counts = amounts_of("object.spec.containers", names.gpu_count)
    return f"[1, {counts}.sum()].max()"


def chooses_device(container: str, names: Names) -> str:
    """The container's environment chooses devices, and not by what the scheduler wrote on the pod."""
    scheduled = text(f"metadata.annotations['{names.device_annotation_prefix}")
    reference = (
        f"has(e.valueFrom) && has(e.valueFrom.fieldRef) && e.valueFrom.fieldRef.fieldPath.startsWith({scheduled})"
    )
    return f"has({container}.env) && {container}.env.exists(e, {_names_devices('e')} && !({reference}))"


def sees_its_device(container: str, names: Names) -> str:
    """The container's environment has the variable once, and it shows the device that the scheduler chose, or none."""
    nothing = ", ".join(text(value) for value in _NO_DEVICES)
    device = (
        "has(e.valueFrom) && has(e.valueFrom.fieldRef) && "
        f"e.valueFrom.fieldRef.fieldPath == {text(_device_path(names))} || "
        f"!has(e.valueFrom) && (!has(e.value) || e.value in [{nothing}])"
    )
    variable, visible = f"{container}.env", f"e.name == {text(VISIBLE_DEVICES)}"
    return f"has({variable}) && {variable}.exists_one(e, {visible}) && {variable}.all(e, !({visible}) || {device})"


def set_field(field: str, value: str) -> str:
    """The JSON Patch operation that sets a top-level string of the pod's spec."""
    return _add(f"/spec/{field}", text(value))


def default_field(field: str, value: str) -> str:
    """The JSON Patch operation that sets a top-level string of the pod's spec, where it says none itself."""
    return f"(has(object.spec.{field}) ? [] : {set_field(field, value)})"


def show_device(field: str, names: Names) -> str:
    """The JSON Patch operations that show each of the pod's containers the device that the scheduler chose: those that
    ask for gpumem or for a GPU; the others see none. A container that has the variable is left alone."""
    asks = _has_limit("c", f"k.startsWith({text(_GPU_PREFIX)}) || k == {text(names.gpumem)}")
    reference = json.dumps({"fieldRef": {"fieldPath": _device_path(names)}})
    # A map literal's values must be of one type: dyn() makes them so.
    device = f"{{'name': dyn({text(VISIBLE_DEVICES)}), 'valueFrom': dyn({reference})}}"
    return _add_variable(field, f"{asks} ? dyn({device}) : dyn({_HIDDEN})")


def hide_devices(field: str) -> str:
    """The JSON Patch operations that show no device to those of the pod's containers that an update adds."""
    is_new = f"!has(oldObject.spec.{field}) || !oldObject.spec.{field}.exists(o, o.name == c.name)"
    return _add_variable(field, _HIDDEN, is_new)


def drop_field(field: str) -> str:
    """The JSON Patch operation that removes a top-level field of the pod's spec, if it is there."""
    return f"(has(object.spec.{field}) ? [JSONPatch{{op: 'remove', path: '/spec/{field}'}}] : [])"


def merge_node_selector(node_selector: Mapping[str, str]) -> str:
    """The JSON Patch operations that add labels to the pod's nodeSelector, over what it says itself.

    Not an ApplyConfiguration: nodeSelector is atomic there, so that the pod's other labels would be lost.
    """
    start = f"(has(object.spec.nodeSelector) ? [] : {_add('/spec/nodeSelector', '{}')})"
    escaped = ((key.replace("~", "~0").replace("/", "~1"), value) for key, value in sorted(node_selector.items()))
    return " + ".join([start, *(set_field(f"nodeSelector/{key}", value) for key, value in escaped)])


def _add_variable(field: str, variable: str, condition: str = "true") -> str:
    """Adds the environment variable to the containers `c` of a list that meet the condition and lack it."""
    containers, path = f"object.spec.{field}", f"'/spec/{field}/' + string(i)"
    lacks = f"({condition}) && !(has(c.env) && c.env.exists(e, e.name == {text(VISIBLE_DEVICES)}))"
    start = f"transformList(i, c, {lacks} && !has(c.env), JSONPatch{{op: 'add', path: {path} + '/env', value: []}})"
    added = f"transformList(i, c, {lacks}, JSONPatch{{op: 'add', path: {path} + '/env/-', value: {variable}}})"
    return f"(has({containers}) ? {containers}.{start} + {containers}.{added} : [])"


def _device_path(names: Names) -> str:
    return f"metadata.annotations['{names.device_uuid}']"


def _add(path: str, value: str) -> str:
    return f"[JSONPatch{{op: 'add', path: {text(path)}, value: {value}}}]"


def _has_limit(container: str, condition: str) -> str:
    """The container has a limit above zero on some resource `k` that meets the condition."""
    limits = f"{container}.resources.limits"
    exists = f"{limits}.exists(k, ({condition}) && {limits}[k] != '0')"
    return f"has({container}.resources) && has({limits}) && {exists}"


def _names_devices(variable: str) -> str:
    """The environment variable chooses devices: by a value that shows any, or by a reference to one."""
    nothing = ", ".join(text(value) for value in _NO_DEVICES)
    value = f"has({variable}.valueFrom) || (has({variable}.value) && !({variable}.value in [{nothing}]))"
    return f"{variable}.name == {text(VISIBLE_DEVICES)} && ({value})"
