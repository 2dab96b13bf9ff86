"""Tests on a real API server all limits for tenants except budgets. The policies refuse the pods of an attacker, and
admit similar pods that are permitted.
"""

from typing import Any

import pytest

from tenancy import names
from tenancy.admission.namespaces import exemption
from tests.support.e2e.admitted import (
    GPU,
    GPU_COUNT,
    GPUMEM,
    GPUS,
    LAX,
    QUEUES,
    Pod,
    asks,
    container,
    create,
    create_queued,
    gpu_pod,
    host_path,
    pod,
    put_into_force,
    queued,
)
from tests.support.e2e.server import ADMIN, ApiServer
from tests.support.e2e.tenant import may_write
from tests.support.prod import declared, drop, put, raw
from tests.support.waiting import eventually
from toolchain.cluster.api import MERGE

EVE = "eve"
REPLICA_SETS, DEPLOYMENTS = names.REPLICA_SET_CONTROLLERS[0], names.DEPLOYMENT_CONTROLLERS[0]
NAMESPACES = "/api/v1/namespaces"
SEAT_LABEL = "viktorbarzin.me/seat"
BASELINE = {names.POD_SECURITY_ENFORCE: "baseline"}


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    for name, labels in (("found", {}), ("nobodys", {})):
        server.apply(namespace(name, labels), "namespaces")
    put_into_force(
        server,
        drop("scheduler"),
        put("tenants found", {}),
        put("tenants strict", {"pod_security": "restricted"}),
        put("residents llama-swap replicas", 2),
        put("pools t4 cpus", 16),
        put("pools t4 host_memory_mib", 65536),
        put("residents frigate cpus", 6),
        put("residents train", {"tenant": "team-b", "pool": "t4", "gpumem_mib": 500}),
    )
    may_write(server, EVE, ["namespaces", "namespaces/status", "namespaces/finalize"], "")
    return server


def namespace(name: str, labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def privileged(**context: Any) -> Pod:
    return pod(container(securityContext=context))


def sidecar(limits: dict[str, str]) -> dict[str, Any]:
    return container("sidecar", limits=limits, restartPolicy="Always")


def start(limits: dict[str, str]) -> dict[str, Any]:
    return container("start", limits=limits)


SHARED = "nvidia.com/gpu.shared"
DEVICES = f"is on one device, or on as many as its {GPU_COUNT} says"
SEAT = f"a pod with {GPUMEM} is as large as a seat: ask for 1800 or 3000 MiB"
COUNT = f"{GPU_COUNT} spreads a pod's {GPUMEM} over devices"
NOBODYS = "no tenant's"
BUDGET = "this pod reaches a GPU without a budget"

PRIVILEGES: dict[str, Pod] = {
    "a privileged container": privileged(privileged=True),
    "the host's root": host_path("/"),
    "the runtime's socket": host_path("/run/containerd/containerd.sock"),
    "the device plugins' socket": host_path("/var/lib/kubelet/device-plugins"),
    "a capability": privileged(capabilities={"add": ["SYS_RESOURCE"]}),
    "the host's processes": pod(hostPID=True),
    "the host's IPC": pod(hostIPC=True),
    "the host's network": pod(hostNetwork=True),
}
ATTACKS: dict[str, tuple[str, Pod]] = {
    "memory in a namespace that is nobody's": ("nobodys", asks(mib="3000")),
    "devices in a namespace that is nobody's": ("nobodys", asks(count="1")),
    "a GPU in a namespace that is nobody's": ("nobodys", asks(gpu="1")),
    "a slice in a namespace that is nobody's": ("nobodys", pod(container(limits={"nvidia.com/mig-1g.5gb": "1"}))),
    "memory in the default namespace": ("default", asks(mib="3000")),
    "memory at the start, in a namespace that is nobody's": ("nobodys", pod(initContainers=[start({GPUMEM: "3000"})])),
    "a bare pod past the queue": ("team-a", asks(gpu="1")),
    "a bare pod past the queue, with memory": ("team-a", asks(mib="100")),
    "a bare pod past the queue, with devices": ("team-a", asks(count="1")),
    "a bare pod with a Job's owner": ("team-a", queued(asks(gpu="1"))),
    "a bare pod with Kueue's labels": (
        "team-a",
        asks(gpu="1")
        | {
            "metadata": {
                "name": "pod",
                "labels": {names.KUEUE_POD_SET_LABEL: "main", names.KUEUE_QUEUE_LABEL: "team-a-gpu"},
            }
        },
    ),
    "a bare pod past the queue that is no seat": ("team-b", asks(mib="400")),
    "a seat of a queue tenant, with whole devices besides": ("team-b", asks(gpu="1")),
    "a crumb": ("immich", asks(mib="1")),
    "less than a seat": ("immich", asks(mib="1799")),
    "two seats in one pod": ("immich", asks(mib="4800")),
    "a seat over two devices": ("immich", asks(mib="3000", count="2")),
    "more devices than the tenant has of that size": ("immich", asks(mib="6000", count="2")),
    "devices without memory": ("immich", asks(count="8")),
    "a start that is larger than the seat": (
        "immich",
        pod(container(limits={GPUMEM: "3000"}), initContainers=[start({GPUMEM: "3001"})]),
    ),
    "a seat with every GPU of its node": ("immich", asks(mib="3000", gpu="8")),
    "a seat with slices": ("immich", pod(container(limits={GPUMEM: "3000", "nvidia.com/mig-1g.5gb": "2"}))),
    "a seat with a GPU of each name": ("immich", pod(container(limits={GPUMEM: "3000", GPU: "1", SHARED: "1"}))),
    "a seat, and another container with a GPU": (
        "immich",
        pod(container(limits={GPUMEM: "3000", GPU: "1"}), container("other", limits=GPUS)),
    ),
    "a seat, and a sidecar with a GPU": (
        "immich",
        pod(container(limits={GPUMEM: "3000", GPU: "1"}), initContainers=[sidecar(GPUS)]),
    ),
    "a seat that starts with GPUs": (
        "immich",
        pod(container(limits={GPUMEM: "3000"}), initContainers=[start({GPU: "2"})]),
    ),
    "a seat that starts with a GPU next to a sidecar's": (
        "immich",
        pod(container(limits={GPUMEM: "3000"}), initContainers=[sidecar(GPUS), start(GPUS)]),
    ),
    "a seat over two devices, with three": ("llama-swap", asks(mib="10k", count="2", gpu="3")),
    "a seat of a queue tenant, with GPUs past the queue": ("team-b", asks(mib="500", gpu="4")),
    "a sidecar that makes it larger": (
        "immich",
        pod(container(limits={GPUMEM: "3000"}), initContainers=[sidecar({GPUMEM: "1"})]),
    ),
}
SAID = {
    "nobodys": NOBODYS,
    "default": NOBODYS,
    "team-a": QUEUES,
    "team-b": QUEUES,
    "immich": SEAT,
    "llama-swap": DEVICES,
}
ADMITTED: dict[str, tuple[str, Pod]] = {
    "no GPU in a namespace that is nobody's": ("nobodys", pod()),
    "none of a GPU": ("nobodys", asks(gpu="0")),
    "the device plugin's own test": ("nvidia", asks(gpu="1", mib="1")),
    "the cluster's own namespace": ("kube-system", asks(gpu="1")),
    "no GPU in a queue tenant": ("team-a", pod()),
    "a seat of a queue tenant": ("team-b", asks(mib="500", gpu="1")),
    "a seat": ("immich", asks(mib="3000", gpu="1")),
    "the other seat": ("immich", asks(mib="1800")),
    "a seat on its one device": ("immich", asks(mib="3000", count="1")),
    "a seat of several containers": ("immich", pod(*(container(n, limits={GPUMEM: "1500"}) for n in "ab"))),
    "a seat that a sidecar completes": (
        "immich",
        pod(container(limits={GPUMEM: "1000"}), initContainers=[sidecar({GPUMEM: "2000"})]),
    ),
    "a seat that its start uses alone": (
        "immich",
        pod(container(limits={GPUMEM: "1000"}), initContainers=[start({GPUMEM: "3000"})]),
    ),
    "a start next to a sidecar": (
        "immich",
        pod(container(limits={GPUMEM: "1000"}), initContainers=[sidecar({GPUMEM: "800"}), start({GPUMEM: "2200"})]),
    ),
    "a seat with a time slice": ("immich", pod(container(limits={GPUMEM: "3000", SHARED: "1"}))),
    "a seat with another of NVIDIA's resources": (
        "immich",
        pod(container(limits={GPUMEM: "3000", GPU: "1", "nvidia.com/hostdev": "2"})),
    ),
    "a seat whose start has the GPU first": (
        "immich",
        pod(container(limits={GPUMEM: "3000", GPU: "1"}), initContainers=[start(GPUS), start(GPUS) | {"name": "next"}]),
    ),
    "a seat whose start has the GPU before its sidecar": (
        "immich",
        pod(container(limits={GPUMEM: "3000"}), initContainers=[start(GPUS), sidecar(GPUS)]),
    ),
    "two seats with both devices": ("llama-swap", asks(mib="10k", count="2", gpu="2")),
    "two seats on a device each": ("llama-swap", asks(mib="10k", count="2")),
    "an on-demand workload": ("tts", asks(gpu="1")),
    "a privileged pod of a tenant with a reason": (LAX, privileged(privileged=True)),
    "baseline": ("immich", privileged(runAsUser=0)),
}


@pytest.mark.parametrize("attack", PRIVILEGES)
def test_a_tenants_pod_does_not_own_its_node(cluster: ApiServer, attack: str) -> None:
    answer = create(cluster, "immich", PRIVILEGES[attack])
    assert answer.code == 403
    assert 'violates PodSecurity "baseline:latest"' in (answer.refusal or "")
    assert create(cluster, LAX, PRIVILEGES[attack]).refusal is None


def test_a_restricted_tenant_starts_only_restricted_pods(cluster: ApiServer) -> None:
    assert 'violates PodSecurity "restricted:latest"' in (create(cluster, "strict", pod()).refusal or "")


def test_an_existing_namespace_starts_no_pod_before_it_has_its_pod_security_level(cluster: ApiServer) -> None:
    refusal = create(cluster, "found", pod()).refusal or ""
    assert "label it pod-security.kubernetes.io/enforce=baseline" in refusal
    label(cluster, "found", {names.POD_SECURITY_ENFORCE: "privileged"})
    assert create(cluster, "found", pod()).refusal
    label(cluster, "found", BASELINE)
    eventually(lambda: create(cluster, "found", pod()).refusal is None, "its pods start")


@pytest.mark.parametrize("attack", ATTACKS)
def test_it_is_refused(cluster: ApiServer, attack: str) -> None:
    where, manifest = ATTACKS[attack]
    answer = create(cluster, where, manifest)
    assert answer.code == 422
    assert any(said in (answer.refusal or "") for said in (SAID[where], COUNT, BUDGET, DEVICES))


def on_seat(seat: str, mib: str, **limits: str) -> Pod:
    found = asks(mib=mib, **limits)
    return found | {"metadata": {"name": "pod", "labels": {SEAT_LABEL: seat}}}


@pytest.mark.parametrize(
    ("namespace", "labelled"),
    [
        ("immich", on_seat("nobodys", "3000")),
        ("immich", on_seat("immich-server", "3000")),
        ("immich", on_seat("llama-swap", "3000")),
        ("immich", on_seat("immich-ml", "1800")),
        ("immich", on_seat("immich-ml", "0")),
        ("tts", on_seat("immich-ml", "0", gpu="1")),
        ("nobodys", on_seat("immich-ml", "0")),
    ],
)
def test_a_label_that_names_no_seat_of_the_pods_size_is_refused(
    cluster: ApiServer, namespace: str, labelled: Pod
) -> None:
    assert f"or remove the label {SEAT_LABEL}" in (create(cluster, namespace, labelled).refusal or "")


def test_a_label_that_names_a_seat_of_the_pods_size_is_admitted(cluster: ApiServer) -> None:
    assert create(cluster, "immich", on_seat("immich-ml", "3000")).refusal is None
    assert create(cluster, "llama-swap", on_seat("llama-swap", "10k", count="2")).refusal is None
    assert create(cluster, "team-b", on_seat("train", "500")).refusal is None


def test_the_label_of_a_running_pod_may_become_another_seat_of_its_size_only(cluster: ApiServer) -> None:
    cluster.create("/api/v1/namespaces/immich/pods", on_seat("immich-ml", "3000"))
    path = "/api/v1/namespaces/immich/pods/pod"

    def labelled(seat: str | None) -> str:
        change = {"metadata": {"labels": {SEAT_LABEL: seat}}}
        return cluster.request("PATCH", path, change, content_type=MERGE).refusal or ""

    assert f"or remove the label {SEAT_LABEL}" in labelled("immich-server")
    assert labelled(None) == labelled("immich-ml") == ""
    cluster.api.request("DELETE", f"{path}?gracePeriodSeconds=0")


@pytest.mark.parametrize("admitted", ADMITTED)
def test_it_is_admitted(cluster: ApiServer, admitted: str) -> None:
    assert create(cluster, *ADMITTED[admitted]).refusal is None


def test_a_queue_tenants_pods_are_the_job_controllers(cluster: ApiServer) -> None:
    assert create_queued(cluster, "team-a", asks(gpu="1")).refusal is None
    assert create_queued(cluster, "team-b", asks(mib="400")).refusal is None
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "1", "controller": True}
    replica = asks(gpu="1") | {"metadata": {"name": "pod", "ownerReferences": [owner]}}
    for manifest in (replica, queued(asks(gpu="1"))):
        assert QUEUES in (create(cluster, "team-a", manifest, user=REPLICA_SETS).refusal or "")


def on_node(mib: str, cpu: str, memory: str = "1Gi", **spec: Any) -> Pod:
    resources = {"limits": {GPUMEM: mib}, "requests": {"cpu": cpu, "memory": memory}}
    return pod({**container(), "resources": resources}, **spec)


LIMITED = pod(container(limits={GPUMEM: "3000", "cpu": "4"}))  # The API server adds a request for each limit.
WHOLE = {"resources": {"requests": {"cpu": "15"}}}


@pytest.mark.parametrize(
    ("namespace", "manifest", "part"),
    [
        ("immich", on_node("3000", "3126m"), "requests 3126m CPU, and its part of the node is 3125m CPU"),
        ("immich", on_node("3000", "1", "12801Mi"), "12801Mi of host memory, and its part of the node is 12800Mi"),
        ("immich", LIMITED, "requests 4000m CPU"),
        ("immich", on_node("3000", "1", **WHOLE), "requests 15000m CPU"),
        ("tts", pod({**container(limits=GPUS), "resources": {"limits": GPUS, "requests": {"cpu": "3"}}}), "2133m CPU"),
    ],
    ids=["CPU", "host memory", "a limit", "the pod's own requests", "on demand"],
)
def test_a_pod_takes_no_more_of_a_node_than_its_part(
    cluster: ApiServer, namespace: str, manifest: Pod, part: str
) -> None:
    assert part in (create(cluster, namespace, manifest).refusal or "")


@pytest.mark.parametrize(
    ("namespace", "manifest"),
    [
        ("immich", on_node("3000", "3125m", "12800Mi")),
        ("frigate", on_node("2000", "6")),
        ("immich", pod({**container(), "resources": {"requests": {"cpu": "15"}}})),
        ("android-emulator", pod({**container(limits=GPUS), "resources": {"limits": GPUS, "requests": {"cpu": "9"}}})),
    ],
    ids=["exactly its part", "what the stack gives it", "without a GPU", "unbudgeted"],
)
def test_a_part_of_a_node_is_admitted(cluster: ApiServer, namespace: str, manifest: Pod) -> None:
    assert create(cluster, namespace, manifest).refusal is None


GATED = "the GPU of this namespace is for Deployment tts, which the demand gate starts"
REPLICA_SETS_OF = "/apis/apps/v1/namespaces/tts/replicasets"


def replica_set(name: str, replicas: int = 0) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod()["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}


def made_by(name: str, kind: str = "ReplicaSet") -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "1", "controller": True}
    return asks(gpu="1") | {"metadata": {"name": "pod", "ownerReferences": [owner]}}


@pytest.mark.parametrize(
    ("manifest", "user"),
    [
        (asks(gpu="1"), ADMIN),
        (made_by("tts-0"), ADMIN),
        (made_by("second-0"), REPLICA_SETS),
        (made_by("tts-second-0"), REPLICA_SETS),
        (made_by("tts-0", kind="StatefulSet"), REPLICA_SETS),
        (pod(runtimeClassName="nvidia"), ADMIN),
    ],
    ids=["a bare pod", "a forged owner", "another Deployment", "one with its prefix", "another kind", "a runtime"],
)
def test_only_what_the_gate_starts_uses_the_gpu_of_an_on_demand_tenant(
    cluster: ApiServer, manifest: Pod, user: str
) -> None:
    assert GATED in (create(cluster, "tts", manifest, user=user).refusal or "")


def test_nobody_makes_or_scales_a_replica_set_for_what_the_gate_starts(cluster: ApiServer) -> None:
    own = "this ReplicaSet is of a Deployment that the demand gate starts"
    assert own in (cluster.request("POST", REPLICA_SETS_OF, replica_set("tts-0")).refusal or "")
    assert cluster.request("POST", f"{REPLICA_SETS_OF}?dryRun=All", replica_set("tts-second-0")).refusal is None
    assert cluster.request("POST", REPLICA_SETS_OF, replica_set("tts-0"), user=DEPLOYMENTS).refusal is None
    for path in ("", "/scale"):
        scaled = cluster.request(
            "PATCH", f"{REPLICA_SETS_OF}/tts-0{path}", {"spec": {"replicas": 1}}, content_type=MERGE
        )
        assert own in (scaled.refusal or "")
    labelled = {"metadata": {"labels": {"mine": "yes"}}}
    assert cluster.request("PATCH", f"{REPLICA_SETS_OF}/tts-0", labelled, content_type=MERGE).refusal is None
    assert create(cluster, "tts", pod(), user=ADMIN).refusal is None
    cluster.api.request("DELETE", f"{REPLICA_SETS_OF}/tts-0")


def counted(server: ApiServer, tenant: str) -> None:
    (quota,) = (
        each
        for each in declared(raw()).values()
        if each["kind"] == "ResourceQuota" and each["metadata"]["namespace"] == tenant
    )
    path = f"/api/v1/namespaces/{tenant}/resourcequotas"
    server.create(path, {**quota, "apiVersion": "v1"})
    status = {"hard": quota["spec"]["hard"], "used": dict.fromkeys(quota["spec"]["hard"], "0")}
    server.api.patch(f"{path}/{quota['metadata']['name']}/status", {"status": status})


def test_who_needs_no_budget_starts_no_more_gpus_than_are_on_record(cluster: ApiServer) -> None:
    counted(cluster, "ytdlp")
    for resource in (GPU, SHARED):
        first, second = (pod(container(limits={resource: "1"})) for _ in range(2))
        first["metadata"]["name"] = resource.rpartition(".")[2].replace("/", "-")
        eventually(lambda made=first: create(cluster, "ytdlp", made).refusal is None, "the quota is reckoned up")
        assert create(cluster, "ytdlp", first, dry_run=False).refusal is None
        assert f"exceeded quota: {names.SEATS}" in (create(cluster, "ytdlp", second).refusal or "")
    slices = pod(container(limits={"nvidia.com/mig-1g.5gb": "1"}))
    assert "the quota of this tenant counts" in (create(cluster, "ytdlp", slices).refusal or "")
    assert create(cluster, "ytdlp", pod(container(limits={"nvidia.com/hostdev": "1"}))).refusal is None


def label(server: ApiServer, name: str, labels: dict[str, Any], *, user: str = "admin", sub: str = "") -> str | None:
    patch = {"metadata": {"labels": labels}}
    return server.request("PATCH", f"{NAMESPACES}/{name}{sub}", patch, user=user, content_type=MERGE).refusal


EXEMPT, NOT_EXEMPT = {names.EXEMPT: "true"}, {names.EXEMPT: None}
ADMINS = "only who may change admission policies sets or removes it"


@pytest.mark.parametrize("name", ["gpu-operator", "nvidia-device-plugin", "kube-system-2"])
def test_making_a_namespace_of_a_well_known_name_exempts_nobody(cluster: ApiServer, name: str) -> None:
    assert ADMINS in (cluster.request("POST", NAMESPACES, namespace(name, EXEMPT), user=EVE).refusal or "")
    cluster.apply(namespace(name, {}), "namespaces")
    assert NOBODYS in (create(cluster, name, asks(gpu="1", mib="1")).refusal or "")


@pytest.mark.parametrize("sub", ["", "/status"])
def test_nobody_else_sets_or_removes_an_exemption(cluster: ApiServer, sub: str) -> None:
    assert ADMINS in (label(cluster, "nobodys", EXEMPT, user=EVE, sub=sub) or "")
    assert ADMINS in (label(cluster, "nvidia", NOT_EXEMPT, user=EVE, sub=sub) or "")
    assert label(cluster, "nvidia", {"team": "platform"}, user=EVE, sub=sub) is None
    assert create(cluster, "nvidia", gpu_pod()).refusal is None


def test_finalizing_a_namespace_sets_no_exemption(cluster: ApiServer) -> None:
    path = f"{NAMESPACES}/nobodys"
    found = cluster.request("GET", path).body
    found["metadata"]["labels"] = {**found["metadata"]["labels"], **EXEMPT}
    assert ADMINS in (cluster.request("PUT", f"{path}/finalize", found, user=EVE).refusal or "")


@pytest.mark.parametrize("name", ["nvidia", "nobodys"])
def test_an_administrator_exempts_a_namespace_while_the_policies_are_in_force(cluster: ApiServer, name: str) -> None:
    for labels, is_exempt in ((NOT_EXEMPT, False), (exemption(name)["metadata"]["labels"], True)):
        assert label(cluster, name, labels) is None
        eventually(
            lambda exempt=is_exempt: (create(cluster, name, asks(gpu="1")).refusal is None) is exempt,
            f"{name} is {'' if is_exempt else 'not '}exempt",
        )
    if name == "nobodys":
        assert label(cluster, name, NOT_EXEMPT) is None
