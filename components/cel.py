"""CEL over a pod, for admission policies: expressions as text, put together from what names.py says.

The language and its libraries: https://kubernetes.io/docs/reference/using-api/cel/. An absent optional field is an
error in CEL, so each one stands behind has(). Only limits are read: the API refuses an extended resource without one.
"""

import json
from collections.abc import Mapping

from tenancy.names import GPU, GPU_RUNTIME_CLASS, VISIBLE_DEVICES, Names

CONTAINERS = "(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))"

# Every resource of NVIDIA's device plugin: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb.
_GPU_PREFIX = f"{GPU.partition('/')[0]}/"
# /dev itself and /dev/nvidia*, however they are spelled; the API refuses "..".
_DEVICE_PATH = "^(/+[.]?)*dev(/+[.]?)*(nvidia.*)?$"
# Values that show a container no device (internal/config/image/devices.go of nvidia-container-toolkit).
_NO_DEVICES = ("", "none", "void")


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


def asks_for_gpumem(names: Names) -> str:
    """Some container of the pod has a gpumem budget."""
    return f"{CONTAINERS}.exists(c, {_has_limit('c', f'k == {text(names.gpumem)}')})"


def gpumem_of(containers: str, names: Names) -> str:
    """The MiB of gpumem that each of the containers asks for, as a list; those that ask for none are left out."""
    key = text(names.gpumem)
    asking = f"has(c.resources) && has(c.resources.limits) && {key} in c.resources.limits"
    return f"{containers}.filter(c, {asking}).map(c, quantity(c.resources.limits[{key}]).asInteger())"


def chooses_device(container: str, names: Names) -> str:
    """The container's environment chooses devices, and not by what the scheduler wrote on the pod."""
    scheduled = text(f"metadata.annotations['{names.device_annotation_prefix}")
    reference = (
        f"has(e.valueFrom) && has(e.valueFrom.fieldRef) && e.valueFrom.fieldRef.fieldPath.startsWith({scheduled})"
    )
    return f"has({container}.env) && {container}.env.exists(e, {_names_devices('e')} && !({reference}))"


def set_field(field: str, value: str) -> str:
    """The JSON Patch operation that sets a top-level string of the pod's spec."""
    return _add(f"/spec/{field}", text(value))


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
