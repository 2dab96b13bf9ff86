"""What reaches a GPU: every route by which a container gets at a device, said once.

Admission renders it as CEL. Patterns are of the syntax that RE2 and Python share. Sources: nvidia-container-toolkit
(internal/config/image: the variable, an old CUDA image's default, device lists as mounts; internal/modifier: CDI), the
Container Device Interface (annotations), containerd's NRI plugins, KEP-5004 (a DeviceClass as an extended resource).
"""

from tenancy.names import GPU, GPU_SHARED

# Every resource of NVIDIA's: nvidia.com/gpu, nvidia.com/gpu.shared, nvidia.com/mig-1g.5gb, a network card's.
GPU_RESOURCES = f"{GPU.partition('/')[0]}/"
# Those of them for which the device plugin says itself which devices a container sees.
PLUGIN_RESOURCES = (f"{GPU}.", f"{GPU_RESOURCES}mig-")
# Those that a ResourceQuota counts, which knows resources by their whole name: whoever has no budget asks for no other.
COUNTED_RESOURCES = (GPU, GPU_SHARED)
# A DeviceClass by its name, as a resource.
CLAIMED_RESOURCES = "deviceclass.resource.kubernetes.io/"

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
