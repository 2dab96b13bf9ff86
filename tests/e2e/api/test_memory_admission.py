"""Tests the admission policies of memory pools in a real API server, with all combinations of PriorityClasses and
requests.
"""

from typing import Any

import pytest

from components.admission.host_memory import policies
from components.priorities import PreemptionPolicy, PrioritySpec, priority_class
from tenancy.admission.policy import binding
from tenancy.host_memory.pool import Disposable, HostMemoryPool, HostMemoryPools, Workload
from tests.support.e2e.server import ApiAnswer, ApiServer
from tests.support.waiting import eventually

CRITICAL, DISPOSABLE, IDLE = "homelab-critical", "homelab-disposable", "homelab-idle"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}


def workload(tenant: str) -> Workload:
    return Workload(name="it", tenant=tenant, priority=CRITICAL, request_mib=8, limit_mib=32, steady_mib=8, peak_mib=8)


def victims(tenant: str, request_mib: int = 0, priority: str = DISPOSABLE) -> Disposable:
    return Disposable(
        name="them",
        tenant=tenant,
        priority=priority,
        pods_least=1,
        pods_most=2,
        resident_least_mib=512,
        resident_most_mib=512,
        request_mib=request_mib,
    )


POOL = HostMemoryPool(
    name="node-4",
    node_selector={"kubernetes.io/hostname": "node-4"},
    memory_mib=62464,
    allocatable_mib=62364,
    eviction_threshold_mib=100,
    workloads=(workload("inference"), workload("mixed")),
    disposable=(victims("agents"), victims("sandboxes", 64), victims("sandboxes", 16, IDLE), victims("mixed")),
)
TENANTS = ("inference", "mixed", "agents", "sandboxes")


def pod(priority: str | None, *resources: dict[str, Any], **spec: Any) -> dict[str, Any]:
    containers = [{"name": f"c{n}", "image": "busybox:1.37.0", "resources": r} for n, r in enumerate(resources)]
    given = {"containers": containers, **spec} | ({"priorityClassName": priority} if priority else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": given}


def memory(request: str | None = None, limit: str | None = None) -> dict[str, Any]:
    given = (("requests", request), ("limits", limit))
    return {part: {"memory": amount} for part, amount in given if amount is not None}


def create(server: ApiServer, namespace: str, manifest: dict[str, Any]) -> ApiAnswer:
    return server.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", manifest)


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    for tenant in TENANTS:
        server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}}, "namespaces")
    for name, spec in (
        (CRITICAL, PrioritySpec(value=100_000)),
        (DISPOSABLE, PrioritySpec(value=-1000, preemption_policy=PreemptionPolicy.NEVER)),
        (IDLE, PrioritySpec(value=-2000, preemption_policy=PreemptionPolicy.NEVER)),
    ):
        server.apply(priority_class(name, spec), "priorityclasses")
    for policy in policies(HostMemoryPools(pools=(POOL,))):
        for manifest in (policy, binding(policy)):
            server.apply(manifest, PLURALS[manifest["kind"]])
    burst = pod(None, memory("1Gi", "2Gi"))

    def in_force() -> bool:
        stamped = "shm_rmid_forced" in str(create(server, "agents", pod(DISPOSABLE, {})).body)
        return stamped and all(create(server, tenant, burst).refusal for tenant in TENANTS)

    eventually(in_force, "the policies are in force for every tenant")
    return server


BURST = "may hold more memory than it requests"
LIMIT = "a pod of class homelab-critical needs a memory limit on each container"
BEST_EFFORT = "is there to be killed first, and so BestEffort: state no cpu and no memory"
SMALL = "is there to be killed first: request at most 64Mi of memory in all"
TMPFS = "what it wrote to an emptyDir of medium Memory would stay"
SHARED = "its shared memory would stay: remove the sysctl kernel.shm_rmid_forced"
VICTIMS = "is the memory pools' victims': give the pod priorityClassName homelab-disposable"
IN_MEMORY = {"volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}]}
ON_DISK = {"volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "settings", "configMap": {"name": "it"}}]}


def sysctls(**values: str) -> dict[str, Any]:
    return {"securityContext": {"sysctls": [{"name": f"kernel.{name}", "value": v} for name, v in values.items()]}}


UNREQUESTED = {"limits": {"memory": "2Gi"}, "requests": {"memory": "0"}}

REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a burst without a class": ("inference", pod(None, memory("1Gi", "2Gi")), BURST),
    "a burst in one of two containers": ("inference", pod(None, memory("1Gi", "1Gi"), memory("1Gi", "2Gi")), BURST),
    "a burst from nothing": ("inference", pod(None, UNREQUESTED), BURST),
    "a request without a limit": ("inference", pod(None, memory("1Gi")), BURST),
    "a burst at start": (
        "inference",
        pod(None, {}, initContainers=[{"name": "i", "image": "busybox:1.37.0", "resources": memory("1Gi", "2Gi")}]),
        BURST,
    ),
    "a burst of the whole pod": ("inference", pod(None, {}, resources=memory("1Gi", "2Gi")), BURST),
    "a burst beside victims": ("mixed", pod(None, memory("1Gi", "2Gi")), BURST),
    "a critical pod without a limit": ("inference", pod(CRITICAL, memory("1Gi")), LIMIT),
    "a critical pod with a container without a limit": ("inference", pod(CRITICAL, memory("1Gi", "2Gi"), {}), LIMIT),
    "a victim that requests memory": ("agents", pod(DISPOSABLE, memory("1Mi")), BEST_EFFORT),
    "a victim with a limit, which is a request": ("agents", pod(DISPOSABLE, memory(limit="1Gi")), BEST_EFFORT),
    "a victim that requests cpu": ("agents", pod(DISPOSABLE, {"requests": {"cpu": "100m"}}), BEST_EFFORT),
    "a victim that requests as a pod": ("agents", pod(DISPOSABLE, {}, resources=memory("1Mi", "1Mi")), BEST_EFFORT),
    "a victim in a mixed namespace that requests": ("mixed", pod(DISPOSABLE, memory("1Mi", "1Mi")), BEST_EFFORT),
    "a victim that requests more than it may": ("sandboxes", pod(DISPOSABLE, memory("65Mi", "1Gi")), SMALL),
    "a victim whose containers request more than it may together": (
        "sandboxes",
        pod(DISPOSABLE, memory("40Mi", "1Gi"), memory("40Mi", "1Gi")),
        SMALL,
    ),
    "a victim that requests more than it may as a pod": (
        "sandboxes",
        pod(DISPOSABLE, {}, resources=memory("65Mi", "1Gi")),
        SMALL,
    ),
    "a victim that requests what only those of another class may": (
        "sandboxes",
        pod(IDLE, memory("17Mi", "1Gi")),
        "a pod of class homelab-idle is there to be killed first: request at most 16Mi of memory in all",
    ),
    "a victim with a tmpfs": ("agents", pod(DISPOSABLE, {}, **IN_MEMORY), TMPFS),
    "a victim that requests, with a tmpfs": ("sandboxes", pod(DISPOSABLE, memory("64Mi", "1Gi"), **IN_MEMORY), TMPFS),
    "a victim beside workloads, with a tmpfs": ("mixed", pod(DISPOSABLE, {}, **IN_MEMORY), TMPFS),
    "a victim that keeps its shared memory": ("agents", pod(DISPOSABLE, {}, **sysctls(shm_rmid_forced="0")), SHARED),
    "a pod of no class among victims": ("agents", pod(None, {}), VICTIMS),
    "a pod of another class among victims": ("agents", pod(CRITICAL, {}), VICTIMS),
    "a pod of no class among victims that request": ("sandboxes", pod(None, memory("1Mi", "1Mi")), VICTIMS),
}

ADMITTED: dict[str, tuple[str, dict[str, Any]]] = {
    "the declared workload": ("inference", pod(CRITICAL, memory("8Gi", "32Gi"))),
    "a critical pod with a sidecar that has a limit": (
        "inference",
        pod(CRITICAL, memory("8Gi", "32Gi"), memory("64Mi", "64Mi")),
    ),
    "a pod that holds what it requests": ("inference", pod(None, memory("1Gi", "1024Mi"))),
    "a limit alone, which is the request": ("inference", pod(None, memory(limit="1Gi"))),
    "a pod that states nothing": ("inference", pod(None, {})),
    "cpu beyond its request": ("inference", pod(None, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}})),
    "a victim": ("agents", pod(DISPOSABLE, {})),
    "a victim of two containers": ("agents", pod(DISPOSABLE, {}, {})),
    "a victim that requests what it may": ("sandboxes", pod(DISPOSABLE, memory("64Mi", "1Gi"))),
    "a victim that starts with what it may request": (
        "sandboxes",
        pod(
            DISPOSABLE,
            memory("64Mi", "1Gi"),
            initContainers=[{"name": "i", "image": "busybox:1.37.0", "resources": memory("64Mi", "1Gi")}],
        ),
    ),
    "a victim that requests nothing where it might": ("sandboxes", pod(DISPOSABLE, {})),
    "a victim with volumes that are not memory": ("agents", pod(DISPOSABLE, {}, **ON_DISK)),
    "a workload with a tmpfs, which its limit counts": (
        "inference",
        pod(CRITICAL, memory("8Gi", "32Gi"), **IN_MEMORY),
    ),
    "a victim beside workloads": ("mixed", pod(DISPOSABLE, {})),
    "a workload beside victims": ("mixed", pod(CRITICAL, memory("8Gi", "32Gi"))),
    "a burst where no pool is": ("default", pod(None, memory("1Gi", "2Gi"))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_undo_the_order_of_victims_is_refused(cluster: ApiServer, case: str) -> None:
    namespace, manifest, message = REFUSED[case]
    refusal = create(cluster, namespace, manifest).refusal
    assert refusal is not None
    assert message in refusal


@pytest.mark.parametrize("case", ADMITTED)
def test_a_pod_that_keeps_the_order_of_victims_is_admitted(cluster: ApiServer, case: str) -> None:
    namespace, manifest = ADMITTED[case]
    assert create(cluster, namespace, manifest).refusal is None


@pytest.mark.parametrize("given", [{}, sysctls(shm_rmid_forced="1"), sysctls(msgmax="8192")])
def test_a_victims_shared_memory_goes_with_its_processes(cluster: ApiServer, given: dict[str, Any]) -> None:
    answer = create(cluster, "agents", pod(DISPOSABLE, {}, **given))
    assert answer.refusal is None
    before = given.get("securityContext", {}).get("sysctls", [])
    freed = {"name": "kernel.shm_rmid_forced", "value": "1"}
    assert answer.body["spec"]["securityContext"]["sysctls"] == [*(s for s in before if s != freed), freed]


def test_nobody_elses_pod_is_changed(cluster: ApiServer) -> None:
    answer = create(cluster, "mixed", pod(CRITICAL, memory("8Gi", "32Gi")))
    assert "sysctls" not in answer.body["spec"].get("securityContext", {})
