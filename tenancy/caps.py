"""Reads the caps of containers from a pod spec.

If a pool has `enforce: driver`, NVIDIA's driver limits the memory of each container on each device to its cap. The
source is cmd/nvidia-cdi-hook/apply-cuda-memory-limits in NVIDIA's container toolkit 1.20.1. The toolkit reads one
number of MiB for all devices of a container from the environment variables VARIABLES.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tenancy.names import MEMORY_LIMIT, MEMORY_REQUEST, Names
from tenancy.workload import Manifest, container_request, containers_of, maps_at, pod_request, text_at

VARIABLES = (MEMORY_LIMIT, MEMORY_REQUEST)


@dataclass(frozen=True, kw_only=True)
class Cap:
    """A container's cap. The container may use `mib` MiB on each of its devices.

    `stamped` is True if the container's environment variables already have the cap.
    """

    container: str
    mib: int
    stamped: bool


def caps_of(pod_spec: Manifest, names: Names) -> Iterator[Cap]:
    """Yields the cap of each container that requests gpumem, including init containers and sidecars.

    Raises QuantityError and ShapeError.
    """
    devices = pod_request(pod_spec, names.gpu_count) or 1
    for container in containers_of(pod_spec):
        mib = math.ceil(container_request(container, names.gpumem)) // devices
        if mib:
            given = {text_at(each, "name"): each.get("value") for each in maps_at(container, "env")}
            stamped = all(given.get(variable) == str(mib) for variable in VARIABLES)
            yield Cap(container=text_at(container, "name"), mib=mib, stamped=stamped)
