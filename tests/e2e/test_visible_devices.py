"""Tests which devices the containers on the real node see. The test binds the pods itself."""

from collections.abc import Iterator
from typing import Any

import pytest

from tenancy.admission.device import device_stamps
from tenancy.admission.policy import binding
from tenancy.names import Names
from tests.support.e2e.rollout import Object, logged
from tests.support.waiting import eventually
from toolchain.cluster import node
from toolchain.cluster.api import ApiAnswer
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.image import agent_image

TENANT = "visible-devices"
NAMES = Names("viktorbarzin.me")
PODS = f"/api/v1/namespaces/{TENANT}/pods"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
TELL = "import os, time; print(repr(os.environ.get('NVIDIA_VISIBLE_DEVICES')), flush=True); time.sleep(1)"


@pytest.fixture(scope="module")
def tenant(real_cluster: HeldCluster) -> Iterator[HeldCluster]:
    api = real_cluster.api
    everything = {"metadata": {"name": "environment"}, "data": {"NVIDIA_VISIBLE_DEVICES": "all"}}
    stamps = device_stamps(NAMES, by_device=True)
    api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}})
    try:
        api.create(f"/api/v1/namespaces/{TENANT}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **everything})
        for stamp in stamps:
            api.create(f"{ADMISSION}/mutatingadmissionpolicies", stamp)
            api.create(f"{ADMISSION}/mutatingadmissionpolicybindings", binding(stamp))
        account = f"/api/v1/namespaces/{TENANT}/serviceaccounts/default"
        eventually(lambda: api.get(account), "the namespace has its account")
        eventually(lambda: _is_stamped(api.request("POST", f"{PODS}?dryRun=All", pod("dry"))), "pods are stamped")
        yield real_cluster
    finally:
        for stamp in stamps:
            api.request("DELETE", f"{ADMISSION}/mutatingadmissionpolicybindings/{stamp['metadata']['name']}")
            api.request("DELETE", f"{ADMISSION}/mutatingadmissionpolicies/{stamp['metadata']['name']}")
        for found in (api.get(PODS) or {"items": []})["items"]:
            api.request("DELETE", f"{PODS}/{found['metadata']['name']}?gracePeriodSeconds=0")
        api.request("DELETE", f"/api/v1/namespaces/{TENANT}")


def _is_stamped(answer: ApiAnswer) -> bool:
    assert answer.refusal is None, answer.refusal
    spec = answer.body["spec"]
    return spec.get("runtimeClassName") == "nvidia" and all("env" in each for each in spec["containers"])


def container(name: str, **fields: Any) -> dict[str, Any]:
    environment = {"envFrom": [{"configMapRef": {"name": "environment"}}]}
    return {"name": name, "image": agent_image(), "command": ["python", "-IS", "-c", TELL], **environment, **fields}


def pod(name: str, *, budget: bool = True) -> dict[str, Any]:
    limits = {NAMES.gpumem: "3000"} if budget else {}
    spec = {
        "containers": [container("model", resources={"limits": limits}), container("sidecar")],
        "tolerations": [{"key": node.TAINT, "operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def bind(cluster: HeldCluster, name: str, annotations: dict[str, str]) -> None:
    cluster.api.create(PODS, pod(name))
    target = {"apiVersion": "v1", "kind": "Node", "name": node.NODE}
    metadata = {"name": name, "annotations": annotations}
    cluster.api.create(
        f"{PODS}/{name}/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    )


def restarts(cluster: HeldCluster, name: str) -> dict[str, int]:
    found: Object = cluster.api.get(f"{PODS}/{name}") or {}
    return {each["name"]: each["restartCount"] for each in found["status"].get("containerStatuses", [])}


def told(cluster: HeldCluster, name: str, container: str, *, previous: bool) -> str | None:
    path = f"{PODS}/{name}/log?container={container}&previous={str(previous).lower()}"
    return logged(cluster.api.request("GET", path))


def seen(cluster: HeldCluster, name: str) -> dict[str, set[str]]:
    eventually(lambda: min(restarts(cluster, name).values(), default=0) >= 1, "both containers were started again")

    def saw(container: str, *, previous: bool) -> str:
        return str(eventually(lambda: told(cluster, name, container, previous=previous), f"{container} told"))

    return {each: {saw(each, previous=True), saw(each, previous=False)} for each in ("model", "sidecar")}


def test_without_a_chosen_device_a_container_sees_no_device(tenant: HeldCluster) -> None:
    bind(tenant, "unplaced", {})
    assert seen(tenant, "unplaced") == {"model": {"''"}, "sidecar": {"'void'"}}


def test_a_pod_without_a_budget_sees_no_device_whatever_its_environment_says(tenant: HeldCluster) -> None:
    manifest = pod("bare", budget=False)
    manifest["spec"]["nodeName"] = node.NODE
    tenant.api.create(PODS, manifest)
    assert seen(tenant, "bare") == {"model": {"'void'"}, "sidecar": {"'void'"}}
    debugger = {"spec": {"ephemeralContainers": [container("debugger")]}}
    kind = "application/strategic-merge-patch+json"
    answer = tenant.api.request("PATCH", f"{PODS}/bare/ephemeralcontainers", debugger, content_type=kind)
    assert answer.refusal is None
    assert eventually(lambda: told(tenant, "bare", "debugger", previous=False), "the debugger told") == "'void'"
