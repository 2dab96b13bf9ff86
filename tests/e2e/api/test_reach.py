"""Tests with prod's policies that a tenant cannot use the GPU of another tenant. A number such as T2 is the number of
the attack in docs/choosing/security.md.
"""

from typing import Any

import pytest

from tenancy import names
from tests.support.e2e.admitted import (
    GPU,
    GPUMEM,
    Pod,
    container,
    create,
    create_queued,
    env,
    gpu_pod,
    host_path,
    pod,
    put_into_force,
)
from tests.support.e2e.reaching import (
    HANDLERS,
    HIDDEN,
    RESOURCE_API,
    SOMEWHERE,
    add_runtime_classes,
    claim,
    configure,
    environments,
)
from tests.support.e2e.server import ApiServer
from tests.support.prod import put
from toolchain.cluster.api import MERGE


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    put_into_force(server, put("admission device_classes", ["nic.example.com"]))
    server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SOMEWHERE}}, "namespaces")
    add_runtime_classes(server, HANDLERS)
    return server


def _volumes(path: str) -> dict[str, Any]:
    return {"volumes": host_path(path)["spec"]["volumes"]}


# T2: a tenant chooses a RuntimeClass.


@pytest.mark.parametrize("runtime", ["nvidia", "nvidia-cdi", "fast"])
@pytest.mark.parametrize("namespace", ["immich", SOMEWHERE])
def test_a_runtime_of_nvidias_needs_a_budget_whatever_its_class_is_called(
    cluster: ApiServer, namespace: str, runtime: str
) -> None:
    answer = create(cluster, namespace, pod(runtimeClassName=runtime))
    assert answer.code == 422
    assert "without a budget" in (answer.refusal or "")


def test_other_runtimes_and_whole_devices_are_left_alone(cluster: ApiServer) -> None:
    assert create(cluster, "immich", pod(runtimeClassName="gvisor")).refusal is None
    assert create_queued(cluster, "team-a", gpu_pod(None, runtimeClassName="nvidia-cdi")).refusal is None
    assert create(cluster, "nvidia", pod(runtimeClassName="nvidia-cdi")).refusal is None


# T3: a tenant changes the environment variable that the device plugin sets.


@pytest.mark.parametrize("kind", ["configmaps", "secrets"])
@pytest.mark.parametrize("namespace", ["team-a", "tts"])
def test_no_envfrom_widens_what_the_device_plugin_gave(cluster: ApiServer, namespace: str, kind: str) -> None:
    refusal = configure(cluster, namespace, kind, "mine", "NVIDIA_VISIBLE_DEVICES").refusal
    assert "would choose devices by envFrom: remove it" in (refusal or "")
    assert configure(cluster, namespace, kind, "mine", "MODEL").refusal is None


def test_nor_does_one_whose_prefix_makes_the_name(cluster: ApiServer) -> None:
    def taken(prefix: str | None) -> str | None:
        source = {"configMapRef": {"name": "mine"}, **({"prefix": prefix} if prefix else {})}
        return create_queued(cluster, "team-a", pod(container(limits={GPU: "1"}, envFrom=[source]))).refusal

    assert "chooses its device by NVIDIA_VISIBLE_DEVICES" in (taken("NVIDIA_") or "")
    assert taken("MODEL_") is None
    assert taken(None) is None


def test_a_configmap_does_not_matter_if_the_policy_sets_the_variable(cluster: ApiServer) -> None:
    assert configure(cluster, "immich", "configmaps", "mine", "NVIDIA_VISIBLE_DEVICES").refusal is None


def test_what_the_device_plugin_sets_is_left_alone(cluster: ApiServer) -> None:
    for resource in (GPU, "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"):
        answer = create_queued(cluster, "team-a", pod(container(limits={resource: "1"}), container("beside")))
        assert environments(answer) == [[], [HIDDEN]]


# T4: a tenant uses an image that asks for every device.


@pytest.mark.parametrize("namespace", ["immich", "tts", "team-a", SOMEWHERE, "default"])
def test_who_asks_for_no_device_sees_none_whatever_the_image_says(cluster: ApiServer, namespace: str) -> None:
    own = {"name": "CUDA_VERSION", "value": "12.4"}
    manifest = pod(
        container(env=[own]),
        container("bare"),
        initContainers=[container("fetch"), container("proxy", restartPolicy="Always")],
    )
    answer = create(cluster, namespace, manifest)
    assert environments(answer) == [[own, HIDDEN], [HIDDEN]]
    assert environments(answer, "initContainers") == [[HIDDEN], [HIDDEN]]


def test_a_network_card_of_nvidias_shows_no_gpu(cluster: ApiServer) -> None:
    assert environments(create_queued(cluster, "team-a", pod(container(limits={"nvidia.com/hostdev": "1"})))) == [
        [HIDDEN]
    ]
    for namespace in ("default", "immich"):
        assert create(cluster, namespace, pod(container(limits={"nvidia.com/hostdev": "1"}))).refusal is None


def test_an_exempt_namespace_is_left_alone(cluster: ApiServer) -> None:
    assert environments(create(cluster, "nvidia", pod(container(**env(value="all"))))) == [env(value="all")["env"]]
    assert environments(create(cluster, "nvidia", pod())) == [[]]


# A tenant asks for devices by an annotation or by a mount.


ANNOTATIONS = [
    "cdi.k8s.io/mine",
    "nvidia.cdi.k8s.io/container.main",
    "devices.nri.io/pod",
    "io.kubernetes.cri-o.Devices",
]


@pytest.mark.parametrize("key", ANNOTATIONS)
def test_no_runtime_adds_devices_by_annotation(cluster: ApiServer, key: str) -> None:
    message = "this pod has a container runtime add devices"
    given = {key: "nvidia.com/gpu=all"}
    assert message in (create(cluster, "immich", pod(annotations=given)).refusal or "")
    assert message in (create(cluster, "team-a", {**gpu_pod(None), **pod(annotations=given)}).refusal or "")
    manifest = pod()
    manifest["metadata"]["name"] = "annotated"
    create(cluster, "immich", manifest, dry_run=False)
    path, later = "/api/v1/namespaces/immich/pods/annotated", {"metadata": {"annotations": given}}
    assert message in (cluster.request("PATCH", path, later, content_type=MERGE).refusal or "")


def test_a_list_of_devices_as_mounts_needs_a_budget(cluster: ApiServer) -> None:
    mount = {"name": "host", "mountPath": "/var/run/nvidia-container-devices/all"}
    manifest = pod(container(volumeMounts=[mount]), **_volumes("/dev/null"))
    assert "without a budget" in (create(cluster, SOMEWHERE, manifest).refusal or "")


# T13: a tenant uses a ResourceClaim.


@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("namespace", ["immich", "team-a", SOMEWHERE])
def test_a_claim_on_another_drivers_devices_is_refused(
    cluster: ApiServer, namespace: str, *, first: bool, template: bool
) -> None:
    answer = claim(cluster, namespace, "gpu.nvidia.com", first=first, template=template)
    assert answer.code == 422
    assert "asks for devices beside the budgets" in (answer.refusal or "")


@pytest.mark.parametrize("template", [False, True])
def test_what_is_listed_may_be_claimed(cluster: ApiServer, *, template: bool) -> None:
    assert claim(cluster, "immich", "nic.example.com", template=template).refusal is None
    assert claim(cluster, "nvidia", "gpu.nvidia.com", template=template).refusal is None


def test_the_schedulers_own_claim_on_nothing_is_left_alone(cluster: ApiServer) -> None:
    manifest = {"apiVersion": names.RESOURCE_API, "kind": "ResourceClaim", "metadata": {"name": "none"}, "spec": {}}
    path = f"{RESOURCE_API}/namespaces/gpu-tenancy-system/resourceclaims?dryRun=All"
    assert cluster.request("POST", path, manifest).refusal is None


def test_a_class_of_devices_that_is_asked_for_as_a_resource_needs_a_budget(cluster: ApiServer) -> None:
    asked = {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "1"}
    assert "without a budget" in (create(cluster, "immich", pod(container(limits=asked))).refusal or "")


# T7: a tenant uses a PriorityClass of Kubernetes itself.


@pytest.mark.parametrize("priority", ["system-node-critical", "system-cluster-critical"])
@pytest.mark.parametrize("namespace", ["immich", "team-a", SOMEWHERE, "default"])
def test_the_systems_classes_are_for_the_system(cluster: ApiServer, namespace: str, priority: str) -> None:
    answer = create(cluster, namespace, pod(priorityClassName=priority))
    assert answer.code == 422
    assert "is for what the cluster cannot do without" in (answer.refusal or "")


@pytest.mark.parametrize("namespace", ["kube-system", "nvidia", "gpu-tenancy-system", "gpu-tenancy-system-nodes"])
def test_the_system_and_our_agents_have_them(cluster: ApiServer, namespace: str) -> None:
    restricted = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    manifest = pod(container(securityContext=secure), priorityClassName="system-cluster-critical")
    manifest["spec"]["securityContext"] = restricted
    assert create(cluster, namespace, manifest).refusal is None


def test_a_large_pod_is_within_what_expressions_may_cost(cluster: ApiServer) -> None:
    own: list[dict[str, str]] = [{"name": f"V{n}", "value": "x" * 100} for n in range(300)]
    manifest: Pod = pod(*(container(f"c{n}", env=own) for n in range(30)))
    assert environments(create(cluster, "immich", manifest)) == [[*own, HIDDEN]] * 30
    manifest["spec"]["containers"][0]["resources"] = {"limits": {GPUMEM: "3k"}}
    assert environments(create(cluster, "immich", manifest))[1:] == [[*own, HIDDEN]] * 29
