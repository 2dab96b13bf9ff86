"""Builds the series of a healthy cluster for promtool, and settings for a stack with every alert."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from components.monitoring.args import AlertsArgs, AlertsSpec
from tenancy.choices import Enforce
from tenancy.ledger import OnDemand, Pool, Unbudgeted, WorkerCluster
from tests.support.given import CLUSTER, LEDGER, NODES, SYSTEM, T4
from tests.support.memory_pools import NODE_4

MIB = 2**20
# Maps each series to its values in promtool's notation, one value for each minute.
Series = dict[str, str]
CRON_JOBS = ("gpumem-reconcile", "gpu-vram-watchdog")
CAPPED = replace(T4, enforce=Enforce.DRIVER)
# The settings of a stack that has every alert.
ARGS = AlertsArgs(
    spec=AlertsSpec(labels={"release": "prometheus"}, queue_wait_minutes=10),
    cluster=CLUSTER,
    ledger=replace(
        LEDGER,
        pools=(CAPPED, *LEDGER.pools[1:]),
        on_demand=(OnDemand(name="tts", tenant="voice", pool="t4", need_mib=2048),),
        unbudgeted=(Unbudgeted(name="emulator", tenant="emulator", pool="t4", measured_mib=154),),
        clusters=(WorkerCluster(name="east", promises={"nvidia.com/gpu": 8}),),
    ),
    cron_jobs=CRON_JOBS,
    recycles_per_hour=6,
    places_by_device=True,
    guards=("memory-guard-node-4", "memory-guard-node-5"),
    host_memory=(NODE_4,),
    kueue_namespace="kueue-system",
)


def last_success(cron_job: str) -> str:
    return named("kube_cronjob_status_last_successful_time", namespace=SYSTEM, cronjob=cron_job, instance="ksm")


def named(name: str, /, **labels: str) -> str:
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def steady(value: float) -> str:
    return f"{int(value)}x30"


def measured(node: str, free_mib: int, *, unattributed_mib: int = 0, pool: Pool = T4) -> Series:
    device = {"node": node, "gpu": "0", "uuid": f"GPU-{node}"}
    pod = {"node": node, "namespace": "chat", "pod": "chat-0", "pod_uid": "u"}
    total_mib = 15360
    used_mib = total_mib - free_mib
    mib = {
        named("gpu_device_memory_total_bytes", **device): total_mib,
        named("gpu_device_memory_free_bytes", **device): free_mib,
        named("gpu_device_memory_used_bytes", **device): used_mib,
        named("gpu_memory_unattributed_bytes", **device): unattributed_mib,
        named("gpu_pod_memory_used_bytes", **(device | pod), container="c"): used_mib - unattributed_mib,
        named("gpu_pod_memory_declared_bytes", **pod): 5000,
        named("gpu_pod_memory_over_bytes", **pod): 0,
        named("gpu_pool_memory_advertised_bytes", node=node, pool=pool.name): 14000,
        named("gpu_pool_memory_promised_bytes", node=node, pool=pool.name): 13300,
        named("gpu_pool_memory_floor_bytes", node=node, pool=pool.name): pool.floor_mib,
    }
    return {
        **{name: steady(value * MIB) for name, value in mib.items()},
        named("gpu_memory_unknown_processes", **device): "0x30",
        named("gpu_memory_exporter_api_age_seconds", node=node): "14x30",
        named("gpu_unjudged_objects", node=node, agent="exporter", kind="pod"): "0x30",
        named("gpu_watchdog_recycles_last_hour", node=node): "0x30",
        named("gpu_watchdog_tenant_recycles_last_hour", node=node, tenant="chat"): "0x30",
        exporter_on(node): "1x30",
    }


def exporter_on(node: str) -> str:
    return named("kube_pod_info", namespace=NODES, pod=f"e-{node}", node=node, created_by_name="gpu-memory-exporter")


def allocatable(mib: int, *nodes: str, instance: str = "ksm") -> Series:
    labels = {"resource": "example_com_gpumem", "unit": "integer", "instance": instance}
    return {named("kube_node_status_allocatable", node=node, **labels): f"{mib}x30" for node in nodes}


def asking(of: str = "container") -> Series:
    asks = {"namespace": "chat", "pod": "chat-0", "container": "c", "resource": "example_com_gpumem"}
    return {
        **{named(f"kube_pod_{of}_resource_requests", **asks, instance=each): "5000x30" for each in "ab"},
        running("chat", "chat-0"): "1x30",
    }


def running(namespace: str, pod: str, phase: str = "Running") -> str:
    return named("kube_pod_status_phase", namespace=namespace, pod=pod, phase=phase)


def placing() -> Series:
    series = {}
    for pod in "ab":
        device = {"node": "a", "gpu": "0", "uuid": "GPU-a", "pod": pod}
        series |= {
            named("gpu_extender_leading", pod=pod): "1x30" if pod == "a" else "0x30",
            named("gpu_extender_ready", pod=pod): "1x30",
            named("gpu_extender_waiting_pods", pod=pod): "0x30",
            named("gpu_extender_ledger_drift", pod=pod, kind="missing"): "0x30",
            named("gpu_extender_held_seats", pod=pod, pool="t4"): "0x30",
            named("gpu_extender_overcrowded_seats_total", pod=pod, pool="t4"): "0x30",
            named("gpu_extender_device_memory_offered_bytes", **device): steady(14000 * MIB),
            named("gpu_extender_device_memory_allocated_bytes", **device): steady(10000 * MIB),
        }
    return series


def guarding(node: str) -> Series:
    where = {"node": node, "instance": f"{node}:9402"}
    pod = {**where, "namespace": "inference", "pod": f"llm-{node}", "pod_uid": "u"}
    return {
        named("memory_guard_api_age_seconds", **where): "30x30",
        named("memory_guard_held_processes", **pod): "3x30",
        named("memory_guard_unheld_processes", **pod): "0x30",
    }


def queueing() -> Series:
    queue = {"cluster_queue": "gpu", "replica_role": "standalone", "instance": "kueue:8443"}
    quota = {**queue, "cohort": "", "flavor": "any", "resource": "nvidia.com/gpu"}
    local = {"namespace": "team-a", "name": "team-a-gpu", "instance": "kueue:8443"}
    manager = {"namespace": "kueue-system", "deployment": "kueue-controller-manager", "instance": "ksm"}
    failed = {"error_type": "calling_webhook_error", "name": "mjob.kb.io"}
    return {
        named("kube_deployment_status_replicas_available", **manager): "1x30",
        named("apiserver_admission_webhook_rejection_count", **failed): "0x30",
        named("kueue_cluster_queue_status", **queue, status="active"): "1x30",
        named("kueue_cluster_queue_status", **queue, status="pending"): "0x30",
        named("kueue_cluster_queue_nominal_quota", **quota): "2x30",
        named("kueue_cluster_queue_borrowing_limit", **quota): "0x30",
        named("kueue_cluster_queue_resource_reservation", **quota): "1x30",
        named("kueue_cluster_queue_resource_pending", **queue, resource="nvidia.com/gpu"): "0x30",
        named("kueue_local_queue_pending_workloads", **local, status="active"): "0x30",
        named("kueue_local_queue_admitted_active_workloads", **local): "1x30",
        named("kueue_admitted_workloads_total", **queue): "4x30",
    }


def desired(daemon_set: str, nodes: int) -> Series:
    labels = {"namespace": NODES, "daemonset": daemon_set, "instance": "ksm"}
    return {named("kube_daemonset_status_desired_number_scheduled", **labels): f"{nodes}x30"}


# All other series of a healthy cluster. Each agent completes a run every minute.
BEATING = {
    **{last_success(name): "0+60x30" for name in CRON_JOBS},
    **placing(),
    **desired("memory-guard-node-4", 2),
    **desired("memory-guard-node-5", 0),
    **queueing(),
    **guarding("x"),
    **guarding("y"),
}
HEALTHY = {**BEATING, **measured("a", 4000), **allocatable(14000, "a"), **asking()}


def changed(series: Mapping[str, str], changes: Mapping[str, str]) -> Series:
    found = dict(series)
    for key, values in changes.items():
        found |= dict.fromkeys(selected(series, key) or [key], values)
    return found


def without(series: Mapping[str, str], *keys: str) -> Series:
    gone = {name for key in keys for name in selected(series, key) or [key]}
    assert gone <= series.keys(), gone - series.keys()
    return {name: values for name, values in series.items() if name not in gone}


def selected(series: Iterable[str], key: str) -> list[str]:
    name, labels = _read(key)
    return [each for each in series if _read(each)[0] == name and labels.items() <= _read(each)[1].items()]


def _read(series: str) -> tuple[str, dict[str, str]]:
    name, _, labels = series.partition("{")
    return name, dict(re.findall(r'(\w+)="([^"]*)"', labels))
