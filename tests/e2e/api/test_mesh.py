"""Tests a service mesh that adds sidecars to a pod. The sidecars see no device."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.e2e.admitted import (
    DEVICE,
    GPU,
    GPUMEM,
    Pod,
    container,
    create,
    create_queued,
    field,
    pod,
    put_into_force,
)
from tests.support.e2e.mesh import LABEL, mesh
from tests.support.e2e.server import ApiServer
from tests.support.waiting import eventually
from toolchain.cluster.api import MERGE

QUEUE_TENANT = "team-a"
DEVICES = "NVIDIA_VISIBLE_DEVICES"
ITS_DEVICE = field(f"metadata.annotations['{DEVICE}']")["valueFrom"]
SIDECARS = {"proxy": "void", "bare-proxy": "void", "native-proxy": "void"}


@pytest.fixture(scope="module")
def cluster(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    put_into_force(server)
    for namespace in ("immich", QUEUE_TENANT):
        label = {"metadata": {"labels": {LABEL: "true"}}}
        assert server.request("PATCH", f"/api/v1/namespaces/{namespace}", label, content_type=MERGE).refusal is None
    with mesh(server, tmp_path_factory.mktemp("mesh")):
        eventually(
            lambda: len(seen(server, QUEUE_TENANT, pod())) == 4, "the webhook adds its sidecars, and all are stamped"
        )
        yield server


def seen(server: ApiServer, namespace: str, manifest: Pod) -> dict[str, Any]:
    answer = (create_queued if namespace == QUEUE_TENANT else create)(server, namespace, manifest)
    if answer.refusal is not None:
        return {"refused": answer.refusal}
    containers = [*answer.body["spec"]["containers"], *answer.body["spec"].get("initContainers", [])]
    return {c["name"]: _value(e) for c in containers for e in c.get("env", []) if e["name"] == DEVICES}


def _value(variable: dict[str, Any]) -> Any:
    if "valueFrom" in variable:
        return {"fieldRef": {"fieldPath": variable["valueFrom"]["fieldRef"]["fieldPath"]}}
    return variable.get("value")


def test_a_pod_with_a_budget_is_admitted_and_its_sidecars_see_no_device(cluster: ApiServer) -> None:
    manifest = pod(container(limits={GPUMEM: "3k"}), initContainers=[container("fetch")])
    assert seen(cluster, "immich", manifest) == {"main": ITS_DEVICE, "fetch": "void", **SIDECARS}
    spec = create(cluster, "immich", manifest).body["spec"]
    assert (spec["schedulerName"], spec["runtimeClassName"]) == ("gpu-tenancy", "nvidia")
    assert (spec["priorityClassName"], spec["priority"]) == ("gpu-workload", 1200000)


def test_a_pod_with_a_whole_device_keeps_what_the_device_plugin_sets(cluster: ApiServer) -> None:
    assert seen(cluster, QUEUE_TENANT, pod(container(limits={GPU: "1"}))) == SIDECARS


def test_a_pod_without_a_gpu_is_admitted_and_nobody_in_it_sees_one(cluster: ApiServer) -> None:
    assert seen(cluster, "immich", pod()) == {"main": "void", **SIDECARS}
