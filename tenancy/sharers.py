"""Recognizes other programs that share GPUs: schedulers and device plugins that hand out parts of the same cards.

Their parts and our budgets do not know of each other. A node, a pod's requests, its scheduler and its annotations show
such a program. Its own pods, and the pods with which it reserves devices, are no tenant's. Sources: the resource names
in the documentation of each program; pkg/common/constants of KAI-Scheduler; pkg/device/nvidia of HAMi.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tenancy.names import GPUMEM_SUFFIX
from tenancy.quantity import QuantityError, parse
from tenancy.workload import Manifest, containers_of, map_at, text_at

# The annotation in which a program of HAMi's family lists the devices of a node.
REGISTER = r"[^/]+/node-(?:nvidia|vgpu)-register"
_NVIDIAS = "nvidia.com/"
HAMI_GPUMEM = f"nvidia.com{GPUMEM_SUFFIX}"
_HAMI_PERCENTAGE = f"{HAMI_GPUMEM}-percentage"
_GIB = 1024


@dataclass(frozen=True)
class Sharer:
    """A program that shares GPUs. Each pattern is a regular expression for a whole name."""

    name: str
    resources: str = ""
    schedulers: str = ""
    marks: str = ""
    images: str = ""


# `marks` are keys of labels and annotations of a pod that asks the program for a part of a GPU.
SHARERS = (
    Sharer(
        "HAMi",
        r"nvidia\.com/(?:gpumem|gpumem-percentage|gpucores|priority)",
        "(?:hami|4pd)-scheduler",
        r"(?:hami\.io|4pd\.io)/vgpu-.*",
        r".*(?:projecthami|4pdosc)/.*",
    ),
    Sharer(
        "Run:ai", "", "runai-scheduler.*", r"runai/queue|runai-gpu|run\.ai/.*|runai-job-id", r".*(?:run-ai|runai).*"
    ),
    Sharer(
        "KAI-Scheduler",
        "",
        "kai-scheduler",
        r"kai\.scheduler/.*|gpu-fraction|gpu-memory|runai-gpu-group",
        r".*kai-(?:scheduler|resource)/.*|.*kai-scheduler.*",
    ),
    Sharer("Volcano", r"volcano\.sh/.*gpu.*", "volcano.*", r"volcano\.sh/(?:vgpu|gpu)-.*", r".*volcano(?:sh|-).*"),
    Sharer("gpushare", r"aliyun\.com/gpu-.*", "gpushare.*", "ALIYUN_COM_GPU_.*", ".*gpushare.*"),
    Sharer(
        "vcuda (GPU Manager)",
        r"tencent\.com/vcuda-.*",
        "",
        r"tencent\.com/vcuda-.*",
        r".*/gpu-(?:manager|admission|quota-admission)(?:[:@].*)?",
    ),
    Sharer(
        "qGPU",
        r"(?:tke\.cloud\.tencent\.com/qgpu|elasticgpu\.io/).*",
        "",
        r"tke\.cloud\.tencent\.com/qgpu.*",
        ".*qgpu.*",
    ),
    Sharer("AWS' virtual GPU plugin", r"k8s\.amazonaws\.com/vgpu", "", "", ".*aws-virtual-gpu-device-plugin.*"),
    Sharer(
        "Koordinator",
        r"koordinator\.sh/gpu.*",
        "koord-scheduler",
        r"scheduling\.koordinator\.sh/device-.*",
        ".*koordinator-sh/.*",
    ),
    Sharer("vgpu-manager", r"nvidia\.com/vgpu-.*", "", r"nvidia\.com/vgpu-.*", ".*vgpu-manager.*"),
    Sharer("nos", r"nvidia\.com/gpu-[0-9]+gb", "nos-scheduler", r"nos\.nebuly\.com/.*", ".*nebuly.*"),
    Sharer("KubeShare", r"kubeshare/.*|sharedgpu/.*", "kubeshare-scheduler", r"sharedgpu/.*", ".*kubeshare.*"),
)
# Resources of other makers' devices, and of requests that Kubernetes itself answers.
_OTHER_MAKERS = re.compile(
    r"(?:amd|xilinx|habana|gpu\.intel|intel|deviceclass\.resource\.kubernetes)\.(?:com|ai|io)/.*"
)
_GPU_NAME = re.compile(r"[^/]+/(?:.*[-_.])?[a-z]*(?:gpu|vcuda)(?![a-z]*net).*", re.IGNORECASE)
_RESERVES = re.compile(r".*(?:gpu|runai)[-.](?:resource[-.])?reservation.*|run\.ai/reserve_for_gpu_index")
_DEFAULT_SCHEDULERS = ("", "default-scheduler")


def sharer_of_resource(resource: str, ours: str = "") -> str:
    """Returns the name of the program that hands out parts of GPUs by this resource, or "". `ours` is the resource
    domain of the stack.
    """
    for each in SHARERS:
        if each.resources and re.fullmatch(each.resources, resource):
            return each.name
    domain = resource.partition("/")[0]
    known = resource.startswith(_NVIDIAS) or domain == ours or _OTHER_MAKERS.fullmatch(resource)
    ending = f"/{resource.partition('/')[2]}"
    if known or ending in (GPUMEM_SUFFIX, "/gpu-count") or not _GPU_NAME.fullmatch(resource):
        return ""
    return f"the device plugin of {domain}"


def sharers_of_node(node: Manifest) -> Iterator[tuple[str, str]]:
    """Yields each program that shares the node's devices, and what of the node shows it."""
    for name in map_at(node, "metadata", "annotations"):
        if re.fullmatch(REGISTER, name):
            yield ("Volcano" if name.startswith("volcano.sh/") else "HAMi"), f"annotation {name}"
    for resource in map_at(node, "status", "capacity"):
        if name := sharer_of_resource(resource):
            yield name, resource


def sharers_of_pod(metadata: Manifest, spec: Manifest, ours: str = "") -> Iterator[tuple[str, str]]:
    """Yields the program that gives the pod a part of a GPU, and what of the pod shows it. Raises ShapeError."""
    for container in containers_of(spec):
        resources = map_at(container, "resources")
        for resource in {**map_at(resources, "requests"), **map_at(resources, "limits")}:
            if name := sharer_of_resource(resource, ours):
                yield name, resource
    keys = [*map_at(metadata, "labels"), *map_at(metadata, "annotations")]
    scheduler = text_at(spec, "schedulerName")
    for each in SHARERS:
        if key := next((key for key in keys if each.marks and re.fullmatch(each.marks, key)), ""):
            yield each.name, key
        if each.schedulers and re.fullmatch(each.schedulers, scheduler):
            yield each.name, f"schedulerName {scheduler}"


def other_scheduler(spec: Manifest, ours: str) -> str:
    """Returns the pod's scheduler if it is neither Kubernetes' nor `ours`, or ""."""
    scheduler = text_at(spec, "schedulerName")
    return "" if scheduler in (*_DEFAULT_SCHEDULERS, ours) else scheduler


def program_of(namespace: str, metadata: Manifest, spec: Manifest) -> str:
    """Returns the name of the program if the pod is a part of one, or reserves a device for one, or ""."""
    images = [text_at(container, "image") for container in containers_of(spec)]
    for each in SHARERS:
        if each.images and any(re.fullmatch(each.images, image) for image in images):
            return each.name
    labels, annotations = map_at(metadata, "labels"), map_at(metadata, "annotations")
    words = [namespace, str(metadata.get("name", "")), *labels, *map(str, labels.values()), *annotations]
    if not any(map(_RESERVES.fullmatch, words)):
        return ""
    return "Run:ai" if any("runai-reservation" in word for word in words) else "KAI-Scheduler"


def asked_of_sharer(metadata: Manifest, spec: Manifest, memory_mib: int = 0) -> tuple[int, str]:
    """Returns the MiB of each device that the pod asks of a program, with the field, or 0. Raises ShapeError.

    gpushare counts GiB, and Tencent's programs count parts of 256 MiB and GiB. HAMi also counts hundredths of a device,
    and KAI and Run:ai fractions; `memory_mib` is the memory of a device.
    """
    units = {
        "volcano.sh/vgpu-memory": 1,
        "aliyun.com/gpu-mem": _GIB,
        "tencent.com/vcuda-memory": 256,
        "tke.cloud.tencent.com/qgpu-memory": _GIB,
        "nvidia.com/vgpu-memory": 1,
        HAMI_GPUMEM: 1,
    }
    for container in containers_of(spec):
        resources = map_at(container, "resources")
        wanted: Mapping[str, object] = {**map_at(resources, "requests"), **map_at(resources, "limits")}
        for resource, mib in units.items():
            if amount := _amount(wanted.get(resource)):
                return amount * mib, resource
        percent = _amount(wanted.get(_HAMI_PERCENTAGE))
        if percent and memory_mib:
            return memory_mib * min(percent, 100) // 100, _HAMI_PERCENTAGE
    annotations = map_at(metadata, "annotations")
    if amount := _amount(annotations.get("gpu-memory")):
        return amount, "gpu-memory"
    fraction = _amount(annotations.get("gpu-fraction"), 100)
    return memory_mib * max(min(fraction, 100), 0) // 100, "gpu-fraction"


def _amount(value: object, times: int = 1) -> int:
    try:
        return int(parse(value) * times) if value is not None else 0
    except QuantityError:
        return 0
