"""The rules' text on the recorded graph, and their behaviour in Prometheus' own rule tests."""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.monitoring.alertmanager import DigestSpec, SlackWebhook
from components.monitoring.args import AlertsArgs, AlertsSpec
from components.monitoring.component import Alerts, prometheus_rule
from components.monitoring.rules.alert import SILENT_SECONDS
from tenancy.ledger import OnDemand, Pool, Unbudgeted
from tests.support import alerting
from tests.support.alerting import AFTER_SECONDS, FAULT, TimeLine, beats
from tests.support.engine import Graph, names
from tests.support.given import CLUSTER, LEDGER, NODE_4, NODES, SYSTEM, T4, declared
from tests.support.paths import ROOT

MIB = 2**20
Series = list[dict[str, str]]
RUN_BOOK = ROOT / "docs" / "operations.md"
CRON_JOBS = ("gpumem-reconcile", "gpu-vram-watchdog")
A10 = replace(T4, name="a10", memory_mib=23028, reserve_mib=1028, floor_mib=2048, node_selector={"zone": "c"})
ARGS = AlertsArgs(
    spec=AlertsSpec(labels={"release": "prometheus"}),
    cluster=CLUSTER,
    ledger=replace(
        LEDGER,
        on_demand=(OnDemand(name="tts", tenant="voice", pool="t4", need_mib=2048),),
        unbudgeted=(Unbudgeted(name="emulator", tenant="emulator", pool="t4", measured_mib=154),),
    ),
    cron_jobs=CRON_JOBS,
    recycles_per_hour=6,
    total_recycles_per_hour=24,
    places_by_device=True,
    guards=("memory-guard-node-4", "memory-guard-node-5"),
    host_memory=(NODE_4,),
)
TWO_POOLS = replace(ARGS, ledger=replace(ARGS.ledger, pools=(*LEDGER.pools, A10)))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Alerts, "alerts", ARGS)


def rules(args: AlertsArgs) -> list[dict[str, Any]]:
    group, _ = prometheus_rule(args)["spec"]["groups"]
    return list(group["rules"])


def test_it_declares_the_rules_the_scrape_they_rest_on_and_the_dashboard(graph: Graph) -> None:
    children = names(graph.children(graph.one("Alerts")))
    assert children == {"alerts-rule", "alerts-pod-monitor", "alerts-scheduler-monitor", "alerts-dashboard"}
    for declared_object in (graph.one("PrometheusRule"), *graph.all("PodMonitor")):
        metadata = declared_object.inputs["metadata"]
        assert metadata["namespace"] == SYSTEM
        assert metadata["labels"]["release"] == "prometheus"


def test_the_operator_may_put_them_into_another_namespace() -> None:
    graph = declared(Alerts, "alerts", replace(ARGS, spec=AlertsSpec(namespace="monitoring")))
    assert graph.one("PrometheusRule").inputs["metadata"]["namespace"] == "monitoring"


def test_the_scrape_finds_the_node_agents_pods_and_names_their_nodes(graph: Graph) -> None:
    spec = graph.one("PodMonitor", "alerts-pod-monitor").inputs["spec"]
    assert spec["namespaceSelector"] == {"matchNames": [NODES]}
    assert spec["selector"]["matchExpressions"] == [
        {"key": "app.kubernetes.io/name", "operator": "In", "values": ["gpu-memory-exporter", "memory-guard"]}
    ]
    (endpoint,) = spec["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    assert endpoint["relabelings"] == [
        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
        {"action": "labeldrop", "regex": "namespace|pod|container|endpoint"},
    ]


def test_the_scrape_finds_the_extenders_and_tells_them_apart(graph: Graph) -> None:
    spec = graph.one("PodMonitor", "alerts-scheduler-monitor").inputs["spec"]
    assert spec["namespaceSelector"] == {"matchNames": [SYSTEM]}
    assert spec["selector"] == {"matchLabels": {"app.kubernetes.io/name": "gpu-tenancy-scheduler"}}
    assert spec["podMetricsEndpoints"] == [{"port": "metrics", "interval": "15s"}]


def test_without_placement_by_device_there_is_nothing_of_it_to_watch() -> None:
    graph = declared(Alerts, "alerts", replace(ARGS, places_by_device=False))
    assert names(graph.all("PodMonitor")) == {"alerts-pod-monitor"}
    told = {rule["alert"] for rule in rules(replace(ARGS, places_by_device=False))}
    assert set(ALERTS) - told == {
        "GpuSchedulerDown",
        "GpuPlacementDrift",
        "GpuPlacementRefusedByUse",
        "GpuSeatHeldBack",
        "GpuSeatOvercrowded",
    }


def test_each_alert_says_whose_it_is_how_bad_it_is_what_it_saw_and_where_to_read_on() -> None:
    for rule in rules(TWO_POOLS):
        assert rule["labels"]["part_of"] == "gpu-tenancy"
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert len(rule["annotations"]["description"]) > len(rule["annotations"]["summary"])
        assert rule["annotations"]["runbook_url"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_an_alert_links_to_the_run_book_where_its_readers_have_it() -> None:
    url = "https://git.example.com/gpu-tenancy/docs/operations.md"
    linked = rules(replace(ARGS, spec=AlertsSpec(run_book=url)))
    assert {rule["annotations"]["runbook_url"] for rule in linked} == {f"{url}#{r['alert'].lower()}" for r in linked}


def test_no_cron_job_no_heartbeat_alert() -> None:
    assert not {"GpuAgentSilent", "GpuAgentUnseen"} & {rule["alert"] for rule in rules(replace(ARGS, cron_jobs=()))}


def test_a_pool_without_a_floor_has_no_floor_alert() -> None:
    bare = replace(LEDGER, pools=(replace(T4, floor_mib=0),))
    assert "GpuMemoryBelowFloor" not in {rule["alert"] for rule in rules(replace(ARGS, ledger=bare))}


def test_without_a_guard_there_is_none_to_miss() -> None:
    assert not [rule for rule in rules(replace(ARGS, guards=())) if rule["alert"].startswith("MemoryGuard")]


def test_without_a_watchdog_there_is_no_cap_to_reach() -> None:
    assert not {"GpuRecycleCapReached", "GpuPodRecycled"} & {
        rule["alert"] for rule in rules(replace(ARGS, recycles_per_hour=None))
    }


ALERTS = [
    "GpuAgentSilent",
    "GpuAgentUnseen",
    "GpuTelemetryMissing",
    "GpuTelemetryFrozen",
    "GpuTelemetryPartial",
    "GpuTelemetryImplausible",
    "GpuDeviceUnhealthy",
    "GpuBudgetsStale",
    "GpuMemoryBelowFloor",
    "GpuPodOverBudget",
    "GpuUndeclaredUser",
    "GpuRecycleCapReached",
    "GpuPodRecycled",
    "GpuCapacityDrift",
    "GpuMemoryPending",
    "GpuLedgerFull",
    "GpuSchedulerDown",
    "GpuPlacementDrift",
    "GpuPlacementRefusedByUse",
    "GpuSeatHeldBack",
    "GpuSeatOvercrowded",
    "MemoryGuardMissing",
    "MemoryGuardPowerless",
    "MemoryGuardBlind",
    "MemoryGuardStale",
    "MemoryPoolWithoutVictim",
    "MemoryPoolGuest",
]


# Where the driver is to hold containers to budgets (test_cap_alerts.py).
CAP_ALERTS = ("GpuCapMissing", "GpuCapUnable")


def test_its_output_lists_the_alerts(graph: Graph) -> None:
    assert graph.outputs_of(graph.one("Alerts")) == {"alerts": ALERTS}


def test_the_run_book_has_an_entry_for_each_alert_that_says_what_to_type() -> None:
    entries = dict(re.findall(r"^### ((?:Gpu|Memory)\w+)$(.*?)(?=^##)", RUN_BOOK.read_text(), re.MULTILINE | re.DOTALL))
    assert set(entries) == {*ALERTS, *CAP_ALERTS}
    assert [name for name, entry in entries.items() if "`kubectl" not in entry and "\nkubectl" not in entry] == []


def test_a_digest_takes_our_alerts_alone_to_its_channel() -> None:
    spec = AlertsSpec(namespace="monitoring", digest=DigestSpec(slack_webhook=SlackWebhook(secret="alerts-webhook")))
    graph = declared(Alerts, "alerts", replace(ARGS, spec=spec))
    config = graph.one("AlertmanagerConfig").inputs
    assert config["metadata"]["namespace"] == "monitoring"
    assert config["spec"]["route"]["matchers"] == [{"name": "part_of", "value": "gpu-tenancy", "matchType": "="}]
    for receiver, resolved in zip(config["spec"]["receivers"], (True, False), strict=True):
        (slack,) = receiver["slackConfigs"]
        assert (slack["channel"], slack["sendResolved"]) == ("#alerts", resolved)
        assert slack["apiURL"] == {"name": "alerts-webhook", "key": "url"}


def last_success(cron_job: str, values: str) -> dict[str, str]:
    labels = f'namespace="{SYSTEM}",cronjob="{cron_job}",instance="ksm"'
    return {"series": f"kube_cronjob_status_last_successful_time{{{labels}}}", "values": values}


def bytes_of(name: str, mib: float, **labels: str) -> dict[str, str]:
    shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{shown}}}", "values": f"{int(mib * MIB)}x30"}


def measured(
    node: str, free_mib: int, *, used_mib: int = 0, unattributed_mib: int = 0, pool: Pool = T4
) -> list[dict[str, str]]:
    """An exporter's series of its pool and of one device that is used by chat-0, and a device's worth of sense."""
    device = {"node": node, "gpu": "0", "uuid": f"GPU-{node}"}
    total_mib = 15360
    used = used_mib or total_mib - free_mib
    pod = used - unattributed_mib
    return [
        bytes_of("gpu_device_memory_total_bytes", total_mib, **device),
        bytes_of("gpu_device_memory_free_bytes", free_mib, **device),
        bytes_of("gpu_device_memory_used_bytes", used, **device),
        bytes_of("gpu_memory_unattributed_bytes", unattributed_mib, **device),
        bytes_of(
            "gpu_pod_memory_used_bytes", pod, **device, namespace="chat", pod="chat-0", pod_uid="u", container="c"
        ),
        bytes_of("gpu_pod_memory_declared_bytes", 5000, node=node, namespace="chat", pod="chat-0", pod_uid="u"),
        bytes_of("gpu_pod_memory_over_bytes", 0, node=node, namespace="chat", pod="chat-0", pod_uid="u"),
        {"series": f'gpu_memory_unknown_processes{{node="{node}",gpu="0",uuid="GPU-{node}"}}', "values": "0x30"},
        {"series": f'gpu_memory_exporter_api_age_seconds{{node="{node}"}}', "values": "14x30"},
        {"series": f'gpu_watchdog_recycles_last_hour{{node="{node}"}}', "values": "0x30"},
        {"series": f'gpu_watchdog_tenant_recycles_last_hour{{node="{node}",tenant="chat"}}', "values": "0x30"},
        bytes_of("gpu_pool_memory_advertised_bytes", 14000, node=node, pool=pool.name),
        bytes_of("gpu_pool_memory_promised_bytes", 13300, node=node, pool=pool.name),
        bytes_of("gpu_pool_memory_floor_bytes", pool.floor_mib, node=node, pool=pool.name),
        exporter_on(node),
    ]


def exporter_on(node: str) -> dict[str, str]:
    """Its pod, which stays on record while its node is dead."""
    labels = f'namespace="{NODES}",pod="e-{node}",node="{node}",created_by_name="gpu-memory-exporter"'
    return {"series": f"kube_pod_info{{{labels}}}", "values": "1x30"}


def instead(series: list[dict[str, str]], name: str, values: str) -> list[dict[str, str]]:
    """The same with other values of the series of that name."""
    assert any(each["series"].startswith(name) for each in series)
    return [{**each, "values": values} if each["series"].startswith(name) else each for each in series]


def allocatable(node: str, mib: int, instance: str = "ksm") -> dict[str, str]:
    labels = f'node="{node}",resource="example_com_gpumem",unit="integer",instance="{instance}"'
    return {"series": f"kube_node_status_allocatable{{{labels}}}", "values": f"{mib}x30"}


def pending(phase: str, *, unschedulable: bool = False, of: str = "container") -> list[dict[str, str]]:
    """A pod that asks for gpumem, in a container or, as a sidecar does, in an init container."""
    pod = 'namespace="chat",pod="chat-0"'
    asks = f'{pod},container="c",resource="example_com_gpumem"'
    return [
        *({"series": f'kube_pod_{of}_resource_requests{{{asks},instance="{i}"}}', "values": "5000x30"} for i in "ab"),
        *([{"series": f"kube_pod_status_unschedulable{{{pod}}}", "values": "1x30"}] if unschedulable else []),
        *(
            {"series": f'kube_pod_status_phase{{{pod},phase="{p}"}}', "values": f"{int(p == phase)}x30"}
            for p in ("Pending", "Running")
        ),
    ]


def runs_on(node: str, name: str, priority: str = "", *, kind: str = "ReplicaSet", phase: str = "Running") -> Series:
    """A pod <namespace>/<name> on the node, as kube-state-metrics has it."""
    namespace, _, pod = name.partition("/")
    who = f'namespace="{namespace}",pod="{pod}"'
    info = f'{who},node="{node}",priority_class="{priority}",created_by_kind="{kind}"'
    return [
        {"series": f"kube_pod_info{{{info}}}", "values": "1x30"},
        {"series": f'kube_pod_status_phase{{{who},phase="{phase}"}}', "values": "1x30"},
    ]


def memory_of(node: str, name: str, request_mib: int, limit_mib: int | None) -> Series:
    """What its container asks for of host memory."""
    namespace, _, pod = name.partition("/")
    labels = {"namespace": namespace, "pod": pod, "container": "c", "node": node, "resource": "memory"}
    limit = [] if limit_mib is None else [bytes_of("kube_pod_container_resource_limits", limit_mib, **labels)]
    return [bytes_of("kube_pod_container_resource_requests", request_mib, **labels), *limit]


def placing(*, leads: int = 1, ready: int = 1, drift: str = "missing", waiting: int = 0) -> list[dict[str, str]]:
    """The series of two extenders, of which the first leads or none; both know a device with 4000 MiB left."""
    series = []
    for pod, leading in (("a", leads), ("b", 0)):
        labels = {"node": "a", "gpu": "0", "uuid": "GPU-a", "pod": pod}
        values = {
            f'gpu_extender_leading{{pod="{pod}"}}': leading,
            f'gpu_extender_ready{{pod="{pod}"}}': ready,
            f'gpu_extender_waiting_pods{{pod="{pod}"}}': waiting,
            f'gpu_extender_ledger_drift{{pod="{pod}",kind="{drift}"}}': int(drift != "missing"),
            f'gpu_extender_held_seats{{pod="{pod}",pool="t4"}}': 0,
            f'gpu_extender_overcrowded_seats_total{{pod="{pod}",pool="t4"}}': 0,
        }
        series += [{"series": name, "values": f"{value}x30"} for name, value in values.items()]
        series += [
            bytes_of("gpu_extender_device_memory_offered_bytes", 14000, **labels),
            bytes_of("gpu_extender_device_memory_allocated_bytes", 10000, **labels),
        ]
    return series


def user(namespace: str) -> list[dict[str, str]]:
    """A further pod's use, small enough to be within what figures may differ."""
    pod = f"{namespace}-0" if namespace else ""
    labels = {"node": "a", "gpu": "0", "uuid": "GPU-a", "namespace": namespace, "pod": pod, "container": ""}
    running = f'kube_pod_status_phase{{namespace="{namespace}",pod="{pod}",phase="Running"}}'
    return [bytes_of("gpu_pod_memory_used_bytes", 100, **labels), {"series": running, "values": "1x30"}]


def desired(daemon_set: str, nodes: int) -> dict[str, str]:
    labels = f'namespace="{NODES}",daemonset="{daemon_set}",instance="ksm"'
    return {"series": f"kube_daemonset_status_desired_number_scheduled{{{labels}}}", "values": f"{nodes}x30"}


def where(node: str) -> str:
    return f'node="{node}",instance="{node}:9402"'


def guarding(node: str) -> list[dict[str, str]]:
    """A guard's series, with one protected pod."""
    pod = f'{where(node)},namespace="inference",pod="llm-{node}",pod_uid="u"'
    return [
        {"series": f"memory_guard_api_age_seconds{{{where(node)}}}", "values": "30x30"},
        {"series": f"memory_guard_held_processes{{{pod}}}", "values": "3x30"},
        {"series": f"memory_guard_unheld_processes{{{pod}}}", "values": "0x30"},
    ]


def runs(value: int) -> dict[str, str]:
    """Whether the protected pod on node x does, 1 or 0."""
    pod = 'namespace="inference",pod="llm-x"'
    return {"series": f'kube_pod_status_phase{{{pod},phase="Running"}}', "values": f"{value}x30"}


DESIRED = [desired("memory-guard-node-4", 2), desired("memory-guard-node-5", 0)]
GUARDED = [*DESIRED, *guarding("x"), *guarding("y")]
# At each minute, that minute.
BEATING = [*(last_success(name, "0+60x30") for name in CRON_JOBS), *placing(), *GUARDED]
UNASKED = [*BEATING, *measured("a", 4000), allocatable("a", 14000)]
HEALTHY = [*UNASKED, *pending("Running")]
IN_C = measured("c", 4000, pool=A10)
TWO_HEALTHY = [*BEATING, *measured("a", 4000), *IN_C, allocatable("a", 14000), allocatable("c", 22000)]
# Both pools' nodes advertise the same.
TWINS = replace(ARGS, ledger=replace(ARGS.ledger, pools=(*LEDGER.pools, replace(T4, name="a10", floor_mib=2048))))
TWO_NODES = replace(ARGS, ledger=replace(ARGS.ledger, pools=(replace(T4, nodes=2),)))
PAIRS = replace(ARGS, ledger=replace(ARGS.ledger, pools=(replace(T4, device_count=2),)))
CLAIMS = replace(ARGS, advertised=False)
POOLED = [*runs_on("node-4", "inference/llm-4", "critical"), *runs_on("node-4", "agents/vm", "disposable")]
EQUALS = [*measured("a", 1600), *measured("c", 1600, pool=A10)]  # above the floor of t4, below that of a10

# What is there, and which alerts fire after 15 minutes. Each fault sets off its own alert and no other.
CASES: dict[str, tuple[AlertsArgs, list[dict[str, str]], list[str]]] = {
    "all is well": (ARGS, HEALTHY, []),
    "kube-state-metrics runs twice": (ARGS, [*HEALTHY, allocatable("a", 14000, "other")], []),
    "all is well in two pools": (TWO_POOLS, TWO_HEALTHY, []),
    "one agent stopped succeeding": (
        ARGS,
        [last_success(CRON_JOBS[0], "0+60x30"), last_success(CRON_JOBS[1], "0x30"), *HEALTHY[2:]],
        ['alertname="GpuAgentSilent", cronjob="gpu-vram-watchdog"'],
    ),
    "one agent never succeeded": (ARGS, HEALTHY[1:], ['alertname="GpuAgentUnseen", cronjob="gpumem-reconcile"']),
    "no exporter answers": (ARGS, [*BEATING, allocatable("a", 14000)], ['alertname="GpuTelemetryMissing"']),
    "one exporter of two answers": (
        TWO_POOLS,
        [s for s in TWO_HEALTHY if s not in IN_C],
        ['alertname="GpuTelemetryMissing"'],
    ),
    "a device is at its floor": (ARGS, [*BEATING, *measured("a", 1536), allocatable("a", 14000)], []),
    "a device is below its floor": (
        ARGS,
        [*BEATING, *measured("a", 1535), allocatable("a", 14000)],
        ['alertname="GpuMemoryBelowFloor", pool="t4"'],
    ),
    "of two pools each has its own floor": (
        TWO_POOLS,
        [
            *BEATING,
            *measured("a", 1600),
            *measured("c", 1600, pool=A10),
            allocatable("a", 14000),
            allocatable("c", 22000),
        ],
        ['alertname="GpuMemoryBelowFloor", pool="a10"'],
    ),
    "NVML does not tell a process's memory": (
        ARGS,
        instead(HEALTHY, "gpu_memory_unknown_processes", "1x30"),
        ['alertname="GpuTelemetryPartial"'],
    ),
    "figures differ as they do when they are read one after the other": (
        ARGS,
        instead(HEALTHY, "gpu_pod_memory_used_bytes", f"{11000 * MIB}x30"),
        [],
    ),
    "memory of a device has gone bad": (
        ARGS,
        [
            *HEALTHY,
            {"series": 'gpu_device_unhealthy{node="a",gpu="0",uuid="GPU-a",fault="pages-to-retire"}', "values": "1x30"},
        ],
        ['alertname="GpuDeviceUnhealthy"'],
    ),
    "pods use far more than the device": (
        ARGS,
        instead(HEALTHY, "gpu_pod_memory_used_bytes", f"{14000 * MIB}x30"),
        ['alertname="GpuTelemetryImplausible"'],
    ),
    "used and free are far less than the device": (
        ARGS,
        instead(HEALTHY, "gpu_device_memory_free_bytes", f"{2000 * MIB}x30"),
        ['alertname="GpuTelemetryImplausible"'],
    ),
    "nobody uses the device but the driver": (
        ARGS,
        [
            s
            for s in [*BEATING, *measured("a", 14910, unattributed_mib=450), allocatable("a", 14000)]
            if not s["series"].startswith("gpu_pod")
        ],
        [],
    ),
    "the exporter hears nothing from the API": (
        ARGS,
        instead(HEALTHY, "gpu_memory_exporter_api_age_seconds", "14+60x30"),
        ['alertname="GpuBudgetsStale"'],
    ),
    "a pod is over its budget": (
        ARGS,
        instead(HEALTHY, "gpu_pod_memory_over_bytes", "1x30"),
        ['alertname="GpuPodOverBudget", pod="chat-0"'],
    ),
    "a pod uses the device undeclared": (
        ARGS,
        [*HEALTHY, *user("games")],
        ['alertname="GpuUndeclaredUser", pod="games-0"'],
    ),
    "an unbudgeted tenant and one on demand use the device": (ARGS, [*HEALTHY, *user("emulator"), *user("voice")], []),
    "a pod has no name yet": (ARGS, [*HEALTHY, *user("")], []),
    "the watchdog is at a tenant's cap": (
        ARGS,
        instead(HEALTHY, "gpu_watchdog_tenant_recycles_last_hour", "6x30"),
        ['alertname="GpuRecycleCapReached", tenant="chat"'],
    ),
    "a tenant has one recycle left": (ARGS, instead(HEALTHY, "gpu_watchdog_tenant_recycles_last_hour", "5x30"), []),
    "the watchdog is at its brake": (
        ARGS,
        instead(HEALTHY, "gpu_watchdog_recycles_last_hour", "24x30"),
        ['alertname="GpuRecycleCapReached"'],
    ),
    "tenants together have one recycle left": (ARGS, instead(HEALTHY, "gpu_watchdog_recycles_last_hour", "23x30"), []),
    "a pod was recycled": (
        ARGS,
        instead(HEALTHY, "gpu_watchdog_tenant_recycles_last_hour", "0x12 1x17"),
        ['alertname="GpuPodRecycled", tenant="chat"'],
    ),
    "a tenant's first pod was recycled": (
        ARGS,
        instead(HEALTHY, "gpu_watchdog_tenant_recycles_last_hour", "_x13 1x17"),
        ['alertname="GpuPodRecycled", tenant="chat"'],
    ),
    "a second one was, and an older one no longer counts": (
        ARGS,
        instead(HEALTHY, "gpu_watchdog_tenant_recycles_last_hour", "2x10 1x1 2x17"),
        ['alertname="GpuPodRecycled", tenant="chat"'],
    ),
    "a pod was recycled a while ago": (
        ARGS,
        instead(HEALTHY, "gpu_watchdog_tenant_recycles_last_hour", "0x5 1x24"),
        [],
    ),
    "a recycle no longer counts": (
        ARGS,
        instead(HEALTHY, "gpu_watchdog_tenant_recycles_last_hour", "2x12 1x17"),
        [],
    ),
    "all is promised": (
        ARGS,
        instead(HEALTHY, "gpu_pool_memory_promised_bytes", f"{14000 * MIB}x30"),
        ['alertname="GpuLedgerFull", pool="t4"'],
    ),
    "nothing is advertised": (ARGS, [*BEATING, *measured("a", 4000)], ['alertname="GpuCapacityDrift"']),
    "less is advertised": (
        ARGS,
        [*BEATING, *measured("a", 4000), allocatable("a", 13999)],
        ['alertname="GpuCapacityDrift"'],
    ),
    "no scheduler leads": (ARGS, instead(HEALTHY, "gpu_extender_leading", "0x30"), ['alertname="GpuSchedulerDown"']),
    "the leader does not know the cluster": (
        ARGS,
        instead(HEALTHY, "gpu_extender_ready", "0x30"),
        ['alertname="GpuSchedulerDown"'],
    ),
    "a pod was bound without a device": (
        ARGS,
        [*HEALTHY, *placing(drift="unplaced")[3:4]],
        ['alertname="GpuPlacementDrift"'],
    ),
    "more is in use than pods declare, which has alerts of its own": (
        ARGS,
        [*HEALTHY, *placing(drift="outside")[3:4]],
        [],
    ),
    "pods wait for memory that somebody uses unasked": (
        ARGS,
        instead(HEALTHY, "gpu_extender_waiting_pods", "1x30"),
        ['alertname="GpuPlacementRefusedByUse"'],
    ),
    "pods wait because all is given away": (
        ARGS,
        instead([*BEATING, *measured("a", 6000), allocatable("a", 14000)], "gpu_extender_waiting_pods", "1x30"),
        [],
    ),
    "a node of two has no guard": (
        ARGS,
        [series for series in HEALTHY if series not in guarding("y")],
        ['alertname="MemoryGuardMissing"'],
    ),
    "no guard has ever run": (
        ARGS,
        [series for series in HEALTHY if series not in GUARDED],
        ['alertname="MemoryGuardMissing"'],
    ),
    "a guard cannot do what it is for": (
        ARGS,
        instead(HEALTHY, "memory_guard_unheld_processes{" + where("x"), "1x30"),
        ['alertname="MemoryGuardPowerless", pod="llm-x"'],
    ),
    "a guard sees nothing of a pod that runs": (
        ARGS,
        instead([*HEALTHY, runs(1)], "memory_guard_held_processes{" + where("x"), "0x30"),
        ['alertname="MemoryGuardBlind", pod="llm-x"'],
    ),
    "a pod has not begun to run": (
        ARGS,
        instead([*HEALTHY, runs(0)], "memory_guard_held_processes{" + where("x"), "0x30"),
        [],
    ),
    "a guard hears nothing from the API": (
        ARGS,
        instead(HEALTHY, "memory_guard_api_age_seconds{" + where("x"), "30+60x30"),
        ['alertname="MemoryGuardStale"'],
    ),
    "a pod waits for memory": (
        ARGS,
        [*UNASKED, *pending("Pending", unschedulable=True)],
        ['alertname="GpuMemoryPending", pod="chat-0"'],
    ),
    "a sidecar waits for memory": (
        ARGS,
        [*UNASKED, *pending("Pending", unschedulable=True, of="init_container")],
        ['alertname="GpuMemoryPending", pod="chat-0"'],
    ),
    "a pod has its node and pulls its image": (ARGS, [*UNASKED, *pending("Pending")], []),
    "a pod waits for the seat that it claims": (
        CLAIMS,
        [*UNASKED, *pending("Pending", unschedulable=True)],
        ['alertname="GpuMemoryPending", pod="chat-0"'],
    ),
    "of two pools whose nodes advertise the same each has its own floor": (
        TWINS,
        [*BEATING, *EQUALS, allocatable("a", 14000), allocatable("c", 14000)],
        ['alertname="GpuMemoryBelowFloor", node="c", pool="a10"'],
    ),
    "a node that is over-bound is short of memory": (
        TWINS,
        [*BEATING, *EQUALS, allocatable("a", 14000), allocatable("c", 15000)],
        [
            'alertname="GpuMemoryBelowFloor", node="c", pool="a10"',
            'alertname="GpuCapacityDrift", node="c"',
        ],
    ),
    "a node is short of memory and seats are claimed": (
        replace(TWINS, advertised=False),
        [*BEATING, *EQUALS],
        ['alertname="GpuMemoryBelowFloor", node="c", pool="a10"'],
    ),
    "one node shows as much too much as another too little": (
        TWO_NODES,
        [*BEATING, *measured("a", 4000), *measured("b", 4000), allocatable("a", 15000), allocatable("b", 13000)],
        ['alertname="GpuCapacityDrift", node="a"', 'alertname="GpuCapacityDrift", node="b"'],
    ),
    "a node of two advertises nothing": (
        TWO_NODES,
        [*BEATING, *measured("a", 4000), *measured("b", 4000), allocatable("a", 14000)],
        ['alertname="GpuCapacityDrift"'],
    ),
    "seats are held back": (
        ARGS,
        instead(HEALTHY, "gpu_extender_held_seats", "1x30"),
        ['alertname="GpuSeatHeldBack", pool="t4"'],
    ),
    "a seat is held back for a moment": (ARGS, instead(HEALTHY, "gpu_extender_held_seats", "0x13 1 0x15"), []),
    "a seat was placed on memory that others use": (
        ARGS,
        instead(HEALTHY, 'gpu_extender_overcrowded_seats_total{pod="a"', "0x10 1x20"),
        ['alertname="GpuSeatOvercrowded", pool="t4"'],
    ),
    "no victim runs on one node of two": (
        ARGS,
        [*HEALTHY, *POOLED, *runs_on("node-5", "inference/llm-5", "critical")],
        ['alertname="MemoryPoolWithoutVictim", node="node-5"'],
    ),
    "a victim does not run yet": (
        ARGS,
        [
            *HEALTHY,
            *runs_on("node-4", "inference/llm-4", "critical"),
            *runs_on("node-4", "agents/vm", "disposable", phase="Pending"),
        ],
        ['alertname="MemoryPoolWithoutVictim", node="node-4"'],
    ),
    "nobody bursts on a node": (ARGS, [*HEALTHY, *runs_on("node-5", "games/minecraft", "critical")], []),
    "a stranger may take memory on a node of a memory pool": (
        ARGS,
        [*HEALTHY, *POOLED, *runs_on("node-4", "games/minecraft"), *memory_of("node-4", "games/minecraft", 1024, 4096)],
        ['alertname="MemoryPoolGuest", node="node-4", pod="minecraft"'],
    ),
    "a stranger without a limit does": (
        ARGS,
        [*HEALTHY, *POOLED, *runs_on("node-4", "games/minecraft"), *memory_of("node-4", "games/minecraft", 1024, None)],
        ['alertname="MemoryPoolGuest", node="node-4", pod="minecraft"'],
    ),
    "strangers that cannot, or are elsewhere, or the node's own": (
        ARGS,
        [
            *HEALTHY,
            *POOLED,
            *runs_on("node-4", "games/exact"),
            *memory_of("node-4", "games/exact", 1024, 1024),
            *runs_on("node-7", "games/elsewhere"),
            *memory_of("node-7", "games/elsewhere", 1024, 4096),
            *runs_on("node-4", "kube-system/cni", kind="DaemonSet"),
            *memory_of("node-4", "kube-system/cni", 64, 256),
            *memory_of("node-4", "inference/llm-4", 8192, 32768),
        ],
        [],
    ),
    "a dead node beside one too many": (
        TWO_NODES,
        [
            *BEATING,
            *measured("a", 4000),
            *measured("extra", 4000),
            exporter_on("dead"),
            *(allocatable(node, 14000) for node in ("a", "dead")),
        ],
        ['alertname="GpuTelemetryMissing", node="dead"'],
    ),
    "a node lost its pool's labels, and its exporter with them, while another has one too many": (
        ARGS,
        [*BEATING, *measured("b", 4000), allocatable("a", 14000)],
        ['alertname="GpuTelemetryMissing", node="a"'],
    ),
    "a node lost its pool's labels, and its exporter still measures": (
        ARGS,
        [s for s in HEALTHY if "gpu_pool_memory_floor" not in s["series"]],
        ['alertname="GpuTelemetryMissing", node="a"'],
    ),
    "a node lost one of its devices and another has one too many": (
        replace(PAIRS, ledger=replace(PAIRS.ledger, pools=(replace(PAIRS.ledger.pools[0], nodes=2),))),
        [
            *BEATING,
            *measured("a", 4000),
            *measured("b", 4000),
            *(bytes_of("gpu_device_memory_free_bytes", 4000, node="b", gpu=str(i), uuid=f"GPU-b{i}") for i in (1, 2)),
            allocatable("a", 28000),
            allocatable("b", 28000),
        ],
        ['alertname="GpuTelemetryMissing", node="a"'],
    ),
}
# Where a case names a node, the alert has to as well; the others may.
BY_NODE = {case for case, (_, _, expected) in CASES.items() if any("node=" in each for each in expected)}


@pytest.fixture(scope="module")
def promtool() -> str:
    return alerting.promtool()


def run(promtool: str, *arguments: str | Path) -> None:
    result = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("args", [ARGS, TWO_POOLS], ids=["one pool", "two pools"])
def test_prometheus_accepts_the_rules(promtool: str, tmp_path: Path, args: AlertsArgs) -> None:
    (tmp_path / "rules.yaml").write_text(json.dumps(prometheus_rule(args)["spec"]))
    run(promtool, "check", "rules", "--lint-fatal", tmp_path / "rules.yaml")


@pytest.mark.parametrize("case", CASES)
def test_exactly_the_right_alerts_fire_when(promtool: str, tmp_path: Path, case: str) -> None:
    args, series, expected = CASES[case]
    labels = "alertname, cronjob, pool, pod, tenant" + (", node" if case in BY_NODE else "")
    (tmp_path / "rules.yaml").write_text(json.dumps(prometheus_rule(args)["spec"]))
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": f'count by ({labels}) (ALERTS{{alertstate="firing"}})',
                        "eval_time": "15m",
                        "exp_samples": [{"labels": f"{{{each}}}", "value": 1} for each in expected],
                    }
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(json.dumps(test))
    run(promtool, "test", "rules", tmp_path / "test.yaml")


def steady(series: list[dict[str, str]]) -> dict[str, Callable[[int], float | None]]:
    """The same on a time line, at its first value; ages are a little different at each scrape."""
    line: dict[str, Callable[[int], float | None]] = {}
    for each in series:
        value = float(re.split("[x+]", each["values"])[0])
        line[each["series"]] = lambda second, value=value: value
    line[AGE] = lambda second: 1 + second % 89 / 1000
    return line | {last_success(name, "")["series"]: beats() for name in CRON_JOBS}


AGE = 'gpu_memory_sample_age_seconds{node="a"}'
GUARD_AGE = guarding("x")[0]["series"]
WATCHED = last_success(CRON_JOBS[1], "")["series"]
NORMAL = steady([*HEALTHY, *user("voice")])
API_AGE, FREE, POD_USED, RUNNING = (
    next(name for name in NORMAL if name.startswith(start))
    for start in (
        "gpu_memory_exporter_api_age",
        "gpu_device_memory_free",
        "gpu_pod_memory_used",
        'kube_pod_status_phase{namespace="voice"',
    )
)


def before(value: float, after: float | None) -> Callable[[int], float | None]:
    """One value until the fault, and another from then on."""
    return lambda second: value if second <= FAULT else after


def ends(series: str) -> Callable[[int], float | None]:
    """As ever until the fault, and then no longer exposed."""
    return lambda second: NORMAL[series](second) if second <= FAULT else None


# What differs from when on, and the alert that must be there within 180 s of it.
FAULTS: dict[str, tuple[dict[str, Callable[[int], float | None]], str]] = {
    "a watchdog that stops completing runs": ({WATCHED: beats(until=FAULT + 3)}, "GpuAgentSilent"),
    "an API server whose clock is an hour ahead": (
        {WATCHED: lambda second: beats()(second) + (3600 if second > FAULT else 0)},
        "GpuAgentSilent",
    ),
    "a CronJob that is gone": ({WATCHED: ends(WATCHED)}, "GpuAgentUnseen"),
    "an exporter that is gone": (
        {name: ends(name) for name in NORMAL if name.startswith("gpu_")},
        "GpuTelemetryMissing",
    ),
    "a guard that is gone": ({GUARD_AGE: ends(GUARD_AGE)}, "MemoryGuardMissing"),
    "an exporter that answers the same for ever": (
        {AGE: lambda second: 1 + min(second, FAULT + 1) % 89 / 1000},
        "GpuTelemetryFrozen",
    ),
    "an exporter with an old reading": (
        {AGE: lambda second: second % 89 / 1000 + before(1, 61)(second)},
        "GpuTelemetryFrozen",
    ),
    "an exporter that shows pods that are gone": ({RUNNING: ends(RUNNING)}, "GpuTelemetryFrozen"),
    "an exporter without rights": ({API_AGE: lambda second: 14 + max(0, second - FAULT)}, "GpuBudgetsStale"),
    "an exporter that contradicts itself": ({FREE: before(4000 * MIB, 400 * MIB)}, "GpuTelemetryImplausible"),
    "pods that use more than the device": ({POD_USED: before(11360 * MIB, 15000 * MIB)}, "GpuTelemetryImplausible"),
    "a device under its floor": (
        {FREE: before(4000 * MIB, 1000 * MIB), POD_USED: before(11360 * MIB, 14360 * MIB)},
        "GpuMemoryBelowFloor",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_alert_is_there_within_three_minutes_of(promtool: str, tmp_path: Path, fault: str) -> None:
    changed, alert = FAULTS[fault]
    line = TimeLine(prometheus_rule(ARGS)["spec"], NORMAL | changed, tmp_path)
    line.assert_quiet_before()
    assert line.fires(alert, 175)


def test_an_idle_card_is_not_a_frozen_one(promtool: str, tmp_path: Path) -> None:
    """Nobody uses it, so its figures stand still for ever; the readings' ages do not."""
    idle = [s for s in measured("a", 14910, unattributed_mib=450) if not s["series"].startswith("gpu_pod")]
    line = TimeLine(prometheus_rule(ARGS)["spec"], steady([*BEATING, *idle, allocatable("a", 14000)]), tmp_path)
    assert not line.fires("GpuTelemetryFrozen", AFTER_SECONDS)


def test_one_failed_run_is_no_silence() -> None:
    slowest_success_seconds, scrapes_seconds = 10, 30
    assert 2 * 60 + slowest_success_seconds + scrapes_seconds < SILENT_SECONDS
