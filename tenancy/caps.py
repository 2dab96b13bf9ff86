"""Reads caps. NVIDIA's driver holds a container to its cap in whole MiB on each device, if the pool enforces budgets.

Source: NVIDIA's container toolkit 1.20.1, cmd/nvidia-cdi-hook/apply-cuda-memory-limits: it reads one value in whole MiB
for all devices of a container, from these two environment variables.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tenancy.names import MEMORY_LIMIT, MEMORY_REQUEST, Names
from tenancy.workload import Manifest, container_request, containers_of, maps_at, pod_request

VARIABLES = (MEMORY_LIMIT, MEMORY_REQUEST)


@dataclass(frozen=True, kw_only=True)
class Cap:
    """A container's `mib` on each of its devices. `stamped` is True if the container's environment has the cap."""

    container: str
    mib: int
    stamped: bool


def caps_of(pod_spec: Manifest, names: Names) -> Iterator[Cap]:
    """Yields the cap of each container that asks for gpumem, also of init containers and sidecars.

    Raises QuantityError, ShapeError.
    """
    devices = pod_request(pod_spec, names.gpu_count) or 1
    for container in containers_of(pod_spec):
        mib = math.ceil(container_request(container, names.gpumem)) // devices
        if mib:
            given = {each.get("name"): each.get("value") for each in maps_at(container, "env")}
            stamped = all(given.get(variable) == str(mib) for variable in VARIABLES)
            yield Cap(container=str(container.get("name")), mib=mib, stamped=stamped)
