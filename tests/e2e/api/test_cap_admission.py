"""Tests how a real API server admits pods in a pool with `enforce: driver`."""

from typing import Any

import pytest

from tests.support.e2e.admitted import (
    DEVICE,
    GPU_COUNT,
    GPUMEM,
    SEATLESS,
    Pod,
    await_policies,
    container,
    create,
    field,
    pod,
    put_into_force,
    spec_of,
)
from tests.support.e2e.server import ApiServer
from tests.support.prod import put

LIMIT, REQUEST = "NVIDIA_GPU_MEMORY_LIMIT", "NVIDIA_GPU_MEMORY_REQUEST"
T4_NODES = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.sharing-strategy": "time-slicing"}
SEAT_LABEL = "viktorbarzin.me/seat"
OTHER_NODES = {"nvidia.com/gpu.sharing-strategy": "other"}
OTHER_POOL = {"node_selector": OTHER_NODES, "nodes": 1, "memory_mib": 16384, "reserve_mib": 1024}


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    put_into_force(
        server,
        put("scheduler", {}),
        put("pools t4 device_count", 2),
        put("pools t4 enforce", "driver"),
        put("pools other", OTHER_POOL),
        put("residents far", {"tenant": "portal-stt", "pool": "other", "gpumem_mib": 1536}),
    )
    return server


def create_in(server: ApiServer, namespace: str, manifest: Pod) -> dict[str, Any]:
    return spec_of(create(server, namespace, manifest))


def asking(name: str = "main", mib: str = "3k", devices: str | None = None, **fields: Any) -> dict[str, Any]:
    return container(name, limits={GPUMEM: mib, **({GPU_COUNT: devices} if devices else {})}, **fields)


def own(value: str, name: str = LIMIT) -> list[dict[str, str]]:
    return [{"name": name, "value": value}]


def said(spec: dict[str, Any], containers: str = "containers") -> list[dict[str, str]]:
    return [
        {each["name"]: each["value"] for each in found.get("env", []) if each["name"] in (LIMIT, REQUEST)}
        for found in spec.get(containers, [])
    ]


def held(mib: int) -> dict[str, str]:
    return {LIMIT: str(mib), REQUEST: str(mib)}


def test_each_container_gets_its_own_gpumem_in_whole_mib(cluster: ApiServer) -> None:
    manifest = pod(
        asking("a", "1500", env=[{"name": "A", "value": "b"}]),
        asking("b", "1000"),
        container("c"),
        initContainers=[asking("d", "2k"), asking("e", "500", restartPolicy="Always"), container("f")],
    )
    answer = create(cluster, "immich", manifest)
    assert answer.refusal is None
    assert said(answer.body["spec"]) == [held(1500), held(1000), {}]
    assert said(answer.body["spec"], "initContainers") == [held(2000), held(500), {}]


def on_seat(seat: str | None, **fields: Any) -> Pod:
    labels = {SEAT_LABEL: seat} if seat else {}
    return pod(asking(mib="1536"), **fields) | {"metadata": {"name": "pod", "labels": labels}}


def test_the_seat_decides_on_pool_and_cap_of_a_tenant_in_several_pools(cluster: ApiServer) -> None:
    for _ in range(6):  # The API server applies the two policies in any order.
        near, far = (create_in(cluster, "portal-stt", on_seat(seat)) for seat in ("portal-stt", "far"))
        assert (near["nodeSelector"], said(near)) == (T4_NODES, [held(1536)])
        assert (far["nodeSelector"], said(far)) == (OTHER_NODES, [{}])


def test_a_pod_without_a_seat_label_is_refused_where_a_tenant_has_seats_in_several_pools(cluster: ApiServer) -> None:
    refusal = create(cluster, "portal-stt", on_seat(None, nodeSelector=T4_NODES)).refusal or ""
    assert f"the seats of this namespace are in several pools: give the pod the label {SEAT_LABEL}" in refusal


def test_containers_get_the_variables_in_any_order_of_the_policies(cluster: ApiServer) -> None:
    """The API server applies the two policies in any order."""
    for _ in range(6):
        await_policies(cluster)
        answer = create(cluster, "immich", pod(asking()))
        assert (answer.refusal, said(answer.body.get("spec", {}))) == (None, [held(3000)])


def test_with_several_devices_the_cap_is_the_part_on_each_device(cluster: ApiServer) -> None:
    manifest = pod(asking(mib="6000", devices="2"), initContainers=[asking("warm", "3k")], nodeSelector=T4_NODES)
    answer = create(cluster, SEATLESS, manifest)
    assert answer.refusal is None
    assert said(answer.body["spec"]) == [held(3000)]
    assert said(answer.body["spec"], "initContainers") == [held(1500)]


def test_a_pod_that_is_copied_from_a_running_one_is_as_it_was(cluster: ApiServer) -> None:
    spec = create_in(cluster, "immich", pod(asking()))
    copied = pod(asking(env=own("3000") + own("3000", REQUEST)))
    assert said(create_in(cluster, "immich", copied)) == said(spec) == [held(3000)]


REFUSED: dict[str, Pod] = {
    "more than it asks for": pod(asking(env=own("3001") + own("3000", REQUEST))),
    "a limit alone": pod(asking(env=own("3000"))),
    "twice": pod(asking(env=[*own("3000"), *own("9000"), *own("3000", REQUEST)])),
    "from elsewhere": pod(asking(env=[{"name": LIMIT, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])),
    "where it asks for nothing": pod(asking("a"), container("b", env=own("9000"))),
    "in a pod without a budget": pod(container(env=own("100"))),
    "in an init container": pod(asking(), initContainers=[container("i", env=own("9000", REQUEST))]),
}


@pytest.mark.parametrize("manifest", REFUSED.values(), ids=REFUSED)
def test_a_tenants_own_values_are_refused(cluster: ApiServer, manifest: Pod) -> None:
    refusal = create(cluster, "immich", manifest).refusal or ""
    assert f"the variables {LIMIT} and {REQUEST} are ours: remove them" in refusal


def test_containers_in_a_pool_without_caps_have_no_variables(cluster: ApiServer) -> None:
    elsewhere = {"nodeSelector": OTHER_NODES}
    answer = create(cluster, SEATLESS, pod(asking(), **elsewhere))
    assert answer.refusal is None
    assert said(answer.body["spec"]) == [{}]
    refusal = create(cluster, SEATLESS, pod(asking(env=own("3000") + own("3000", REQUEST)), **elsewhere)).refusal
    assert "are ours: remove them" in (refusal or "")


def test_a_pod_that_may_run_with_or_without_caps_must_choose_a_pool(cluster: ApiServer) -> None:
    refusal = create(cluster, SEATLESS, pod(asking())).refusal or ""
    assert (
        "in pools whose driver holds it to its viktorbarzin.me/gpumem (t4), and in others (batch, node-4, other)"
        in refusal
    )


def test_a_debugger_gets_neither_the_pods_device_nor_a_cap_of_its_own(cluster: ApiServer) -> None:
    device = {"name": "NVIDIA_VISIBLE_DEVICES", **field(f"metadata.annotations['{DEVICE}']")}
    for namespace, name, spec in (("immich", "capped", {}), (SEATLESS, "uncapped", {"nodeSelector": OTHER_NODES})):
        manifest = pod(asking(), **spec)
        manifest["metadata"]["name"] = name
        assert create(cluster, namespace, manifest, dry_run=False).refusal is None

    def debug(path: str, *env: dict[str, Any]) -> str | None:
        debugger = {"name": f"debug-{len(env)}", "image": "busybox:1.37.0", "env": list(env)}
        return cluster.request(
            "PATCH",
            f"/api/v1/namespaces/{path}/ephemeralcontainers?dryRun=All",
            {"spec": {"ephemeralContainers": [debugger]}},
            content_type="application/strategic-merge-patch+json",
        ).refusal

    assert "a debugger gets no device in a pool with enforce: driver" in (debug("immich/pods/capped", device) or "")
    assert "a debugger gets no device" in (debug("immich/pods/capped", *own("9000")) or "")
    assert debug("immich/pods/capped", {"name": "A", "value": "b"}) is None
    assert debug("immich/pods/capped") is None
    assert debug(f"{SEATLESS}/pods/uncapped", device) is None
