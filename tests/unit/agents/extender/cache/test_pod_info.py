"""Tests how the extender reads a pod's request and devices."""

from typing import Any

import pytest

from agents.extender.cache.pod_info import (
    PodInfo,
    PodState,
    PodWithoutGpu,
    holder_of,
)
from agents.kube.fields import FieldError
from agents.kube.pods import Pod
from tenancy.devices.allocate import MemoryRequest
from tests.support.devices import pod_object
from tests.support.fake_cluster import NAMES

OURS = {NAMES.device_index: "0,2", NAMES.device_uuid: "GPU-a,GPU-c", NAMES.device_mib: "4069"}


def allocated(pod: dict[str, Any]) -> PodInfo:
    found = holder_of(pod, NAMES)
    assert isinstance(found, PodInfo)
    return found


def spec(**lists: Any) -> dict[str, Any]:
    return {name: [{"resources": {"requests": {NAMES.gpumem: mib}}} for mib in mibs] for name, mibs in lists.items()}


def test_a_request_without_equal_parts_is_refused_before_it_is_bound_and_counts_rounded_up_after() -> None:
    odd = pod_object("8139", "2")
    with pytest.raises(FieldError, match="8139 MiB cannot be shared out in equal parts to 2 devices"):
        Pod(odd).memory_request(NAMES)
    held = allocated(odd)
    assert held.request == MemoryRequest(4070, 2)


def test_a_pod_whose_deletion_began_holds_its_devices() -> None:
    pod = pod_object(phase="Running")
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T05:00:00Z"
    assert allocated(pod).state is PodState.TERMINATING


def test_devices_are_known_by_our_annotations() -> None:
    held = allocated(pod_object("8138", "2", annotations=OURS))
    assert (held.indices, held.uuids) == ((0, 2), ("GPU-a", "GPU-c"))


def test_a_request_knows_the_cpu_next_to_the_memory() -> None:
    container = {"resources": {"requests": {NAMES.gpumem: "4069", "cpu": "250m"}}}
    assert Pod({"spec": {"containers": [container, container]}}).memory_request(NAMES) == MemoryRequest(
        8138, cpu_milli=500
    )


def test_a_bound_pod_without_gpu_memory_holds_its_cpu() -> None:
    pod = pod_object("0")
    pod["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1500m"}
    assert holder_of(pod, NAMES) == PodWithoutGpu(uid="uid-1", node="k8s-node1", cpu_milli=1500)
    assert holder_of(pod_object("0", node=None), NAMES) is None
    assert holder_of(pod_object("0", phase="Succeeded"), NAMES) is None


def test_a_pod_without_gpumem_whose_cpu_cannot_be_read_is_named() -> None:
    pod = pod_object()
    pod["spec"]["containers"] = [{"resources": {"requests": {"cpu": "much"}}}]
    with pytest.raises(FieldError, match="pod tenant/model: cpu: 'much' is not a quantity"):
        holder_of(pod, NAMES)
