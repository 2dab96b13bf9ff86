"""Alerts: on the last successful run and on the age of telemetry, never on "the pod exists"."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components import alert_memory, alert_scheduler, digest, scheduler
from components.agent import METRICS_PORT
from components.alert import SILENT_SECONDS, alert, allocatable, referring, sanitised
from components.alert_guard import guard_alerts
from components.dashboard import dashboard
from components.digest import DigestSpec
from components.manifest import Manifest, component_type, register
from components.spec import DnsLabel, HttpUrl, LabelKey, LabelValue, Spec
from components.system import ClusterSpec
from tenancy import names
from tenancy.ledger import Ledger, Pool, Sharing

_API = "monitoring.coreos.com/v1"

# The rules are looked at so often that an agent's silence is told of within three minutes of the fault, also where a
# run that saw nothing of it succeeded some seconds later.
EVALUATION_SECONDS = 5
# From the making of a CronJob to its first completed run on record: up to a minute, the run, two scrapes.
UNSEEN_SECONDS = 150
SCRAPE_SECONDS = 15


class AlertsSpec(Spec):
    """PrometheusRule, PodMonitor and dashboard for the Prometheus Operator and Grafana. The rules read
    kube-state-metrics as well."""

    namespace: DnsLabel | None = Field(default=None, description="Default: the system namespace.")
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        description="What your Prometheus selects rules and monitors by, for instance release: prometheus.",
    )
    run_book: HttpUrl | None = Field(
        default=None, description="Where your people read docs/operations.md, for the links of alerts and dashboard."
    )
    digest: DigestSpec | None = Field(default=None, description="A Slack channel for our alerts; default: none.")
    dashboard_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=lambda: {"grafana_dashboard": "1"},
        description="What Grafana's sidecar selects the dashboard's ConfigMap by; {} leaves the dashboard out.",
    )


@dataclass(frozen=True, kw_only=True)
class AlertsArgs:
    """`cron_jobs` are the names of the agents whose runs are watched, `guards` those of the guard's DaemonSets;
    `recycles_per_hour` is the watchdog's cap, None where there is no watchdog; `places_by_device`: there is a scheduler
    that does; `advertised`: nodes show the ledger's gpumem, not so where seats are claimed."""

    spec: AlertsSpec
    cluster: ClusterSpec
    ledger: Ledger
    cron_jobs: Sequence[str]
    recycles_per_hour: int | None = None
    places_by_device: bool = False
    advertised: bool = True
    guards: Sequence[str] = ()

    @property
    def namespace(self) -> str:
        return self.spec.namespace or self.cluster.system_namespace

    @property
    def run_book(self) -> str:
        return self.spec.run_book or "docs/operations.md"

    @property
    def memory_pools(self) -> list[Pool]:
        return [pool for pool in self.ledger.pools if pool.sharing is Sharing.MEMORY]


def prometheus_rule(args: AlertsArgs) -> Manifest:
    """Every alert, with its numbers taken from the ledger."""
    pools, resource = args.memory_pools, args.ledger.names.gpumem
    rules = [rule for name in args.cron_jobs for rule in _silent(name, args.cluster.system_namespace)]
    rules += [alert_memory.missing(pools), alert_memory.frozen(), alert_memory.partial(), alert_memory.implausible()]
    rules += [alert_memory.budgets_stale(), *alert_memory.below_floor(pools, resource)]
    rules += [alert_memory.over_budget(), alert_memory.undeclared(args.ledger)]
    if args.recycles_per_hour is not None:
        rules.append(alert_memory.capped(args.recycles_per_hour))
    if args.advertised:
        rules += [_drift(args), _pending(resource)]
    rules.append(_full())
    if args.places_by_device:
        rules += alert_scheduler.rules(pools, args.cluster.system_namespace)
    if args.guards:
        rules += guard_alerts(args.guards, names.node_agent_namespace(args.cluster.system_namespace))
    return {
        "apiVersion": _API,
        "kind": "PrometheusRule",
        "metadata": _metadata(args),
        "spec": {
            "groups": [
                {
                    "name": names.ALERTS,
                    "interval": f"{EVALUATION_SECONDS}s",
                    "rules": [referring(rule, args.run_book) for rule in rules],
                }
            ]
        },
    }


def pod_monitor(args: AlertsArgs) -> Manifest:
    """Has Prometheus scrape the node agents' pods, with the node's name on every sample."""
    return {
        "apiVersion": _API,
        "kind": "PodMonitor",
        "metadata": _metadata(args),
        "spec": {
            "namespaceSelector": {"matchNames": [names.node_agent_namespace(args.cluster.system_namespace)]},
            "selector": {
                "matchExpressions": [
                    {"key": names.LABEL_NAME, "operator": "In", "values": [names.EXPORTER, names.GUARD]}
                ]
            },
            "podMetricsEndpoints": [
                {
                    "port": METRICS_PORT,
                    "interval": f"{SCRAPE_SECONDS}s",
                    "relabelings": [
                        {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"},
                        # Of the agent's own pod: the samples' are those of whom they are about.
                        {"action": "labeldrop", "regex": "namespace|pod|container|endpoint"},
                    ],
                }
            ],
        },
    }


def scheduler_monitor(args: AlertsArgs) -> Manifest:
    """Has Prometheus scrape the scheduler's extenders; each pod's series keep its name, since one of them leads."""
    return {
        "apiVersion": _API,
        "kind": "PodMonitor",
        "metadata": _metadata(args, names.SCHEDULER),
        "spec": {
            "namespaceSelector": {"matchNames": [args.cluster.system_namespace]},
            "selector": {"matchLabels": scheduler.selector()},
            "podMetricsEndpoints": [{"port": METRICS_PORT, "interval": f"{SCRAPE_SECONDS}s"}],
        },
    }


def _metadata(args: AlertsArgs, name: str = names.ALERTS) -> Manifest:
    labels = names.labels("alerts", name) | args.spec.labels
    return {"name": name, "namespace": args.namespace, "labels": labels}


def _silent(cron_job: str, namespace: str) -> Iterator[Manifest]:
    """Two alerts, since a heartbeat that was never seen may as well be a Prometheus that has just started."""
    series = f'kube_cronjob_status_last_successful_time{{namespace="{namespace}", cronjob="{cron_job}"}}'
    look = f"kubectl -n {namespace} get jobs,pods -l {names.LABEL_NAME}={cron_job}"
    yield alert(
        "GpuAgentSilent",
        # One in the future is no heartbeat either: a clock is wrong, and would hide the silence for as long.
        f"abs(time() - max by (namespace, cronjob) ({series})) > {SILENT_SECONDS}",
        hold="0s",
        severity="critical",
        cronjob=cron_job,
        summary=f"{cron_job} has not completed a run for {SILENT_SECONDS} s",
        description=f"It completes a run each minute when all is well. See its last Jobs and their logs: {look}.",
    )
    yield alert(
        "GpuAgentUnseen",
        f"absent({series})",
        hold=f"{UNSEEN_SECONDS}s",
        severity="critical",
        cronjob=cron_job,
        summary=f"No completed run of {cron_job} is on record",
        description=(
            f"It never completed one ({look}), it is gone, or kube-state-metrics is not scraped: then no alert on the "
            "agents' runs can fire."
        ),
    )


def _drift(args: AlertsArgs) -> Manifest:
    advertised = sum(pool.advertised_mib for pool in args.memory_pools)
    return alert(
        "GpuCapacityDrift",
        f"(sum({allocatable(args.ledger.names.gpumem)}) or vector(0)) != {advertised}",
        hold="3m",
        severity="critical",
        summary=f"{{{{ $value }}}} of {advertised} MiB {args.ledger.names.gpumem} are advertised",
        description=(
            f"{names.RECONCILE} keeps {advertised} MiB on {sum(pool.nodes for pool in args.memory_pools)} nodes. A "
            "node is missing, its labels changed, or more is bound to it than the ledger gives: see the log of "
            f"{names.RECONCILE} and the events of the nodes."
        ),
    )


def _pending(resource: str) -> Manifest:
    requests = f'kube_pod_container_resource_requests{{resource="{sanitised(resource)}"}}'
    return alert(
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


def _full() -> Manifest:
    promised, advertised = (
        f"max by (pool) ({name})" for name in (names.METRIC_POOL_PROMISED, names.METRIC_POOL_ADVERTISED)
    )
    return alert(
        "GpuLedgerFull",
        f"{promised} >= {advertised}",
        hold="15m",
        severity="warning",
        summary="Pool {{ $labels.pool }} has no memory left to promise",
        description=(
            "{{ $value | humanize1024 }}B are promised, all that is advertised. A new resident needs a lower seat "
            "elsewhere or another device; make chart shows who has what."
        ),
    )


class Alerts(pulumi.ComponentResource):
    """The rules, the scrape that they rest on, the dashboard, and where the alerts are told."""

    alerts: pulumi.Output[list[str]]

    def __init__(self, name: str, args: AlertsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Alerts"), name, {"cronJobs": list(args.cron_jobs)}, opts)
        rule = prometheus_rule(args)
        declared = register(rule, f"{name}-rule", parent=self)
        register(pod_monitor(args), f"{name}-pod-monitor", parent=self)
        if args.places_by_device:
            register(scheduler_monitor(args), f"{name}-scheduler-monitor", parent=self)
        if args.spec.dashboard_labels:
            config_map = dashboard(args.namespace, args.spec.dashboard_labels, args.run_book)
            register(config_map, f"{name}-dashboard", parent=self)
        if args.spec.digest is not None:
            register(digest.alertmanager_config(args.spec.digest, _metadata(args)), f"{name}-digest", parent=self)
        alerts = [alert["alert"] for group in rule["spec"]["groups"] for alert in group["rules"]]
        self.alerts = declared.urn.apply(lambda _: list(dict.fromkeys(alerts)))
        self.register_outputs({"alerts": self.alerts})
