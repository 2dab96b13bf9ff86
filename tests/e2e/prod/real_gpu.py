"""The real node as one of the pool t4: its GPU is the fake NVML's, which shows what a test says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.faults.agents import forget_nodes
from tests.e2e.rollout import GPUMEM, Rollout, becomes, eventually
from tests.support import fake_nvml
from toolchain.cluster import node

NODE = f"/api/v1/nodes/{node.NODE}"
SLICE = f"/apis/resource.k8s.io/v1/resourceslices/gpumem.viktorbarzin.me-{node.NODE}"
UUID = "GPU-real"
TOTAL_MIB = 15360
MIB = 2**20
# What NVIDIA's feature discovery would say of it.
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/gpu.memory": str(TOTAL_MIB),
    "nvidia.com/gpu.count": "1",
}


def card(free_mib: int) -> str:
    """A Tesla T4 with so much free."""
    return f"0\ndevice {UUID} {TOTAL_MIB * MIB} {free_mib * MIB} {(TOTAL_MIB - free_mib) * MIB}\n"


@contextmanager
def real_gpu(prod: Rollout) -> Iterator[Path]:
    """The file that says what the node's NVML shows: at first an empty card."""
    api, libraries = prod.cluster.api, node.gpu_libraries(prod.cluster.folder)
    if not fake_nvml.build(libraries):
        pytest.skip("NO C COMPILER: placement is not tested on the real node")
    fake_nvml.write(libraries / "card", card(15000))
    taints = prod.get(NODE)["spec"]["taints"]
    api.patch(NODE, {"metadata": {"labels": LABELS}, "spec": {"taints": []}})
    try:
        eventually(lambda: api.get(SLICE), "the exporter publishes the device")
        becomes(lambda: prod.capacity(node.NODE).get(GPUMEM), "14k", "reconcile advertises its memory")
        yield libraries / "card"
    finally:
        api.patch(NODE, {"metadata": {"labels": dict.fromkeys(LABELS)}, "spec": {"taints": taints}})
        forget_nodes(prod)
        eventually(lambda: GPUMEM not in prod.capacity(node.NODE), "reconcile takes its memory off")
        prod.delete(SLICE)
