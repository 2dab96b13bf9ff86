"""Tests on a real API server the admission policies for pods that our scheduler places by device."""

from collections.abc import Callable
from typing import Any

import pytest

from tenancy import names
from tests.support.e2e.access import await_right
from tests.support.e2e.admitted import (
    DEVICE,
    GPU,
    GPU_COUNT,
    GPUMEM,
    SEATLESS,
    Pod,
    container,
    create,
    create_queued,
    env,
    field,
    gpu_pod,
    pod,
    put_into_force,
    spec_of,
)
from tests.support.e2e.server import SCHEDULER as CLUSTERS_SCHEDULER
from tests.support.e2e.server import ApiAnswer, ApiServer
from tests.support.prod import put
from toolchain.cluster.api import MERGE

ACCOUNT = f"system:serviceaccount:gpu-tenancy-system:{names.SCHEDULER}"
ITS_DEVICE = {"name": "NVIDIA_VISIBLE_DEVICES", **field(f"metadata.annotations['{DEVICE}']")}
NO_DEVICE = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
ASKED = {GPUMEM: "3k"}


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    put_into_force(server, put("scheduler", {}), put("pools t4 device_count", 2))
    other = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "other"}, "handler": "other"}
    server.apply(other, "runtimeclasses")
    return server


def variables(spec: dict[str, Any], containers: str = "containers") -> list[list[dict[str, Any]]]:
    return [each.get("env", []) for each in spec.get(containers, [])]


def described(variable: dict[str, Any]) -> dict[str, Any]:
    if "valueFrom" not in variable:
        return variable
    reference = {"apiVersion": "v1", **variable["valueFrom"]["fieldRef"]}
    return {**variable, "valueFrom": {"fieldRef": reference}}


SEEN, UNSEEN = [described(ITS_DEVICE)], [NO_DEVICE]


def is_seen_by_a_driver_upgrade(spec: dict[str, Any]) -> bool:
    """Source: gpuPodSpecFilter in cmd/gpu-operator/main.go, and podUsesGPU of k8s-driver-manager."""
    asked = [name for each in spec["containers"] for part in each["resources"].values() for name in part]
    return any(name.startswith(("nvidia.com/gpu", "nvidia.com/mig-")) for name in asked)


def test_a_pod_with_a_budget_that_asks_for_no_gpu_by_name_is_seen_by_a_driver_upgrade(cluster: ApiServer) -> None:
    """Before a driver upgrade, NVIDIA's operator evicts the pods that it recognizes as GPU pods
    (docs/operations.md).
    """
    alone, named = (
        spec_of(create(cluster, "immich", pod(container(limits=limits)))) for limits in (ASKED, {**ASKED, GPU: "0"})
    )
    assert [is_seen_by_a_driver_upgrade(spec) for spec in (alone, named)] == [False, True]
    assert named["containers"][0]["resources"]["requests"] == {GPUMEM: "3k", GPU: "0"}
    assert variables(named) == variables(alone) == [SEEN]


@pytest.mark.parametrize(("namespace", "made"), [("immich", create), ("team-a", create_queued)])
def test_a_pod_with_a_budget_goes_to_the_scheduler_and_sees_the_device_that_it_writes(
    cluster: ApiServer, namespace: str, made: Callable[[ApiServer, str, Pod], ApiAnswer]
) -> None:
    spec = made(cluster, namespace, pod(container(limits=ASKED))).body["spec"]
    assert (spec["schedulerName"], spec["runtimeClassName"]) == ("gpu-tenancy", "nvidia")
    assert variables(spec) == [SEEN]


def test_every_container_of_such_a_pod_has_the_variable_so_that_no_image_shows_it_all_devices(
    cluster: ApiServer,
) -> None:
    """CUDA images set NVIDIA_VISIBLE_DEVICES to all."""
    own = {"name": "A", "value": "b"}
    manifest = pod(
        container("budget", limits=ASKED, env=[own]),
        container("sidecar", env=[own]),
        container("bare"),
        container("plugin", limits={GPU: "1"}),
        initContainers=[
            container("fetch"),
            container("warm", limits=ASKED),
            container("proxy", restartPolicy="Always"),
        ],
    )
    answer = create(cluster, "immich", manifest)
    assert answer.refusal is None
    spec = answer.body["spec"]
    assert variables(spec) == [[own, *SEEN], [own, *UNSEEN], UNSEEN, SEEN]
    assert variables(spec, "initContainers") == [UNSEEN, SEEN, UNSEEN]


@pytest.mark.parametrize(
    ("manifest", "seen"),
    [
        (pod(), UNSEEN),
        (gpu_pod(None), []),
        (pod(container(limits={GPUMEM: "0"})), UNSEEN),
        (pod(runtimeClassName="nvidia"), UNSEEN),
    ],
    ids=["no GPU", "a GPU without a budget", "a budget of nothing", "the runtime alone"],
)
def test_a_pod_without_a_budget_is_not_the_schedulers_and_sees_what_the_device_plugin_shows(
    cluster: ApiServer, manifest: Pod, seen: list[dict[str, Any]]
) -> None:
    spec = create(cluster, "tts", manifest).body["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec.get("runtimeClassName") == manifest["spec"].get("runtimeClassName")
    assert variables(spec) == [seen]


@pytest.mark.parametrize("labels", [None, {"app": "a"}])
@pytest.mark.parametrize(
    ("manifest", "reaches_a_gpu"),
    [
        (pod(container(limits=ASKED)), True),
        (gpu_pod(None), True),
        (pod(runtimeClassName="nvidia"), True),
        (pod(), False),
    ],
    ids=["a budget", "a GPU without a budget", "the runtime alone", "no GPU"],
)
def test_a_new_pod_that_reaches_a_gpu_gets_the_label_by_which_agents_watch_it(
    cluster: ApiServer, manifest: Pod, reaches_a_gpu: bool, labels: dict[str, str] | None
) -> None:
    metadata = {**manifest["metadata"], **({} if labels is None else {"labels": labels})}
    created = create(cluster, "tts", {**manifest, "metadata": metadata}).body
    expected = {**(labels or {}), **({names.GPU_POD: names.GPU_POD_VALUE} if reaches_a_gpu else {})}
    assert created["metadata"].get("labels", {}) == expected


def test_an_exempt_namespace_is_left_alone(cluster: ApiServer) -> None:
    spec = create(cluster, "nvidia", gpu_pod()).body["spec"]
    assert (spec["schedulerName"], variables(spec)) == ("default-scheduler", [[]])


@pytest.mark.parametrize("value", ["void", "none"])
def test_a_container_may_keep_its_device_out_of_sight(cluster: ApiServer, value: str) -> None:
    spec = create(cluster, "immich", pod(container(limits=ASKED, **env(value=value)))).body["spec"]
    assert variables(spec) == [[{"name": "NVIDIA_VISIBLE_DEVICES", "value": value}]]


SETS = "this pod sets NVIDIA_VISIBLE_DEVICES: remove it"
CHOOSES = "NVIDIA_VISIBLE_DEVICES: remove"
EVENLY = "is shared evenly by the pod's"

REFUSED: dict[str, tuple[Pod, str]] = {
    "the scheduler without a budget": (
        pod(schedulerName="gpu-tenancy"),
        f"schedulerName gpu-tenancy is for pods with {GPUMEM}",
    ),
    "a node by its name": (gpu_pod(nodeName="node"), "use nodeSelector instead of nodeName"),
    "another runtime": (gpu_pod(runtimeClassName="other"), "runs under NVIDIA's runtime: remove runtimeClassName"),
    "a device by its name": (
        pod(container(limits=ASKED, **env(value="0"))),
        CHOOSES,
    ),
    "every device in a container beside it": (
        pod(container(limits=ASKED), container("other", **env(value="all"))),
        CHOOSES,
    ),
    "another annotation of the scheduler's": (
        pod(container(limits=ASKED, **env(**field("metadata.annotations['device.viktorbarzin.me/assumed-at']")))),
        SETS,
    ),
    "the variable twice": (pod(container(limits=ASKED, env=[NO_DEVICE, ITS_DEVICE])), SETS),
    "memory that its devices cannot share": (pod(container(limits={GPUMEM: "3001", GPU_COUNT: "2"})), EVENLY),
    "a start that its devices cannot share": (
        pod(container(limits={GPUMEM: "3k", GPU_COUNT: "2"}), initContainers=[container("init", limits={GPUMEM: "1"})]),
        EVENLY,
    ),
    "more devices than a node has": (
        pod(container(limits={GPUMEM: "3k", GPU_COUNT: "3"})),
        f"asks for more {GPU_COUNT} than a node has (2)",
    ),
    "devices for the start alone": (
        pod(container(limits=ASKED), initContainers=[container("init", limits={GPU_COUNT: "2"})]),
        "ask for it in the containers, not in the init containers",
    ),
    "more than one device offers": (pod(container(limits={GPUMEM: "14001"})), "than one device offers (14000 MiB)"),
    "more than two devices offer": (
        pod(container(limits={GPUMEM: "28002", GPU_COUNT: "2"})),
        "than one device offers (14000 MiB)",
    ),
}


@pytest.mark.parametrize(("manifest", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused(cluster: ApiServer, manifest: Pod, message: str) -> None:
    answer = create(cluster, SEATLESS, manifest)
    assert answer.code == 422
    assert message in (answer.refusal or "")


@pytest.mark.parametrize(
    "limits",
    [{GPUMEM: "14k"}, {GPUMEM: "28k", GPU_COUNT: "2"}, {GPUMEM: "3k", GPU_COUNT: "0"}, {GPUMEM: "3k", GPU: "1"}],
    ids=["a whole device", "two whole devices", "no count", "beside the device plugin"],
)
def test_it_is_admitted(cluster: ApiServer, limits: dict[str, str]) -> None:
    answer = create(cluster, SEATLESS, pod(container(limits=limits)))
    assert answer.refusal is None
    assert variables(answer.body["spec"]) == [SEEN]


def test_only_the_schedulers_own_account_writes_the_device_and_nobody_changes_it(cluster: ApiServer) -> None:
    cluster_role_binding(cluster)
    assert create(cluster, "immich", gpu_pod(), dry_run=False).refusal is None
    path = "/api/v1/namespaces/immich/pods/pod"

    def bind(where: str, user: str) -> str | None:
        metadata = {"name": "pod", "annotations": {DEVICE: "GPU-1"}}
        target = {"kind": "Node", "name": "node"}
        manifest = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        return cluster.request("POST", where, manifest, user=user).refusal

    def annotate(value: str | None, subresource: str = "") -> str | None:
        merge = {"metadata": {"annotations": {DEVICE: value}}}
        return cluster.request("PATCH", path + subresource, merge, content_type=MERGE).refusal

    message = "annotations under device.viktorbarzin.me/ are the scheduler's"
    for subresource in ("", "/status"):
        assert message in (annotate("GPU-2", subresource) or "")
    for user in ("admin", CLUSTERS_SCHEDULER):
        for where in (f"{path}/binding", "/api/v1/namespaces/immich/bindings"):
            assert message in (bind(where, user) or "")
    assert bind(f"{path}/binding", ACCOUNT) is None
    assert cluster.request("GET", path).body["metadata"]["annotations"] == {DEVICE: "GPU-1"}
    for value in ("GPU-2", None):
        assert message in (annotate(value) or "")


def cluster_role_binding(server: ApiServer) -> None:
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "namespace": "gpu-tenancy-system", "name": names.SCHEDULER}
    server.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": names.SCHEDULER},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": names.KUBE_SCHEDULER_ROLES[0]},
            "subjects": [subject],
        },
        "clusterrolebindings",
    )
    await_right(server.api, ACCOUNT, "create", "pods/binding", namespace="immich")


def test_another_scheduler_by_its_name_gets_no_pod_with_a_budget(cluster: ApiServer) -> None:
    manifest = pod(container(limits=ASKED), schedulerName="mine")
    manifest["metadata"]["name"] = "elsewhere"
    answer = create(cluster, "immich", manifest)
    assert answer.refusal is None
    assert answer.body["spec"]["schedulerName"] == names.SCHEDULER_NAME


@pytest.mark.parametrize(
    "resources", [{"requests": ASKED}, {"requests": {GPUMEM: "1"}, "limits": ASKED}], ids=["alone", "below its limit"]
)
def test_a_request_is_its_limit(cluster: ApiServer, resources: dict[str, Any]) -> None:
    asking = {**container(), "resources": resources}
    refusal = create(cluster, "immich", pod(asking)).refusal or ""
    assert "must be equal to" in refusal or "Limit must be set" in refusal


def test_a_debugger_in_such_a_pod_sees_no_device_unless_it_asks_for_the_pods_own(cluster: ApiServer) -> None:
    manifest = gpu_pod()
    manifest["metadata"]["name"] = "debugged"
    assert create(cluster, "immich", manifest, dry_run=False).refusal is None
    path = "/api/v1/namespaces/immich/pods/debugged"

    def debug(name: str, **more: Any) -> list[dict[str, Any]]:
        patch = {"spec": {"ephemeralContainers": [{"name": name, "image": "busybox:1.37.0", **more}]}}
        kind = "application/strategic-merge-patch+json"
        answer = cluster.request("PATCH", f"{path}/ephemeralcontainers", patch, content_type=kind)
        assert answer.refusal is None
        (environment,) = (c["env"] for c in answer.body["spec"]["ephemeralContainers"] if c["name"] == name)
        return list(environment)

    own = {"name": "A", "value": "b"}
    assert debug("bare") == UNSEEN
    assert debug("equipped", env=[own]) == [own, *UNSEEN]
    assert debug("asking", env=[ITS_DEVICE]) == SEEN


STRATEGIC = "application/strategic-merge-patch+json"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1"}
CHANGES: dict[str, tuple[str, str, object]] = {
    "its labels": ("PATCH", "", {"metadata": {"labels": {"is": "debugged"}}}),
    "its annotations": ("PATCH", "", {"metadata": {"annotations": {"is": "debugged"}}}),
    "its finalizers": ("PATCH", "", {"metadata": {"finalizers": ["example.com/kept"]}}),
    "its owners": ("PATCH", "", {"metadata": {"ownerReferences": [OWNER]}}),
    "its grace": ("PATCH", "", {"spec": {"activeDeadlineSeconds": 600}}),
    "its status": ("PATCH", "/status", {"status": {"message": "pulling"}}),
    "its size": ("PATCH", "/resize", {"spec": {"containers": [{"name": "main", "resources": {}}]}}),
    "an eviction": (
        "POST",
        "/eviction",
        {"metadata": {"name": "changed"}, "deleteOptions": {"gracePeriodSeconds": 5}},
    ),
    "a plain eviction": ("POST", "/eviction", {"metadata": {"name": "changed"}}),
    "a deletion": ("DELETE", "", {"gracePeriodSeconds": 5, "dryRun": ["All"]}),
    "a plain deletion": ("DELETE", "", None),
}


@pytest.mark.parametrize(
    ("namespace", "manifest"),
    [("immich", gpu_pod()), ("immich", pod()), ("team-a", pod()), (SEATLESS, pod()), ("default", pod())],
    ids=["a seat", "a tenant", "a queue tenant", "a tenant without seats", "no tenant"],
)
def test_a_pod_with_a_debug_container_can_be_changed_evicted_and_deleted(
    cluster: ApiServer, namespace: str, manifest: Pod
) -> None:
    """An expression that reads a field which only some requests have denies all others, the garbage collector's too."""
    path = f"/api/v1/namespaces/{namespace}/pods/changed"
    named = {**manifest, "metadata": {**manifest["metadata"], "name": "changed"}}
    assert create(cluster, namespace, named, dry_run=False).refusal is None
    debugger = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox:1.37.0"}]}}
    debugged = cluster.request("PATCH", f"{path}/ephemeralcontainers", debugger, content_type=STRATEGIC)
    assert debugged.refusal is None
    refused = {}
    for change, (method, subresource, body) in CHANGES.items():
        kind = STRATEGIC if method == "PATCH" else "application/json"
        answer = cluster.request(method, f"{path}{subresource}?dryRun=All", body, content_type=kind)
        if answer.refusal is not None:
            refused[change] = answer.refusal
    assert refused == {}
    cluster.api.request("DELETE", f"{path}?gracePeriodSeconds=0")
