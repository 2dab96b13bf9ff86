"""Tests that the policy pack judges pods like admission does."""

from dataclasses import replace
from typing import Any

import pytest

from policy.rule import an_object
from tests.support import graphs
from tests.support.consumers import CONFIG, FULL, gpu, visible, workload
from tests.support.graphs import GPUMEM, Manifest, consumer, judge, put

LLAMA = "spec.template.spec.containers.0"


def on_host(path: str) -> list[dict[str, Any]]:
    return [{"name": "host", "hostPath": {"path": path}}]


# Each case has a workload, and a part of its only finding.
REFUSED: dict[str, tuple[Manifest, str]] = {
    "whole devices": (
        workload(main=gpu()),
        "container main asks for nvidia.com/gpu, and so this pod reaches a GPU without a budget: add",
    ),
    "in nobody's namespace": (
        workload("web", main=gpu()),
        "namespace web is no tenant's: nvidia.com/*, viktorbarzin.me/gpumem and viktorbarzin.me/gpu-count are for",
    ),
    "in an init container": (
        workload(initContainers=[{"name": "i", "image": "a:1.2.3", **gpu()}]),
        "container i asks for nvidia.com/gpu",
    ),
    "the device's file": (workload(volumes=on_host("/dev/nvidia0")), "mounts the host's /dev/nvidia0"),
    "the root": (workload(volumes=on_host("/")), "volume host mounts the host's / and so"),
    "a capability": (
        workload(main={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}),
        "container main adds SYS_ADMIN",
    ),
    "the variable": (workload(main=visible()), "this pod chooses its device by NVIDIA_VISIBLE_DEVICES"),
    "the runtime": (
        workload(runtimeClassName="nvidia"),
        "it has runtimeClassName nvidia, and so this pod reaches a GPU",
    ),
    "our scheduler": (workload(schedulerName="gpu-tenancy"), "schedulerName gpu-tenancy is for pods with"),
    "a forged device": (
        workload(annotations={"device.viktorbarzin.me/uuid": "GPU-1"}),
        "annotations under device.viktorbarzin.me/ are the scheduler's: leave them as they are",
    ),
    "CDI": (
        workload(annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"}),
        "this pod has a container runtime add devices, by an annotation under cdi.k8s.io",
    ),
    "the node's class": (
        workload("web", priorityClassName="system-node-critical"),
        "priorityClassName system-* is for what the cluster cannot do without: remove it",
    ),
    "the GPU's class": (
        workload("web", priorityClassName="gpu-workload"),
        "priorityClassName gpu-workload is only for pods that ask for a device: remove it",
    ),
    "an ephemeral container": (
        workload("web", ephemeralContainers=[{"name": "debug", "image": "a:1.2.3"}]),
        "ephemeralContainers are added to a pod that runs; remove them",
    ),
    "a slice that no quota counts": (
        workload("tts", main=gpu("nvidia.com/mig-1g.5gb")),
        "the quota of this tenant counts nvidia.com/gpu and nvidia.com/gpu.shared: ask for one of these",
    ),
    "no queue's label": (
        workload("team-a", kind="Job", main=gpu()),
        "GPUs of this namespace are handed out by its queue: make it a Job and give it the label",
    ),
    "no Job": (
        workload("team-a", main=gpu()),
        "Deployment team-a/x: GPUs of this namespace are handed out by its queue",
    ),
}


def test_a_device_plugin_outside_of_an_exempt_namespace_is_told_of_the_setting() -> None:
    plugin = workload("plugins", kind="DaemonSet", main=visible(), priorityClassName="system-node-critical")
    lines = judge({"x": plugin}, CONFIG)
    assert lines
    assert all(line.endswith("add plugins to admission.exempt_namespaces of the platform's stack") for line in lines)
    exempt = replace(FULL, exempt_namespaces=(*FULL.exempt_namespaces, "plugins"))
    assert judge({"x": plugin}, {"ledger": exempt.to_data()}) == []


@pytest.mark.parametrize("case", REFUSED)
def test_a_pod_that_admission_would_refuse_is_refused_before_in_one_line(case: str) -> None:
    manifest, message = REFUSED[case]
    reported = judge({"x": manifest}, CONFIG)
    assert len(reported) == 1, reported
    assert reported[0].startswith("admission: "), reported
    assert message in reported[0]


ACCEPTED: dict[str, Manifest] = {
    "a pod of nobody's": workload("web", volumes=on_host("/var/log"), main={"securityContext": {"privileged": True}}),
    "without any GPU": workload(main=gpu("nvidia.com/gpu", 0)),
    "on demand": workload("tts", main=gpu(), runtimeClassName="nvidia"),
    "held to nothing": workload(
        "android-emulator", volumes=on_host("/dev"), main={"securityContext": {"privileged": True}}
    ),
    "the driver, which is exempt": workload("nvidia", main=visible(), priorityClassName="system-node-critical"),
    "an agent of kube-system": workload("kube-system", volumes=on_host("/dev"), hostPID=True),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_admission_lets_in_passes(case: str) -> None:
    assert judge({"x": ACCEPTED[case]}, CONFIG) == []


def test_a_budget_is_no_way_past_the_scheduler() -> None:
    field_ref = {"fieldPath": "metadata.annotations['device.viktorbarzin.me/index']"}
    another = {"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": field_ref}}
    for field, value, message in (
        ("spec.template.spec.nodeName", "k8s-node1", "is placed by device: use nodeSelector instead of nodeName"),
        ("spec.template.spec.runtimeClassName", "runc", "runs under NVIDIA's runtime: remove runtimeClassName"),
        (f"{LLAMA}.resources.limits", {GPUMEM: "5000", "nvidia.com/gpu": "2"}, "it asks for more nvidia.com/gpu"),
        (f"{LLAMA}.env", visible()["env"], "chooses its device by NVIDIA_VISIBLE_DEVICES"),
        (f"{LLAMA}.env", [another], "this pod sets NVIDIA_VISIBLE_DEVICES: remove it"),
    ):
        program = consumer()
        put(program["llama-swap"], field, value)
        (line,) = judge(program, CONFIG)
        assert message in line


def test_a_pod_smaller_than_its_seat_would_be_refused_by_admission() -> None:
    assert judge(consumer(4000), CONFIG) == [
        "admission: Deployment llama-swap/llama-swap: a pod with viktorbarzin.me/gpumem is as large as a seat: ask for "
        "5000 MiB, times viktorbarzin.me/gpu-count where it is on several devices; residents of the stack has more"
    ]


def test_what_is_claimed_of_another_driver_is_no_budgets() -> None:
    def claim(device_class: str) -> Manifest:
        spec = {"spec": {"devices": {"requests": [{"name": "x", "exactly": {"deviceClassName": device_class}}]}}}
        return an_object("resource.k8s.io/v1", "ResourceClaimTemplate", "x", "llama-swap", spec=spec)

    assert judge({"x": claim("gpu.nvidia.com")}, CONFIG) == [
        "admission: ResourceClaimTemplate llama-swap/x: claims gpu.nvidia.com beside the budgets; remove it, or list "
        "the class under admission.device_classes of the platform's stack if it gives no GPU"
    ]
    assert judge({"x": claim("nic.example.com")}, CONFIG) == []


@pytest.mark.parametrize("kind", ["ConfigMap", "Secret"])
def test_an_environment_that_chooses_devices_is_refused_where_the_plugin_gives_them(kind: str) -> None:
    def environment(namespace: str) -> list[str]:
        data = {"NVIDIA_VISIBLE_DEVICES": "all"}
        return judge({"x": an_object("v1", kind, "x", namespace, data=data)}, CONFIG)

    assert environment("team-a") == [
        f"admission: {kind} team-a/x: the key NVIDIA_VISIBLE_DEVICES would choose devices by envFrom; remove it"
    ]
    assert environment("immich") == environment("nvidia") == []
    assert judge({"x": an_object("v1", kind, "x", "team-a", data=graphs.UNKNOWN)}, CONFIG) == []


def test_without_a_ledger_nothing_proves_a_gpu() -> None:
    assert judge({"x": workload(main=gpu())}) == [
        "ledger: Deployment llama-swap/x: cannot be proven: no ledger; write `pulumi stack output --json ledger` of "
        "the platform to a file and pass it as --policy-pack-config"
    ]


@pytest.mark.parametrize(
    ("spec", "refused"),
    [
        ({"hostPath": {"path": "/dev/nvidia0"}, "claimRef": {"namespace": "immich"}}, True),
        ({"local": {"path": "/"}}, True),
        ({"local": {"path": "/mnt/disks/a"}}, False),
        ({"csi": {"driver": "example.com"}}, False),
        ({"hostPath": {"path": "/dev"}, "claimRef": {"namespace": "nvidia"}}, False),
    ],
)
def test_no_volume_behind_a_claim_is_the_device(spec: Manifest, refused: bool) -> None:
    reported = judge({"x": an_object("v1", "PersistentVolume", "x", spec=spec)}, CONFIG)
    assert [line.partition(" the host's ")[0] for line in reported] == [
        "admission: PersistentVolume x: gives who claims it"
    ] * refused


def test_a_network_card_of_nvidias_is_no_gpu() -> None:
    for namespace in ("web", "immich"):
        assert judge({"x": workload(namespace, main=gpu("nvidia.com/hostdev"))}, CONFIG) == []
