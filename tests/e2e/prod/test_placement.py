"""Placement by device as prod declares it: real pods on the real node, whose GPU is the fake NVML's.

From the exporter that publishes the device to the variable in the container nothing is simulated.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.rules.rbac import ALLOWED
from tenancy import names
from tests.e2e import audit
from tests.e2e.rollout import GPUMEM, SYSTEM, Object, Rollout, becomes, eventually, pods
from tests.support import fake_nvml
from toolchain.cluster import node
from toolchain.cluster.image import agent_image
from toolchain.cluster.paths import program

TENANT, DEVICE = "immich", f"{names.Names('viktorbarzin.me').device_uuid}"
MIB = 2**20
NODE = f"/api/v1/nodes/{node.NODE}"
SLICE = f"/apis/resource.k8s.io/v1/resourceslices/gpumem.viktorbarzin.me-{node.NODE}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{names.SCHEDULER}"
# What NVIDIA's feature discovery would say of it.
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.count": "1",
}
TELL = "import os, time; print(repr(os.environ.get('NVIDIA_VISIBLE_DEVICES')), flush=True); time.sleep(1)"
READ = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9402{path}', timeout=5).read().decode())"


def card(free_mib: int) -> str:
    """A Tesla T4 with so much free."""
    return f"0\ndevice GPU-real {15360 * MIB} {free_mib * MIB} {(15360 - free_mib) * MIB}\n"


@pytest.fixture(scope="module")
def gpu(prod: Rollout) -> Iterator[Path]:
    """The real node as one of the pool t4; the file says what its NVML shows."""
    api, libraries = prod.cluster.api, node.gpu_libraries(prod.cluster.folder)
    if not fake_nvml.build(libraries):
        pytest.skip("NO C COMPILER: placement is not tested on the real node")
    (libraries / "card").write_text(card(15000))
    taints = prod.get(NODE)["spec"]["taints"]
    api.patch(NODE, {"metadata": {"labels": LABELS}, "spec": {"taints": []}})
    try:
        eventually(lambda: api.get(SLICE), "the exporter publishes the device")
        becomes(lambda: prod.capacity(node.NODE).get(GPUMEM), "14k", "reconcile advertises its memory")
        yield libraries / "card"
    finally:
        api.patch(NODE, {"metadata": {"labels": dict.fromkeys(LABELS)}, "spec": {"taints": taints}})
        eventually(lambda: GPUMEM not in prod.capacity(node.NODE), "reconcile takes its memory off")
        prod.delete(SLICE)


@pytest.fixture
def tenant(prod: Rollout, gpu: Path) -> Iterator[Rollout]:
    """A tenant whose pods are gone after the test."""
    yield prod
    for found in prod.items(pods(TENANT)):
        prod.cluster.api.request("DELETE", f"{pods(TENANT, found['metadata']['name'])}?gracePeriodSeconds=0")
    eventually(lambda: not prod.items(pods(TENANT)), "the tenant's pods are gone")


def pod(name: str, mib: int) -> dict[str, Any]:
    """It tells what it sees and ends, again and again."""
    container = {
        "name": "model",
        "image": agent_image(),
        "command": ["python", "-IS", "-c", TELL],
        "resources": {"limits": {GPUMEM: str(mib)}},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node.NODE},
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def submit(prod: Rollout, name: str, mib: int) -> None:
    answer = prod.create(pods(TENANT), pod(name, mib))
    assert answer.refusal is None, answer.refusal


def device(prod: Rollout, name: str) -> str | None:
    """The device that the pod was bound with."""
    found = prod.get(pods(TENANT, name))
    return found["metadata"].get("annotations", {}).get(DEVICE) if "nodeName" in found["spec"] else None


def told(prod: Rollout, name: str, *, previous: bool) -> str | None:
    """What the container wrote since its start, or before that; None while it wrote nothing."""
    path = f"{pods(TENANT, name)}/log?previous={str(previous).lower()}"
    answer = prod.cluster.api.request("GET", path)
    return None if answer.refusal else answer.body.get("message")


def reasons(prod: Rollout, name: str) -> str:
    """Why the pod waits, as its Events say."""
    path = f"/api/v1/namespaces/{TENANT}/events?fieldSelector=involvedObject.name%3D{name}"
    return "\n".join(str(event.get("message")) for event in prod.items(path))


def schedulers(prod: Rollout) -> list[Object]:
    return prod.items(f"{pods(SYSTEM)}?labelSelector=app.kubernetes.io%2Fname%3D{names.SCHEDULER}")


def asked(prod: Rollout, path: str) -> str:
    """What the leading extender answers to anybody in its pod."""
    leader, _, _ = prod.get(LEASE)["spec"]["holderIdentity"].partition("_")
    kubectl = [program("kubectl"), f"--kubeconfig={prod.cluster.kubeconfig}", f"--namespace={SYSTEM}"]
    command = [*kubectl, "exec", leader, "--container=extender", "--", "python", "-c", READ.format(path=path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_two_schedulers_run_and_one_of_them_leads(prod: Rollout) -> None:
    found = schedulers(prod)
    ready = [all(status["ready"] for status in pod["status"]["containerStatuses"]) for pod in found]
    assert ready == [True, True]
    holder = eventually(lambda: (prod.cluster.api.get(LEASE) or {}).get("spec", {}).get("holderIdentity"), "one leads")
    assert holder.partition("_")[0] in {pod["metadata"]["name"] for pod in found}


def test_the_container_sees_the_device_that_its_scheduler_chose_also_after_a_restart(tenant: Rollout) -> None:
    submit(tenant, "chosen", 3000)
    assert eventually(lambda: device(tenant, "chosen"), "the pod is bound to a device") == "GPU-real"
    before = eventually(lambda: told(tenant, "chosen", previous=True), "it was started again")
    after = eventually(lambda: told(tenant, "chosen", previous=False), "and told what it sees")
    assert {before, after} == {"'GPU-real'"}


def test_anybody_may_ask_who_has_what_of_which_device(tenant: Rollout) -> None:
    submit(tenant, "shown", 1000)
    eventually(lambda: device(tenant, "shown"), "the pod is bound to a device")
    (found,) = json.loads(asked(tenant, f"/inspect/{node.NODE}"))["nodes"]
    (only,) = found["devs"]
    assert (found["totalGPU"], found["usedGPU"], only["id"]) == (14000, 1000, 0)
    assert [(p["namespace"], p["name"]) for p in only["pods"]] == [(TENANT, "shown")]
    assert "gpu_extender_leading 1" in asked(tenant, "/metrics")


def test_a_device_that_somebody_uses_unasked_takes_no_pod_until_it_is_free_again(tenant: Rollout, gpu: Path) -> None:
    """3000 MiB are asked, 4000 are free by measurement, and 1536 of these are the floor."""
    gpu.write_text(card(4000))
    measured = '"measuredFreeGPU": 4000'
    eventually(lambda: measured in asked(tenant, f"/inspect/{node.NODE}"), "the extender knows what is measured")
    submit(tenant, "late", 3000)
    eventually(lambda: "as measured and less the floor" in reasons(tenant, "late"), "the pod is told why it waits")
    assert device(tenant, "late") is None
    gpu.write_text(card(15000))
    assert eventually(lambda: device(tenant, "late"), "the pod is bound when the memory is free") == "GPU-real"


def test_the_extender_needs_none_of_the_roles_of_kube_scheduler(gpu: Path, prod: Rollout) -> None:
    """The two share an account; the audit log tells them apart by what they call themselves."""
    account = f"system:serviceaccount:{SYSTEM}:{names.SCHEDULER}"
    asked = {
        (entry["verb"], entry["objectRef"].get("apiGroup", ""), _resource(entry["objectRef"]))
        for entry in audit.entries(prod.cluster, account)
        if entry["user"].get("username") == account and "kube-scheduler" not in entry.get("userAgent", "")
    }
    own = {(grant.verb, grant.group, grant.resource) for grant in ALLOWED[names.SCHEDULER]}
    assert asked <= own
    assert {("create", "", "pods/binding"), ("watch", "", "pods")} <= asked


def _resource(reference: Object) -> str:
    return "/".join(filter(None, (reference["resource"], reference.get("subresource"))))
