"""What reaches a GPU: every route by which a container gets at a device, said once.

Admission renders it as CEL, and the gate reads it of a manifest; tests/e2e/api/test_one_judgement.py has both judge the
same pods. Patterns are of the syntax that RE2 and Python share. Sources: nvidia-container-toolkit
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
# Those of them for which the device plugin says itself which devices a container sees.
PLUGIN_RESOURCES = (f"{GPU}.", f"{GPU_RESOURCES}mig-")
# Those that a ResourceQuota counts, which knows resources by their whole name: whoever has no budget asks for no other.
COUNTED_RESOURCES = (GPU, GPU_SHARED)
# A DeviceClass by its name, as a resource.
CLAIMED_RESOURCES = "deviceclass.resource.kubernetes.io/"

# DeviceClasses of NVIDIA's DRA driver that hand out a GPU or a part of one (gpu, mig, vfio.gpu); those of its compute
# domains hand out none.
GPU_CLASSES = r"(?:.*\.)?(?:gpu|mig|vgpu)\.nvidia\.com"

# How long a GPU pod without a seat may take to end: time to write a checkpoint, and a third of what Kueue lets the next
# Job wait for its pods (components/kueue.py).
MOST_GRACE_SECONDS = 600

# Values of NVIDIA_VISIBLE_DEVICES that show a container no device.
NO_DEVICES = ("", "none", "void")
# In the names and handlers of all that NVIDIA's toolkit and operator install: nvidia, nvidia-cdi, nvidia-legacy,
# nvidia-experimental, kata-qemu-nvidia-gpu.
RUNTIME = "nvidia"
# The toolkit reads devices off the mounts below a folder of this name.
DEVICE_LIST_MOUNT = "nvidia-container-devices"
# Pod annotations by which a runtime, or a plugin of it, adds devices or mounts.
DEVICE_ANNOTATIONS = (
    "^(([^/]*[.])?cdi[.]k8s[.]io|(cdi-devices|devices|mounts)[.](nri[.]io|noderesource[.]dev)|"
    "io[.]kubernetes[.]cri-o[.]Devices)(/.*)?$"
)

# /dev itself and /dev/nvidia*, however they are spelled; the API refuses "..". Tenants have no path of their node at
# all: Pod Security baseline.
DEVICE_PATHS = "^(/+[.]?)*dev(/+[.]?)*(nvidia.*)?$"


def is_gpu_resource(resource: str, names: Names) -> bool:
    """Whether a limit on the resource brings a device, or part of one."""
    return resource.startswith((GPU_RESOURCES, CLAIMED_RESOURCES)) or resource == names.gpumem


def hands_out_gpus(device_class: str, names: Names) -> bool:
    """Whether claims on the DeviceClass get what the ledger promises: NVIDIA's own, a seat's, one named like those."""
    ours = f".{device_class}".endswith(names.device_class(""))
    return ours or re.fullmatch(GPU_CLASSES, device_class) is not None


def is_the_plugins(resource: str) -> bool:
    """Whether the device plugin gives a device, or a part of it, by the resource."""
    return resource == GPU or resource.startswith(PLUGIN_RESOURCES)


def shows_device(resource: str, names: Names) -> bool:
    """Whether a limit on the resource shows the container a device: gpumem by our stamp, the others by the plugin."""
    return resource == names.gpumem or is_the_plugins(resource)


def asked(container: Manifest, met: Callable[[str], bool]) -> list[str]:
    """The resources of that kind of which the container wants more than nothing. Raises QuantityError."""
    resources = at(container, "resources")
    wanted = {**at(resources, "requests"), **at(resources, "limits")}
    return [resource for resource, amount in wanted.items() if met(resource) and parse(given(wanted, resource, 0))]


def routes(pod_spec: Manifest, names: Names) -> Iterator[str]:
    """Each way by which the pod gets at a device, in words. Raises QuantityError and ShapeError."""
    for container in containers_of(pod_spec):
        where = f"container {container.get('name')}"
        yield from (f"{where} asks for {r}" for r in asked(container, lambda r: is_gpu_resource(r, names)))
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
    """Whether the container's environment chooses devices, and not by what the scheduler wrote on the pod."""
    scheduled = f"metadata.annotations['{names.device_annotation_prefix}"
    prefixes = [text(source, "prefix") for source in maps_at(container, "envFrom")]
    return any(
        _names_devices(variable) and not _field_of(variable).startswith(scheduled)
        for variable in maps_at(container, "env")
    ) or any(prefix and VISIBLE_DEVICES.startswith(prefix) for prefix in prefixes)


def sees_its_device(container: Manifest, names: Names) -> bool:
    """Whether the container leaves the variable to our stamp, or says the same once."""
    variables = [v for v in maps_at(container, "env") if text(v, "name") == VISIBLE_DEVICES]
    device = f"metadata.annotations['{names.device_uuid}']"
    return len(variables) <= 1 and all(not _names_devices(v) or _field_of(v) == device for v in variables)


def _names_devices(variable: Manifest) -> bool:
    if text(variable, "name") != VISIBLE_DEVICES:
        return False
    return variable.get("valueFrom") is not None or text(variable, "value") not in NO_DEVICES


def _field_of(variable: Manifest) -> str:
    return text(at(variable, "valueFrom", "fieldRef"), "fieldPath")
