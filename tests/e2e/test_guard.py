"""Runs the pods of record 0001 on a real node, until they have used all host memory for pods."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.agents.guard import GuardArgs, daemon_set, guard_agent
from components.base.system import ClusterSpec, code_config_map, namespace
from components.base.zipapp import build
from components.priorities import PreemptionPolicy, PrioritySpec, priority_class
from tenancy import names
from tenancy.host_memory.oom import guarded_oom_score_adj
from tenancy.host_memory.pool import Disposable, HostMemoryPool, Workload
from tests.support.e2e.made import account_objects, made
from tests.support.e2e.rollout import ready_pod
from tests.support.e2e.squeezed import (
    CRITICAL,
    DISPOSABLE,
    POD_MIB,
    Running,
    Squeezed,
    delete,
    oom_score_adj,
    reconfigure,
    squeezed,
)
from tests.support.waiting import becomes, eventually
from toolchain.cluster.cluster import HeldCluster
from toolchain.cluster.control_plane import NODE
from toolchain.cluster.image import agent_image

SYSTEM, TENANT = "guard-test", "guard-tenant"
NODES = names.node_agent_namespace(SYSTEM)
CLUSTER = ClusterSpec(resource_domain="viktorbarzin.me", system_namespace=SYSTEM, agent_image=agent_image())
ROUNDS = 5
KILLED = 137
SYS_RESOURCE = 24
REQUEST_MIB, LIMIT_MIB, STEADY_MIB, VICTIM_MIB, SPARE_MIB = 96, 640, 64, 64, 40
# The host memory of a third pod, which uses less than it requests.
NEIGHBOUR_MIB = 160
GUARDED = guarded_oom_score_adj(LIMIT_MIB, POD_MIB)
THRESHOLD_MIB = 128
POOL = HostMemoryPool(
    name="node",
    node_selector={"kubernetes.io/hostname": NODE},
    memory_mib=POD_MIB,
    allocatable_mib=POD_MIB,
    eviction_threshold_mib=0,
    workloads=(
        Workload(
            name="inference",
            tenant=TENANT,
            priority=CRITICAL,
            request_mib=REQUEST_MIB,
            limit_mib=LIMIT_MIB,
            steady_mib=STEADY_MIB,
            peak_mib=LIMIT_MIB,
        ),
    ),
    disposable=(
        Disposable(
            name="vm",
            tenant=TENANT,
            priority=DISPOSABLE,
            pods_least=1,
            pods_most=1,
            resident_least_mib=VICTIM_MIB,
            resident_most_mib=VICTIM_MIB,
        ),
    ),
)
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture(scope="module")
def tenant(real_cluster: HeldCluster) -> Iterator[HeldCluster]:
    api = real_cluster.api
    never = PreemptionPolicy.NEVER
    objects = (
        ("/api/v1/namespaces", namespace(TENANT, "baseline")),
        (_CLASSES, priority_class(CRITICAL, PrioritySpec(value=100_000, preemption_policy=never))),
        (_CLASSES, priority_class(DISPOSABLE, PrioritySpec(value=-1000, preemption_policy=never))),
    )
    with made(api, objects):
        account = f"/api/v1/namespaces/{TENANT}/serviceaccounts/default"
        eventually(lambda: api.get(account), "the namespace has its account")
        yield real_cluster


@pytest.fixture(scope="module")
def short(tenant: HeldCluster) -> Iterator[Squeezed]:
    with squeezed(tenant, TENANT) as found:
        neighbour = found.run(
            "neighbour",
            holds_mib=NEIGHBOUR_MIB,
            priority=CRITICAL,
            requests={"memory": "224Mi"},
            limits={"memory": "224Mi"},
        )
        yield found
        delete(neighbour)


@pytest.fixture(scope="module")
def guard(short: Squeezed) -> Iterator[Squeezed]:
    code, api = build(), short.cluster.api
    agent = guard_agent(GuardArgs(cluster=CLUSTER, code=code, pools=(POOL,)), POOL)
    workload = allowed_here(daemon_set(agent, POOL))
    objects = (
        ("/api/v1/namespaces", namespace(NODES, "privileged")),
        (f"/api/v1/namespaces/{NODES}/configmaps", code_config_map(code, NODES)),
        *account_objects(agent),
        (f"/apis/apps/v1/namespaces/{NODES}/daemonsets", workload),
    )
    with made(api, objects):
        eventually(lambda: ready_pod(api, NODES), "the guard is ready")
        yield short


def allowed_here(workload: dict[str, Any]) -> dict[str, Any]:
    status = Path("/proc/self/status").read_text()
    bounding = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd:"))
    if not bounding >> SYS_RESOURCE & 1:
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        container["securityContext"]["capabilities"]["add"].remove("SYS_RESOURCE")
    return workload


def inference(on: Squeezed, name: str, restart: str = "Never") -> Running:
    return on.run(
        name,
        holds_mib=STEADY_MIB,
        priority=CRITICAL,
        restart=restart,
        requests={"memory": f"{REQUEST_MIB}Mi"},
        limits={"memory": f"{LIMIT_MIB}Mi"},
    )


def micro_vm(on: Squeezed, name: str, holds_mib: int = VICTIM_MIB) -> Running:
    return on.run(name, holds_mib=holds_mib, priority=DISPOSABLE)


def test_without_the_guard_inference_dies_at_its_peak(short: Squeezed) -> None:
    """The kernel kills the pod with the largest use above its request. The kernel ignores PriorityClasses."""
    llm, vm = inference(short, "unguarded"), micro_vm(short, "vm-unguarded")
    try:
        llm.take_until_gone(llm)
        assert eventually(llm.exit_code, "inference has ended") == KILLED
        assert vm.process() is not None
    finally:
        delete(llm, vm)


def test_with_the_guard_the_microvm_dies_and_inference_lives_on(guard: Squeezed) -> None:
    """The kernel sometimes kills a second process, so the test has two disposable pods."""
    llm, spare = inference(guard, "guarded"), micro_vm(guard, "spare", SPARE_MIB)
    pid = llm.process()
    assert pid is not None
    becomes(lambda: oom_score_adj(pid), GUARDED, "inference is guarded")
    victims = []
    try:
        for number in range(ROUNDS):
            vm = micro_vm(guard, f"vm-{number}")
            victims.append(vm)
            llm.take_until_gone(vm)
            llm.give_back()
            assert llm.process() == pid, number
            if spare.process() is None:
                delete(spare)
                spare = micro_vm(guard, f"spare-{number}", SPARE_MIB)
        assert [eventually(vm.exit_code, "the kubelet tells") for vm in victims] == [KILLED] * ROUNDS
        assert llm.exit_code() is None
    finally:
        delete(llm, spare, *victims)


def test_under_pressure_the_microvm_is_evicted_and_inference_is_not(guard: Squeezed) -> None:
    reconfigure(guard.cluster, evictionHard={"memory.available": f"{THRESHOLD_MIB}Mi"})
    llm, vm = inference(guard, "pressing"), micro_vm(guard, "vm-evicted")
    pid = llm.process()
    try:
        llm.take(guard.left_mib() - THRESHOLD_MIB + VICTIM_MIB // 2)
        status = eventually(lambda: vm.status() if vm.status()["phase"] == "Failed" else None, "the microVM ends")
        assert status["reason"] == "Evicted"
        llm.give_back()
        assert (llm.process(), llm.status()["phase"]) == (pid, "Running")
    finally:
        delete(llm, vm)
