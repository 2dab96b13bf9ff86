"""Restarts the kubelet of the real node while a pod with GPU memory runs."""

import os
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tenancy import names
from tests.support.e2e.agents import forget_nodes
from tests.support.e2e.rollout import GPU_COUNT, GPUMEM, Object, Rollout, container, pods
from tests.support.waiting import becomes, eventually
from toolchain.cluster import simulated
from toolchain.cluster.api import MERGE, ClusterApi
from toolchain.cluster.control_plane import NODE
from toolchain.cluster.image import agent_image
from toolchain.cluster.node import TAINT
from toolchain.cluster.paths import program

# A namespace without a tenant. The kubelet would refuse a tenant's pod after the node has lost its labels.
NAMESPACE = "kube-system"
REAL = "/api/v1/nodes/localhost"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
T4 = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.count": "1",
}


@pytest.fixture(scope="module")
def prod(stack: Rollout) -> Rollout:
    stack.settle(runs=[names.RECONCILE])
    return stack


@pytest.fixture(scope="module")
def real_gpu_node(prod: Rollout) -> Iterator[Rollout]:
    devices = simulated.devices(NODE, "viktorbarzin.me")
    prod.cluster.api.create(SLICES, devices)
    label(prod, T4)
    try:
        becomes(lambda: advertised(prod), ("14k", "14k"), "the real node is advertised")
        run(prod, "resident", {GPUMEM: "5000"})
        yield prod
    finally:
        for found in prod.items(pods(NAMESPACE)):
            prod.delete(pods(NAMESPACE, found["metadata"]["name"]))
        prod.delete(f"{SLICES}/{devices['metadata']['name']}")
        label(prod, dict.fromkeys(T4))
        forget_nodes(prod)
    becomes(lambda: advertised(prod), (None, None), "the real node is no GPU node any more")


def label(prod: Rollout, labels: Mapping[str, str | None]) -> None:
    prod.cluster.api.patch(REAL, {"metadata": {"labels": labels}})


def advertised(prod: Rollout) -> tuple[str | None, str | None]:
    status = prod.get(REAL)["status"]
    return status["capacity"].get(GPUMEM), status["allocatable"].get(GPUMEM)


def run(prod: Rollout, name: str, limits: Mapping[str, str]) -> None:
    command = ["python", "-IS", "-c", "import signal; signal.pause()"]
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "tolerations": [{"key": TAINT, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [{**container(limits), "image": agent_image(), "command": command}],
    }
    manifest: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    assert prod.create(pods(NAMESPACE), manifest).refusal is None
    eventually(lambda: started(prod, name).get("running"), f"{name} runs")


def started(prod: Rollout, name: str) -> Object:
    statuses = prod.get(pods(NAMESPACE, name))["status"].get("containerStatuses", [{"state": {}}])
    state: Object = statuses[0]["state"]
    return state


def restart_kubelet(prod: Rollout, *, probe: str) -> None:
    kubelet = program("kubelet")
    old = prod.cluster.pid_on_node(kubelet)
    os.kill(old, signal.SIGKILL)
    eventually(lambda: prod.cluster.pid_on_node(kubelet) != old, "the kubelet runs again")
    run(prod, probe, {})


@pytest.mark.parametrize("registrations", ["kept", "wiped"])
def test_a_pod_with_gpu_memory_outlives_its_kubelet(real_gpu_node: Rollout, registrations: str) -> None:
    """A kubelet with an empty folder device-plugins sets all extended resources to 0, and rejects running pods."""
    prod = real_gpu_node
    folder = prod.cluster.folder.path / "node" / "kubelet" / "device-plugins"
    for file in folder.iterdir():
        file.unlink(missing_ok=True)
    if registrations == "kept":
        (folder / "kubelet_internal_checkpoint").write_text("{}")
    before = prod.get(pods(NAMESPACE, "resident"))
    restart_kubelet(prod, probe=f"after-{registrations}")
    after = prod.get(pods(NAMESPACE, "resident"))
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"
    assert container_ids(after) == container_ids(before)
    becomes(lambda: advertised(prod), ("14k", "14k"), "the node is advertised")


def test_a_pod_with_gpu_memory_outlives_its_nodes_object(real_gpu_node: Rollout) -> None:
    """When the kubelet starts, it creates its Node object again, without our labels and gpumem."""
    prod = real_gpu_node
    before = prod.get(pods(NAMESPACE, "resident"))
    node = prod.get(REAL)
    assert prod.delete(REAL).refusal is None
    restart_kubelet(prod, probe="after-deleted")
    assert prod.get(REAL)["metadata"]["uid"] != node["metadata"]["uid"]
    label(prod, T4)
    becomes(lambda: advertised(prod), ("14k", "14k"), "the new node is advertised")
    after = prod.get(pods(NAMESPACE, "resident"))
    assert (after["metadata"]["uid"], after["status"]["phase"]) == (before["metadata"]["uid"], "Running")
    assert container_ids(after) == container_ids(before)


def test_capacity_that_a_kubelet_sets_to_0_is_advertised_again_and_pods_keep_running(real_gpu_node: Rollout) -> None:
    """Source: pkg/kubelet/kubelet_node_status.go."""
    prod = real_gpu_node
    before = prod.get(pods(NAMESPACE, "resident"))
    nothing = {GPUMEM: "0", GPU_COUNT: "0"}
    kubelet = ClusterApi(prod.cluster.folder.kubeconfig_of("kubelet"))
    kubelet.patch(f"{REAL}/status", {"status": {"capacity": nothing, "allocatable": nothing}}, MERGE)
    becomes(lambda: advertised(prod), ("14k", "14k"), "the node is advertised again")
    after = prod.get(pods(NAMESPACE, "resident"))
    assert (after["status"]["phase"], container_ids(after)) == ("Running", container_ids(before))


def container_ids(pod: Object) -> list[str]:
    return [status["containerID"] for status in pod["status"]["containerStatuses"]]
