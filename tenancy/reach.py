"""Finds every route by which a container can reach a GPU.

These functions describe how a pod reaches a GPU, and the admission policies decide in CEL if it may. The regular
expressions use only syntax that both RE2 and Python understand. Source: nvidia-container-toolkit. The routes come from
internal/config/image of NVIDIA's toolkit: the environment variable, the default of old CUDA images, and device lists as
mounts. The route by CDI comes from internal/modifier of NVIDIA's toolkit. Further sources are the Container Device
Interface (annotations), containerd's NRI plugins, and KEP-5004 (a DeviceClass as an extended resource).
"""

import re
from collections.abc import Callable, Iterator

from tenancy.names import GPU, GPU_SHARED, VISIBLE_DEVICES, Names
from tenancy.quantity import parse
from tenancy.workload import Manifest, containers_of, map_at, maps_at, text_at, value_or

# Every resource of NVIDIA has this prefix, such as nvidia.com/gpu, nvidia.com/gpu.shared and nvidia.com/mig-1g.5gb. The
# device of a virtual machine has the name of its card.
GPU_RESOURCES = f"{GPU.partition('/')[0]}/"
# Matches the resources of NVIDIA's network cards, by the names in the examples of NVIDIA's network operator.
NETWORK_RESOURCES = "^nvidia[.]com/(hostdev|mlnx|rdma|sriov).*$"
# The device plugin chooses the devices for resources with these prefixes.
PLUGIN_RESOURCES = (f"{GPU}.", f"{GPU_RESOURCES}mig-")
# A ResourceQuota counts these resources by their full names. A pod without a budget may ask for no other GPU resources.
COUNTED_RESOURCES = (GPU, GPU_SHARED)
# The prefix of an extended resource that requests a device of a DeviceClass. The name of the DeviceClass comes after
# this prefix.
CLAIMED_RESOURCES = "deviceclass.resource.kubernetes.io/"

# Matches the DeviceClasses of NVIDIA's DRA driver that give access to a whole GPU or a part of it (gpu, mig, vfio.gpu).
# NVIDIA's DeviceClasses for compute domains give access to no GPU.
GPU_CLASSES = r"(?:.*\.)?(?:gpu|mig|vgpu)\.nvidia\.com"

# The longest grace period of a GPU pod without a seat, in seconds. This grace period is long enough to write a
# checkpoint. For the pods of the next Job, Kueue waits three times this grace period (components/kueue.py).
MOST_GRACE_SECONDS = 600

# A container with one of these values of NVIDIA_VISIBLE_DEVICES gets no device.
NO_DEVICES = ("", "none", "void")
# This text is in the names of all RuntimeClasses and handlers of NVIDIA's toolkit and operator. Examples of such
# RuntimeClasses are nvidia, nvidia-cdi, nvidia-legacy, nvidia-experimental and kata-qemu-nvidia-gpu.
RUNTIME = "nvidia"
# A mount below a directory with this name gives the container a device. NVIDIA's toolkit reads the device from the name
# of the mount.
DEVICE_LIST_MOUNT = "nvidia-container-devices"
# Matches pod annotations by which a container runtime or its plugin adds devices or mounts.
DEVICE_ANNOTATIONS = (
    "^(([^/]*[.])?cdi[.]k8s[.]io|(cdi-devices|devices|mounts)[.](nri[.]io|noderesource[.]dev)|"
    "io[.]kubernetes[.]cri-o[.]Devices)(/.*)?$"
)

# Matches /dev and /dev/nvidia* in every spelling. The API server rejects a path with "..". The Pod Security level
# baseline forbids tenants to mount paths of their node.
DEVICE_PATHS = "^(/+[.]?)*dev(/+[.]?)*(nvidia.*)?$"


def is_gpu_resource(resource: str, names: Names) -> bool:
    """Returns True if a container with this resource in its limits gets a device or a part of a device."""
    return is_nvidias_gpu(resource) or resource.startswith(CLAIMED_RESOURCES) or resource == names.gpumem


def is_nvidias_gpu(resource: str) -> bool:
    """Returns True for a resource of NVIDIA, except for those of network cards."""
    return resource.startswith(GPU_RESOURCES) and re.fullmatch(NETWORK_RESOURCES, resource) is None


def hands_out_gpus(device_class: str) -> bool:
    """Returns True if the name of the DeviceClass shows that the class gives access to a GPU."""
    return re.fullmatch(GPU_CLASSES, device_class) is not None


def of_device_plugin(resource: str) -> bool:
    """Returns True if the device plugin gives a device, or a part of a device, to a container that requests this
    resource.
    """
    return resource == GPU or resource.startswith(PLUGIN_RESOURCES)


def resource_gives_device(resource: str, names: Names) -> bool:
    """Returns True if a container with this resource in its limits gets access to a device.

    A container with gpumem gets its device by our annotation. A container with any other resource gets its device from
    the device plugin.
    """
    return resource == names.gpumem or of_device_plugin(resource)


def asks_for_device(pod_spec: Manifest, names: Names) -> bool:
    """Returns True if a container of the pod asks for gpumem or for a device of the device plugin.

    Raises QuantityError and ShapeError.
    """
    return any(resources_asked_for(c, lambda r: resource_gives_device(r, names)) for c in containers_of(pod_spec))


def resources_asked_for(container: Manifest, met: Callable[[str], bool]) -> list[str]:
    """Returns the resources that the container requests and for which `met` is true. Raises QuantityError."""
    resources = map_at(container, "resources")
    wanted = {**map_at(resources, "requests"), **map_at(resources, "limits")}
    return [resource for resource, amount in wanted.items() if met(resource) and parse(value_or(wanted, resource, 0))]


def routes(pod_spec: Manifest, names: Names) -> Iterator[str]:
    """Yields a description of each route by which the pod reaches a device. Raises QuantityError and ShapeError."""
    for container in containers_of(pod_spec):
        where = f"container {container.get('name')}"
        yield from (
            f"{where} asks for {r}" for r in resources_asked_for(container, lambda r: is_gpu_resource(r, names))
        )
        if any(_names_devices(variable) for variable in maps_at(container, "env")):
            yield choice_by_environment(container)
        for mount in maps_at(container, "volumeMounts"):
            if DEVICE_LIST_MOUNT in (path := text_at(mount, "mountPath")):
                yield f"{where} mounts {path}"
    runtime = text_at(pod_spec, "runtimeClassName")
    if RUNTIME in runtime:
        yield f"it has runtimeClassName {runtime}"
    for volume in maps_at(pod_spec, "volumes"):
        path = text_at(map_at(volume, "hostPath"), "path")
        if path and re.fullmatch(DEVICE_PATHS, path):
            yield f"volume {volume.get('name')} mounts the host's {path}"


def choice_by_environment(container: Manifest) -> str:
    """Returns a description of a container that chooses devices by an environment variable."""
    return f"container {container.get('name')} sets {VISIBLE_DEVICES}"


def chooses_device(container: Manifest, names: Names) -> bool:
    """Returns True if the container chooses devices by its environment variables.

    A reference to the scheduler's annotation is not a choice of the container.
    """
    scheduled = f"metadata.annotations['{names.device_annotation_prefix}"
    prefixes = [text_at(source, "prefix") for source in maps_at(container, "envFrom")]
    return any(
        _names_devices(variable) and not _field_of(variable).startswith(scheduled)
        for variable in maps_at(container, "env")
    ) or any(prefix and VISIBLE_DEVICES.startswith(prefix) for prefix in prefixes)


def _names_devices(variable: Manifest) -> bool:
    if text_at(variable, "name") != VISIBLE_DEVICES:
        return False
    return variable.get("valueFrom") is not None or text_at(variable, "value") not in NO_DEVICES


def _field_of(variable: Manifest) -> str:
    return text_at(map_at(variable, "valueFrom", "fieldRef"), "fieldPath")
