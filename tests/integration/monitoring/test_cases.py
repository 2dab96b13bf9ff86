"""Tests with promtool which alerts fire in a cluster with several pools, nodes or causes. The examples of each alert
are simpler (test_alerts.py).
"""

from dataclasses import replace
from pathlib import Path

import pytest

from components.monitoring.args import AlertsArgs
from components.monitoring.component import prometheus_rule
from tenancy.ledger import Pool
from tests.support.alerting import Expected, contradiction
from tests.support.given import LEDGER, T4
from tests.support.healthy import (
    ARGS,
    BEATING,
    HEALTHY,
    MIB,
    Series,
    allocatable,
    asking,
    changed,
    exporter_on,
    guarding,
    measured,
    named,
    running,
    without,
)

TENANT_RECYCLES = "gpu_watchdog_tenant_recycles_last_hour"
A10 = replace(T4, name="a10", memory_mib=23028, reserve_mib=1028, floor_mib=2048, node_selector={"zone": "c"})


def of(*pools: Pool) -> AlertsArgs:
    return replace(ARGS, ledger=replace(ARGS.ledger, pools=pools))


TWO_POOLS, TWO_NODES = of(*LEDGER.pools, A10), of(replace(T4, nodes=2))
TWINS = of(*LEDGER.pools, replace(T4, name="a10", floor_mib=2048))  # The nodes of both pools advertise the same gpumem.
IN_C = measured("c", 4000, pool=A10)
TWO_HEALTHY = {**BEATING, **measured("a", 4000), **IN_C, **allocatable(14000, "a"), **allocatable(22000, "c")}
# Both devices have 1600 MiB free. This is above the floor of t4 and below the floor of a10.
EQUALS = {**BEATING, **measured("a", 1600), **measured("c", 1600, pool=A10)}
A_AND_B = {**BEATING, **measured("a", 4000), **measured("b", 4000)}


def runs_on(node: str, name: str, priority: str = "", *, kind: str = "ReplicaSet", phase: str = "Running") -> Series:
    namespace, _, pod = name.partition("/")
    labels = {"namespace": namespace, "pod": pod, "node": node, "priority_class": priority, "created_by_kind": kind}
    return {named("kube_pod_info", **labels): "1x30", running(namespace, pod, phase): "1x30"}


def memory_of(node: str, name: str, request_mib: int, limit_mib: int) -> Series:
    namespace, _, pod = name.partition("/")
    labels = {"namespace": namespace, "pod": pod, "container": "c", "node": node, "resource": "memory"}
    return {
        named("kube_pod_container_resource_requests", **labels): f"{request_mib * MIB}x30",
        named("kube_pod_container_resource_limits", **labels): f"{limit_mib * MIB}x30",
    }


def host_memory(mib: int, *nodes: str) -> Series:
    return {
        named("kube_node_status_allocatable", node=node, resource="memory", unit="byte"): f"{mib * MIB}x30"
        for node in nodes
    }


def second_device(node: str, *gpus: int) -> Series:
    labels = [{"node": node, "gpu": str(gpu), "uuid": f"GPU-{node}{gpu}"} for gpu in gpus]
    return {named("gpu_device_memory_free_bytes", **each): f"{4000 * MIB}x30" for each in labels}


POOLED = {
    **runs_on("node-4", "inference/llm-4", "homelab-critical"),
    **runs_on("node-4", "agents/vm", "homelab-disposable"),
}
MINECRAFT = runs_on("node-4", "games/minecraft")

CASES: dict[str, tuple[AlertsArgs, Series, list[str]]] = {
    "kube-state-metrics runs twice": (ARGS, {**HEALTHY, **allocatable(14000, "a", instance="other")}, []),
    "all is well in two pools": (TWO_POOLS, TWO_HEALTHY, []),
    "of two pools each has its own floor": (
        TWO_POOLS,
        {**EQUALS, **allocatable(14000, "a"), **allocatable(22000, "c")},
        ['alertname="GpuMemoryBelowFloor", pool="a10"'],
    ),
    "nobody uses the device but the driver": (
        ARGS,
        {
            **BEATING,
            **without(
                measured("a", 14910, unattributed_mib=450),
                "gpu_pod_memory_used_bytes",
                "gpu_pod_memory_declared_bytes",
                "gpu_pod_memory_over_bytes",
            ),
            **allocatable(14000, "a"),
        },
        [],
    ),
    "a recycle no longer counts": (ARGS, changed(HEALTHY, {TENANT_RECYCLES: "2x12 1x17"}), []),
    "a pod was recycled, and one exporter shows this a scrape later": (
        ARGS,
        {
            **changed(HEALTHY, {TENANT_RECYCLES: "1x13 2x17"}),
            named(TENANT_RECYCLES, node="b", tenant="chat"): "1x15 2x15",
        },
        ['alertname="GpuPodRecycled", tenant="chat"'],
    ),
    "a node of two has no guard": (ARGS, without(HEALTHY, *guarding("y")), ['alertname="MemoryGuardMissing"']),
    "a sidecar waits for memory": (
        ARGS,
        {
            **without(HEALTHY, *asking()),
            **asking("init_container"),
            'kube_pod_status_unschedulable{namespace="chat",pod="chat-0"}': "1x30",
        },
        ['alertname="GpuMemoryPending", pod="chat-0"'],
    ),
    "a node that is over-bound is short of memory": (
        TWINS,
        {**EQUALS, **allocatable(14000, "a"), **allocatable(15000, "c")},
        ['alertname="GpuMemoryBelowFloor", node="c", pool="a10"', 'alertname="GpuCapacityDrift", node="c"'],
    ),
    "no victim runs on one node of two": (
        ARGS,
        {**HEALTHY, **POOLED, **runs_on("node-5", "inference/llm-5", "homelab-critical")},
        ['alertname="MemoryPoolWithoutVictim", node="node-5"'],
    ),
    "a node of a memory pool is smaller than declared, and another node too": (
        ARGS,
        {**HEALTHY, **POOLED, **host_memory(61_440, "node-4", "node-7")},
        ['alertname="MemoryPoolNodeSmaller", node="node-4"'],
    ),
    "a stranger may take memory on a node of a memory pool": (
        ARGS,
        {**HEALTHY, **POOLED, **MINECRAFT, **memory_of("node-4", "games/minecraft", 1024, 4096)},
        ['alertname="MemoryPoolGuest", node="node-4", pod="minecraft"'],
    ),
    "strangers that cannot, or are elsewhere, or the node's own": (
        ARGS,
        {
            **HEALTHY,
            **POOLED,
            **runs_on("node-4", "games/exact"),
            **memory_of("node-4", "games/exact", 1024, 1024),
            **runs_on("node-7", "games/elsewhere"),
            **memory_of("node-7", "games/elsewhere", 1024, 4096),
            **runs_on("node-4", "kube-system/cni", kind="DaemonSet"),
            **memory_of("node-4", "kube-system/cni", 64, 256),
            **memory_of("node-4", "inference/llm-4", 8192, 32768),
        },
        [],
    ),
    "a dead node beside one too many": (
        TWO_NODES,
        {
            **BEATING,
            **measured("a", 4000),
            **measured("extra", 4000),
            exporter_on("dead"): "1x30",
            **allocatable(14000, "a", "dead"),
        },
        ['alertname="GpuTelemetryMissing", node="dead"'],
    ),
    "a node lost its pool's labels, and its exporter still measures": (
        ARGS,
        without(HEALTHY, "gpu_pool_memory_floor_bytes"),
        ['alertname="GpuTelemetryMissing", node="a"'],
    ),
    "a node lost one of its devices and another has one too many": (
        of(replace(T4, device_count=2, nodes=2)),
        {**A_AND_B, **second_device("b", 1, 2), **allocatable(28000, "a", "b")},
        ['alertname="GpuTelemetryMissing", node="a"'],
    ),
}
BY_NODE = {case for case, (_, _, expected) in CASES.items() if any("node=" in each for each in expected)}


@pytest.mark.parametrize("case", CASES)
def test_exactly_the_right_alerts_fire_when(tmp_path: Path, case: str) -> None:
    args, series, alerts = CASES[case]
    labels = "alertname, cronjob, pool, pod, tenant" + (", node" if case in BY_NODE else "")
    firing = Expected(
        expression=f'count by ({labels}) (ALERTS{{alertstate="firing"}})',
        at="15m",
        samples={f"{{{each}}}": 1 for each in alerts},
    )
    rules = prometheus_rule(args)["spec"]
    assert contradiction(rules, tmp_path, (series, [firing])) is None
