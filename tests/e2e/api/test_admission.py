"""Tests on a real API server how prod's admission policies change and refuse pods."""

from typing import Any

import pytest

from components.host_memory import pod_fragments
from stacks import platform, settings
from tests.support.e2e.admitted import (
    DEVICE,
    GPU,
    GPUMEM,
    LAX,
    SEATLESS,
    Pod,
    container,
    create,
    create_queued,
    env,
    field,
    gpu_pod,
    host_path,
    pod,
    put_into_force,
)
from tests.support.e2e.server import ApiServer
from tests.support.prod import PROD, drop

PARTS = ("requests", "limits")
T4 = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
WHOLE = {
    "kubernetes.io/hostname": "k8s-node2",
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.sharing-strategy": "none",
}
NODE_4 = {**WHOLE, "kubernetes.io/hostname": "node-4"}


def inference(*, memory: bool = True, **spec: Any) -> Pod:
    prod = settings.load_file(PROD)
    seat = platform.resident_stanzas(prod.ledger())["inference"]
    host = pod_fragments(prod.memory_pools["node-4"])["inference"]
    resources = {part: {**seat["resources"][part], **(host["resources"][part] if memory else {})} for part in PARTS}
    given = {
        "nodeSelector": {**seat["nodeSelector"], **host["nodeSelector"]},
        "priorityClassName": host["priorityClassName"],
    }
    return pod({"name": "main", "image": "busybox:1.37.0", "resources": resources}, **given | spec)


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    put_into_force(server, drop("scheduler"))
    return server


NO_BUDGET = f"reaches a GPU without a budget: add {GPUMEM}"
TOO_LARGE = "than one device offers (14000 MiB)"
CHOOSES = "chooses its device by NVIDIA_VISIBLE_DEVICES"
ANNOTATIONS = "annotations under device.viktorbarzin.me/ are the scheduler's"

REFUSED: dict[str, tuple[str, Pod, str]] = {
    "a GPU without a budget": ("immich", gpu_pod(None), NO_BUDGET),
    "a budget of nothing": ("immich", gpu_pod("0"), NO_BUDGET),
    "a GPU in an init container": (
        "immich",
        pod(container(), initContainers=[container("init", limits={GPU: "1"})]),
        NO_BUDGET,
    ),
    "a slice of a GPU": ("immich", pod(container(limits={"nvidia.com/mig-1g.5gb": "1"})), NO_BUDGET),
    "the runtime class": ("immich", pod(runtimeClassName="nvidia"), NO_BUDGET),
    "a scheduled device": ("immich", pod(container(**env(**field(f"metadata.annotations['{DEVICE}']")))), NO_BUDGET),
    "the host's devices": ("default", host_path("/dev"), NO_BUDGET),
    "a device of the host, misspelt": ("default", host_path("//dev/./nvidia0"), NO_BUDGET),
    "more than a device": (SEATLESS, gpu_pod("14001"), TOO_LARGE),
    "two containers that are more than a device": (
        SEATLESS,
        pod(*(container(name, limits={GPUMEM: "8k"}) for name in "ab")),
        TOO_LARGE,
    ),
    "a start that needs more than a device": (
        SEATLESS,
        pod(container(), initContainers=[container("init", limits={GPUMEM: "20k"})]),
        TOO_LARGE,
    ),
    "a device by its name": ("immich", pod(container(limits={GPUMEM: "3k"}, **env(value="0"))), CHOOSES),
    "a device by another annotation": (
        "immich",
        pod(container(limits={GPUMEM: "3k"}, **env(**field("metadata.annotations['mine']")))),
        CHOOSES,
    ),
    "a forged device": ("immich", pod(annotations={DEVICE: "GPU-1"}), ANNOTATIONS),
    "the GPU class without a GPU": (
        "immich",
        pod(priorityClassName="gpu-workload"),
        "gpu-workload is only for pods that ask for a device",
    ),
    "the GPU class with the runtime alone": (
        "android-emulator",
        pod(priorityClassName="gpu-workload", runtimeClassName="nvidia"),
        "gpu-workload is only for pods that ask for a device",
    ),
    "another tenant's class": (
        "immich",
        pod(priorityClassName="homelab-critical"),
        "homelab-critical is only for tenant inference, tenant signoz",
    ),
}

ADMITTED: dict[str, tuple[str, Pod]] = {
    "a pod that has nothing to do with it": ("immich", pod()),
    "a budget": ("immich", gpu_pod()),
    "no GPU at all": ("immich", pod(container(limits={GPU: "0"}))),
    "devices kept out of sight": ("immich", pod(container(**env(value="void")))),
    "the device that the scheduler wrote": (
        "immich",
        pod(container(limits={GPUMEM: "3k"}, **env(**field(f"metadata.annotations['{DEVICE}']")))),
    ),
    "another device of the host": ("default", host_path("/dev/dri")),
    "a folder that is called like a device": (LAX, host_path("/data/dev/nvidia0")),
    "an on-demand tenant": ("tts", gpu_pod(None)),
    "an unbudgeted tenant": ("android-emulator", gpu_pod(None)),
    "the device plugin": (
        "nvidia",
        pod(container(**env(value="all")), priorityClassName="system-node-critical", runtimeClassName="nvidia"),
    ),
    "the exporter": ("gpu-tenancy-system-nodes", pod(container(**env(value="all")), runtimeClassName="nvidia")),
    "a tenant's own class": ("agents", pod(priorityClassName="homelab-disposable")),
}


@pytest.mark.parametrize(("namespace", "manifest", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused(cluster: ApiServer, namespace: str, manifest: Pod, message: str) -> None:
    answer = create(cluster, namespace, manifest)
    assert answer.code == 422
    assert message in (answer.refusal or "")


@pytest.mark.parametrize(("namespace", "manifest"), ADMITTED.values(), ids=ADMITTED.keys())
def test_it_is_admitted(cluster: ApiServer, namespace: str, manifest: Pod) -> None:
    assert create(cluster, namespace, manifest).refusal is None


@pytest.mark.parametrize(
    ("namespace", "manifest", "stamped"),
    [
        ("immich", gpu_pod(), ("gpu-workload", 1200000, "PreemptLowerPriority")),
        ("immich", gpu_pod(priorityClassName="homelab-disposable"), ("gpu-workload", 1200000, "PreemptLowerPriority")),
        (
            "immich",
            gpu_pod(priorityClassName="system-node-critical"),
            ("gpu-workload", 1200000, "PreemptLowerPriority"),
        ),
        ("tts", gpu_pod(None), ("tier-2-gpu", 600000, "PreemptLowerPriority")),
        ("tts", gpu_pod(None, priorityClassName="gpu-workload"), ("tier-2-gpu", 600000, "PreemptLowerPriority")),
        ("tts", pod(), (None, 0, "PreemptLowerPriority")),
        ("android-emulator", gpu_pod(None), ("gpu-workload", 1200000, "PreemptLowerPriority")),
        ("android-emulator", pod(runtimeClassName="nvidia"), (None, 0, "PreemptLowerPriority")),
        (
            "android-emulator",
            pod(container(limits={"nvidia.com/hostdev": "1"})),
            (None, 0, "PreemptLowerPriority"),
        ),
        (
            "tts",
            pod(
                container(volumeMounts=[{"name": "all", "mountPath": "/var/run/nvidia-container-devices/all"}]),
                volumes=[{"name": "all", "emptyDir": {}}],
            ),
            (None, 0, "PreemptLowerPriority"),
        ),
    ],
)
def test_pods_that_ask_for_a_device_are_stamped_and_others_are_not(
    cluster: ApiServer, namespace: str, manifest: Pod, stamped: tuple[object, ...]
) -> None:
    spec = create(cluster, namespace, manifest).body["spec"]
    assert (spec.get("priorityClassName"), spec["priority"], spec["preemptionPolicy"]) == stamped


@pytest.mark.parametrize("named", ["homelab-critical", "gpu-workload", None])
def test_a_gpu_pod_of_a_memory_pool_has_its_seat_its_class_and_its_node(cluster: ApiServer, named: str | None) -> None:
    answer = create(cluster, "inference", inference(priorityClassName=named))
    assert answer.refusal is None
    spec = answer.body["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("homelab-critical", 100_000)
    assert spec["nodeSelector"] == NODE_4
    limits = spec["containers"][0]["resources"]["limits"]
    assert (limits[GPUMEM], limits["memory"]) == ("12288", "32Gi")


def test_another_gpu_pod_of_that_tenant_needs_a_memory_limit_as_well(cluster: ApiServer) -> None:
    refusal = create(cluster, "inference", inference(memory=False)).refusal
    assert "a pod of class homelab-critical needs a memory limit on each container" in (refusal or "")


def test_a_gpu_pod_stays_in_the_pool_of_its_tenants_seats(cluster: ApiServer) -> None:
    for manifest in (gpu_pod(), gpu_pod(nodeSelector=NODE_4), gpu_pod(nodeSelector={"zone": "a"})):
        selected = create(cluster, "immich", manifest).body["spec"]["nodeSelector"]
        assert selected == {**manifest["spec"].get("nodeSelector", {}), **T4}
    assert "nodeSelector" not in create(cluster, "immich", pod()).body["spec"]


@pytest.mark.parametrize(
    ("manifest", "node_selector"),
    [
        (gpu_pod(None), WHOLE),
        (gpu_pod(None, nodeSelector={"zone": "a"}), {"zone": "a", **WHOLE}),
        (gpu_pod(None, nodeSelector={"nvidia.com/gpu.sharing-strategy": "time-slicing"}), WHOLE),
        (gpu_pod("100"), None),
        (pod(nodeSelector={"zone": "a"}), {"zone": "a"}),
    ],
    ids=["none", "another label", "the shared pool", "a budget", "no GPU"],
)
def test_queued_gpu_pods_go_to_the_pool_of_whole_devices(
    cluster: ApiServer, manifest: Pod, node_selector: dict[str, str] | None
) -> None:
    assert create_queued(cluster, "team-a", manifest).body["spec"].get("nodeSelector") == node_selector


def test_a_bound_pod_still_reports_its_status_and_is_debugged_but_not_with_a_device(cluster: ApiServer) -> None:
    manifest = gpu_pod()
    manifest["metadata"]["name"] = "debugged"
    assert create(cluster, "immich", manifest, dry_run=False).refusal is None
    path = "/api/v1/namespaces/immich/pods/debugged"

    def patch(subresource: str, body: object) -> str | None:
        kind = "application/strategic-merge-patch+json"
        return cluster.request("PATCH", f"{path}{subresource}", body, content_type=kind).refusal

    def debugger(value: str) -> object:
        return {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1.37.0", **env(value=value)}]}}

    assert patch("/status", {"status": {"message": "pulling"}}) is None
    assert CHOOSES in (patch("/ephemeralcontainers", debugger("all")) or "")
    assert patch("/ephemeralcontainers", debugger("void")) is None
    assert patch("", {"metadata": {"labels": {"is": "debugged"}}}) is None
