"""Every route by which a container reaches a GPU.

Admission has the routes in CEL, and the policy pack reads them from a manifest; tests/e2e/api/test_one_judgement.py
compares the two. Patterns are of the syntax that RE2 and Python share. Sources: nvidia-container-toolkit
(internal/config/image: the variable, an old CUDA image's default, device lists as mounts; internal/modifier: CDI), the
Container Device Interface (annotations), containerd's NRI plugins, KEP-5004 (a DeviceClass as an extended resource).
"""

import re
from collections.abc import Callable, Iterator

from tenancy.names import GPU, GPU_SHARED, VISIBLE_DEVICES, Names
from tenancy.quantity import parse
from tenancy.workload import Manifest, at, containers_of, given, maps_at, text

# Every resource of NVIDIA's: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb, a network card's.
GPU_RESOURCES = f"{GPU.partition('/')[0]}/"
# The device plugin chooses the devices for these.
PLUGIN_RESOURCES = (f"{GPU}.", f"{GPU_RESOURCES}mig-")
# A ResourceQuota counts these, by their whole name. Pods without a budget may ask for no others.
COUNTED_RESOURCES = (GPU, GPU_SHARED)
# A DeviceClass by its name, as a resource.
CLAIMED_RESOURCES = "deviceclass.resource.kubernetes.io/"

# DeviceClasses of NVIDIA's DRA driver that hand out a GPU or a part of one (gpu, mig, vfio.gpu); those of its compute
# domains hand out none.
GPU_CLASSES = r"(?:.*\.)?(?:gpu|mig|vgpu)\.nvidia\.com"

# The longest grace period of a GPU pod without a seat. It is enough for a checkpoint. It is a third of the time that
# Kueue lets the next Job wait for its pods (components/kueue.py).
MOST_GRACE_SECONDS = 600

# Values of NVIDIA_VISIBLE_DEVICES that show a container no device.
NO_DEVICES = ("", "none", "void")
# In the names and handlers of all that NVIDIA's toolkit and operator install: nvidia, nvidia-cdi, nvidia-legacy,
# nvidia-experimental, kata-qemu-nvidia-gpu.
RUNTIME = "nvidia"
# The toolkit reads devices off the mounts below a folder of this name.
DEVICE_LIST_MOUNT = "nvidia-container-devices"
# Pod annotations that make a runtime, or its plugin, add devices or mounts.
DEVICE_ANNOTATIONS = (
    "^(([^/]*[.])?cdi[.]k8s[.]io|(cdi-devices|devices|mounts)[.](nri[.]io|noderesource[.]dev)|"
    "io[.]kubernetes[.]cri-o[.]Devices)(/.*)?$"
)

# /dev itself and /dev/nvidia*, however they are spelled; the API refuses "..". Tenants have no path of their node at
# all: Pod Security baseline.
DEVICE_PATHS = "^(/+[.]?)*dev(/+[.]?)*(nvidia.*)?$"


def is_gpu_resource(resource: str, names: Names) -> bool:
    """True if a limit on the resource gives a device or a part of a device."""
    return resource.startswith((GPU_RESOURCES, CLAIMED_RESOURCES)) or resource == names.gpumem


def hands_out_gpus(device_class: str, names: Names) -> bool:
    """True for a DeviceClass of NVIDIA's, of a seat, or with such a name."""
    ours = f".{device_class}".endswith(names.device_class(""))
    return ours or re.fullmatch(GPU_CLASSES, device_class) is not None


def is_the_plugins(resource: str) -> bool:
    """True if the device plugin gives a device or a part of a device for the resource."""
    return resource == GPU or resource.startswith(PLUGIN_RESOURCES)


def shows_device(resource: str, names: Names) -> bool:
    """True if a limit on the resource shows the container a device: gpumem by our stamp, others by the plugin."""
    return resource == names.gpumem or is_the_plugins(resource)


def resources_asked_for(container: Manifest, met: Callable[[str], bool]) -> list[str]:
    """The matching resources that the container asks for. Raises QuantityError."""
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
    """The route of a container that chooses devices by its environment."""
    return f"container {container.get('name')} sets {VISIBLE_DEVICES}"


def chooses_device(container: Manifest, names: Names) -> bool:
    """True if the container's environment chooses devices, other than by the scheduler's annotation."""
    scheduled = f"metadata.annotations['{names.device_annotation_prefix}"
    prefixes = [text(source, "prefix") for source in maps_at(container, "envFrom")]
    return any(
        _names_devices(variable) and not _field_of(variable).startswith(scheduled)
        for variable in maps_at(container, "env")
    ) or any(prefix and VISIBLE_DEVICES.startswith(prefix) for prefix in prefixes)


def sees_its_device(container: Manifest, names: Names) -> bool:
    """True if the container does not set the variable, or sets it as our stamp does."""
    variables = [v for v in maps_at(container, "env") if text(v, "name") == VISIBLE_DEVICES]
    device = f"metadata.annotations['{names.device_uuid}']"
    return len(variables) <= 1 and all(not _names_devices(v) or _field_of(v) == device for v in variables)


def _names_devices(variable: Manifest) -> bool:
    if text(variable, "name") != VISIBLE_DEVICES:
        return False
    return variable.get("valueFrom") is not None or text(variable, "value") not in NO_DEVICES


def _field_of(variable: Manifest) -> str:
    return text(at(variable, "valueFrom", "fieldRef"), "fieldPath")
