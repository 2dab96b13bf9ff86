"""Puts the real node into the pool t4. The GPU is a simulation by the fake NVML."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.e2e.agents import forget_nodes
from tests.support.e2e.rollout import GPUMEM, Rollout
from tests.support.waiting import becomes, eventually
from toolchain.cluster import card, fake_nvml, node

NODE = f"/api/v1/nodes/{node.NODE}"
SLICE = f"/apis/resource.k8s.io/v1/resourceslices/gpumem.viktorbarzin.me-{node.NODE}"


@contextmanager
def real_gpu(prod: Rollout) -> Iterator[Path]:
    api, libraries = prod.cluster.api, node.gpu_libraries(prod.cluster.folder)
    if not fake_nvml.can_build():
        pytest.skip("NO C COMPILER: placement is not tested on the real node")
    fake_nvml.build(libraries)
    fake_nvml.write(libraries / "card", card.nvml_figures(15000))
    taints = prod.get(NODE)["spec"]["taints"]
    api.patch(NODE, {"metadata": {"labels": card.LABELS}, "spec": {"taints": []}})
    try:
        eventually(lambda: api.get(SLICE), "the exporter publishes the device")
        becomes(lambda: prod.capacity(node.NODE).get(GPUMEM), "14k", "reconcile advertises its memory")
        yield libraries / "card"
    finally:
        api.patch(NODE, {"metadata": {"labels": dict.fromkeys(card.LABELS)}, "spec": {"taints": taints}})
        forget_nodes(prod)
        eventually(lambda: GPUMEM not in prod.capacity(node.NODE), "reconcile takes its memory off")
        prod.delete(SLICE)
