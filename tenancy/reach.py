"""Finds every route by which a container reaches a GPU.

Admission has the routes in CEL, and the policy pack reads them from a manifest; tests/e2e/api/test_one_judgement.py
compares both. Patterns are of the syntax that RE2 and Python share. Sources: nvidia-container-toolkit
(internal/config/image: the variable, an old CUDA image's default, device lists as mounts; internal/modifier: CDI), the
Container Device Interface (annotations), containerd's NRI plugins, KEP-5004 (a DeviceClass as an extended resource).
"""

import re
from collections.abc import Callable, Iterator

from tenancy.names import GPU, GPU_SHARED, VISIBLE_DEVICES, Names
from tenancy.quantity import parse
from tenancy.workload import Manifest, at, containers_of, given, maps_at, text

# Every resource of NVIDIA has this prefix: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb, a network
# card's.
GPU_RESOURCES = f"{GPU.partition('/')[0]}/"
# The device plugin chooses the devices for resources with these prefixes.
PLUGIN_RESOURCES = (f"{GPU}.", f"{GPU_RESOURCES}mig-")
# A ResourceQuota counts these resources by their whole name. Pods without a budget may ask for no other GPU resources.
COUNTED_RESOURCES = (GPU, GPU_SHARED)
# The prefix of a resource that asks for a device of the DeviceClass with that name.
CLAIMED_RESOURCES = "deviceclass.resource.kubernetes.io/"

# These DeviceClasses of NVIDIA's DRA driver hand out a GPU or a part of one (gpu, mig, vfio.gpu). The classes of its
# compute domains hand out none.
GPU_CLASSES = r"(?:.*\.)?(?:gpu|mig|vgpu)\.nvidia\.com"

# The longest grace period of a GPU pod without a seat. It is enough for a checkpoint. Kueue lets the next Job wait
# three times as long for its pods (components/kueue.py).
MOST_GRACE_SECONDS = 600

# With these values of NVIDIA_VISIBLE_DEVICES, a container gets no device.
NO_DEVICES = ("", "none", "void")
# This text is in all names and handlers that NVIDIA's toolkit and operator install: nvidia, nvidia-cdi, nvidia-legacy,
# nvidia-experimental, kata-qemu-nvidia-gpu.
RUNTIME = "nvidia"
# The toolkit takes the devices from the names of mounts below a folder of this name.
DEVICE_LIST_MOUNT = "nvidia-container-devices"
# With these pod annotations, a runtime or its plugin adds devices or mounts.
DEVICE_ANNOTATIONS = (
    "^(([^/]*[.])?cdi[.]k8s[.]io|(cdi-devices|devices|mounts)[.](nri[.]io|noderesource[.]dev)|"
    "io[.]kubernetes[.]cri-o[.]Devices)(/.*)?$"
)

# Matches /dev itself and /dev/nvidia* in every spelling; the API refuses "..". Pod Security baseline forbids tenants
# every path of their node.
DEVICE_PATHS = "^(/+[.]?)*dev(/+[.]?)*(nvidia.*)?$"


def is_gpu_resource(resource: str, names: Names) -> bool:
    """Returns True if a limit on the resource gives a device or a part of a device."""
    return resource.startswith((GPU_RESOURCES, CLAIMED_RESOURCES)) or resource == names.gpumem


def hands_out_gpus(device_class: str, names: Names) -> bool:
    """Returns True for a DeviceClass of NVIDIA, for the class of a seat, or for a class with such a name."""
    ours = f".{device_class}".endswith(names.device_class(""))
    return ours or re.fullmatch(GPU_CLASSES, device_class) is not None


def is_the_plugins(resource: str) -> bool:
    """Returns True if the device plugin gives a device or a part of a device for the resource."""
    return resource == GPU or resource.startswith(PLUGIN_RESOURCES)


def shows_device(resource: str, names: Names) -> bool:
    """Returns True if a limit on the resource shows the container a device: gpumem by our annotation, others
    by the plugin.
    """
    return resource == names.gpumem or is_the_plugins(resource)


def resources_asked_for(container: Manifest, met: Callable[[str], bool]) -> list[str]:
    """Returns the matching resources that the container asks for. Raises QuantityError."""
    resources = at(container, "resources")
    wanted = {**at(resources, "requests"), **at(resources, "limits")}
    return [resource for resource, amount in wanted.items() if met(resource) and parse(given(wanted, resource, 0))]


def routes(pod_spec: Manifest, names: Names) -> Iterator[str]:
    """Describes each route of the pod to a device. Raises QuantityError and ShapeError."""
    for container in containers_of(pod_spec):
        where = f"container {container.get('name')}"
        yield from (
            f"{where} asks for {r}" for r in resources_asked_for(container, lambda r: is_gpu_resource(r, names))
        )
        if any(_names_devices(variable) for variable in maps_at(container, "env")):
            yield by_environment(container)
        for mount in maps_at(container, "volumeMounts"):
            if DEVICE_LIST_MOUNT in (path := text(mount, "mountPath")):
                yield f"{where} mounts {path}"
    runtime = text(pod_spec, "runtimeClassName")
    if RUNTIME in runtime:
        yield f"it has runtimeClassName {runtime}"
    for volume in maps_at(pod_spec, "volumes"):
        path = text(at(volume, "hostPath"), "path")
        if path and re.fullmatch(DEVICE_PATHS, path):
            yield f"volume {volume.get('name')} mounts the host's {path}"


def by_environment(container: Manifest) -> str:
    """Returns the route of a container that chooses devices by its environment."""
    return f"container {container.get('name')} sets {VISIBLE_DEVICES}"


def chooses_device(container: Manifest, names: Names) -> bool:
    """Returns True if the container's environment chooses devices without the scheduler's annotation."""
    scheduled = f"metadata.annotations['{names.device_annotation_prefix}"
    prefixes = [text(source, "prefix") for source in maps_at(container, "envFrom")]
    return any(
        _names_devices(variable) and not _field_of(variable).startswith(scheduled)
        for variable in maps_at(container, "env")
    ) or any(prefix and VISIBLE_DEVICES.startswith(prefix) for prefix in prefixes)


def sees_its_device(container: Manifest, names: Names) -> bool:
    """Returns True if the container leaves the variable unset, or sets it as our mutating policy does."""
    variables = [v for v in maps_at(container, "env") if text(v, "name") == VISIBLE_DEVICES]
    device = f"metadata.annotations['{names.device_uuid}']"
    return len(variables) <= 1 and all(not _names_devices(v) or _field_of(v) == device for v in variables)


def _names_devices(variable: Manifest) -> bool:
    if text(variable, "name") != VISIBLE_DEVICES:
        return False
    return variable.get("valueFrom") is not None or text(variable, "value") not in NO_DEVICES


def _field_of(variable: Manifest) -> str:
    return text(at(variable, "valueFrom", "fieldRef"), "fieldPath")
