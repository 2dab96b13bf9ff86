"""Alerts: on the last successful run and on the age of telemetry, never on "the pod exists"."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components import exporter
from components.manifest import Manifest, component_type, register
from components.spec import DnsLabel, LabelKey, LabelValue, Spec
from components.system import ClusterSpec
from tenancy import names
from tenancy.ledger import Ledger, Pool, Sharing

_API = "monitoring.coreos.com/v1"
_RUNBOOK = "docs/operations.md"

# The last success is 60 s old at most; a pod's start and two scrapes are added. Beyond it more than one run has failed.
SILENT_SECONDS = 150


class AlertsSpec(Spec):
    """PrometheusRule and PodMonitor for the Prometheus Operator. They read kube-state-metrics as well."""

    namespace: DnsLabel | None = Field(default=None, description="Default: the system namespace.")
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="What your Prometheus selects rules and monitors by, for instance release: prometheus.",
    )


@dataclass(frozen=True, kw_only=True)
class AlertsArgs:
    """`cron_jobs` are the names of the agents whose runs are watched."""

    spec: AlertsSpec
    cluster: ClusterSpec
    ledger: Ledger
    cron_jobs: Sequence[str]

    @property
    def namespace(self) -> str:
        return self.spec.namespace or self.cluster.system_namespace

    @property
    def memory_pools(self) -> list[Pool]:
        return [pool for pool in self.ledger.pools if pool.sharing is Sharing.MEMORY]


def prometheus_rule(args: AlertsArgs) -> Manifest:
    """Every alert, with its numbers taken from the ledger."""
    rules = [_silent(name, args.cluster.system_namespace) for name in args.cron_jobs]
    rules += [_missing(args.memory_pools), *_below_floor(args), _drift(args), _pending(args)]
    return {
        "apiVersion": _API,
        "kind": "PrometheusRule",
        "metadata": _metadata(args),
        "spec": {"groups": [{"name": names.ALERTS, "rules": rules}]},
    }


def pod_monitor(args: AlertsArgs) -> Manifest:
    """Has Prometheus scrape the exporter's pods, with the node's name on every sample."""
    return {
        "apiVersion": _API,
        "kind": "PodMonitor",
        "metadata": _metadata(args),
        "spec": {
            "namespaceSelector": {"matchNames": [names.node_agent_namespace(args.cluster.system_namespace)]},
            "selector": {"matchLabels": exporter.selector()},
            "podMetricsEndpoints": [
                {
                    "port": exporter.METRICS_PORT,
                    "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}],
                }
            ],
        },
    }


def _metadata(args: AlertsArgs) -> Manifest:
    labels = names.labels("alerts", names.ALERTS) | args.spec.labels
    return {"name": names.ALERTS, "namespace": args.namespace, "labels": labels}


def _silent(cron_job: str, namespace: str) -> Manifest:
    series = f'kube_cronjob_status_last_successful_time{{namespace="{namespace}", cronjob="{cron_job}"}}'
    return _alert(
        "GpuAgentSilent",
        f"time() - max by (namespace, cronjob) ({series}) > {SILENT_SECONDS} or absent({series})",
        hold="1m",
        severity="critical",
        cronjob=cron_job,
        summary=f"{cron_job} has not completed a run for {SILENT_SECONDS} s",
        description=(
            f"CronJob {namespace}/{cron_job} completes a run each minute when all is well. See its last Jobs and their "
            f"logs: kubectl -n {namespace} get jobs,pods -l {names.LABEL_NAME}={cron_job}."
        ),
    )


def _missing(pools: Sequence[Pool]) -> Manifest:
    """A failed reading is a failed scrape, so that stale, partial and absent telemetry all show as missing devices."""
    devices = sum(pool.gpus for pool in pools)
    return _alert(
        "GpuTelemetryMissing",
        f"(count(count by (uuid) ({names.METRIC_DEVICE_FREE})) or vector(0)) < {devices}",
        hold="2m",
        severity="critical",
        summary=f"{{{{ $value }}}} of {devices} GPUs are measured",
        description=(
            f"The pools {', '.join(pool.name for pool in pools)} have {devices} devices. Without their telemetry the "
            f"watchdog and the gates do nothing. See the log of {names.EXPORTER} on the nodes that are missing."
        ),
    )


def _below_floor(args: AlertsArgs) -> Iterator[Manifest]:
    """With several pools, a node's pool is told by what it advertises: exported by default, as its labels are not."""
    guarded = [pool for pool in args.memory_pools if pool.floor_mib]
    for pool in guarded:
        expression = f"min by (node, gpu, uuid) ({names.METRIC_DEVICE_FREE}) < {pool.floor_mib * 2**20}"
        if len(args.memory_pools) > 1:
            expression += f" and on (node) {_allocatable(args)} == {pool.node_mib}"
        yield _alert(
            "GpuMemoryBelowFloor",
            expression,
            hold="2m",
            severity="warning",
            pool=pool.name,
            summary="GPU {{ $labels.gpu }} of {{ $labels.node }} is short of memory",
            description=(
                f"{{{{ $value | humanize1024 }}}}B are free; the floor of pool {pool.name} is {pool.floor_mib} MiB. "
                "Find the pod that uses more than its budget, and lower its use or raise its seat."
            ),
        )


def _drift(args: AlertsArgs) -> Manifest:
    advertised = sum(pool.advertised_mib for pool in args.memory_pools)
    return _alert(
        "GpuCapacityDrift",
        f"(sum({_allocatable(args)}) or vector(0)) != {advertised}",
        hold="3m",
        severity="critical",
        summary=f"{{{{ $value }}}} of {advertised} MiB {args.ledger.names.gpumem} are advertised",
        description=(
            f"{names.RECONCILE} keeps {advertised} MiB on {sum(pool.nodes for pool in args.memory_pools)} nodes. A "
            "node is missing, its labels changed, or more is bound to it than the ledger gives: see the log of "
            f"{names.RECONCILE} and the events of the nodes."
        ),
    )


def _pending(args: AlertsArgs) -> Manifest:
    resource = args.ledger.names.gpumem
    requests = f'kube_pod_container_resource_requests{{resource="{_sanitised(resource)}"}}'
    return _alert(
        "GpuMemoryPending",
        f"sum by (namespace, pod) ({requests}) and on (namespace, pod)"
        ' max by (namespace, pod) (kube_pod_status_phase{phase="Pending"}) == 1',
        hold="10m",
        severity="warning",
        summary="{{ $labels.namespace }}/{{ $labels.pod }} waits for {{ $value }} MiB of GPU memory",
        description=(
            f"The pod requests {{{{ $value }}}} MiB {resource} and has been Pending for 10 minutes. If it has a seat, "
            "see where the other seats' pods are bound; else give it one in the stack."
        ),
    )


def _allocatable(args: AlertsArgs) -> str:
    """PromQL: gpumem by node. Several replicas of kube-state-metrics count once."""
    resource = _sanitised(args.ledger.names.gpumem)
    return f'max by (node) (kube_node_status_allocatable{{resource="{resource}"}})'


def _sanitised(resource: str) -> str:
    """A resource's name as kube-state-metrics writes it (SanitizeLabelName, internal/store/utils.go)."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", resource)


def _alert(name: str, expression: str, *, hold: str, summary: str, description: str, **labels: str) -> Manifest:
    return {
        "alert": name,
        "expr": expression,
        "for": hold,
        "labels": labels,
        "annotations": {
            "summary": summary,
            "description": description,
            "runbook_url": f"{_RUNBOOK}#{name.lower()}",
        },
    }


class Alerts(pulumi.ComponentResource):
    """The rules, and the scrape that they rest on."""

    alerts: pulumi.Output[list[str]]

    def __init__(self, name: str, args: AlertsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Alerts"), name, {"cronJobs": list(args.cron_jobs)}, opts)
        rule = prometheus_rule(args)
        declared = register(rule, f"{name}-rule", parent=self)
        register(pod_monitor(args), f"{name}-pod-monitor", parent=self)
        alerts = [alert["alert"] for group in rule["spec"]["groups"] for alert in group["rules"]]
        self.alerts = declared.urn.apply(lambda _: alerts)
        self.register_outputs({"alerts": self.alerts})
