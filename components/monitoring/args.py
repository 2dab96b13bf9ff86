"""What the alerts, their scrapes and the dashboard are made from."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from components.base.manifest import Manifest
from components.base.spec import DnsLabel, HttpUrl, LabelKey, LabelValue, Spec
from components.base.system import ClusterSpec
from components.monitoring.alertmanager import DigestSpec
from tenancy import names
from tenancy.host_memory.pool import HostMemoryPool
from tenancy.ledger import Ledger


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
    """`cron_jobs` are the names of the agents whose runs are watched, `guards` those of the guard's DaemonSets,
    `host_memory` all pools of host memory; `recycles_per_hour` is the watchdog's cap for a tenant, None where there is
    no watchdog, `total_recycles_per_hour` that for all; `places_by_device`: there is a scheduler that does;
    `advertised`: nodes show the ledger's gpumem, not so where seats are claimed."""

    spec: AlertsSpec
    cluster: ClusterSpec
    ledger: Ledger
    cron_jobs: Sequence[str]
    recycles_per_hour: int | None = None
    total_recycles_per_hour: int | None = None
    places_by_device: bool = False
    advertised: bool = True
    guards: Sequence[str] = ()
    host_memory: Sequence[HostMemoryPool] = ()

    @property
    def namespace(self) -> str:
        return self.spec.namespace or self.cluster.system_namespace

    @property
    def run_book(self) -> str:
        return self.spec.run_book or "docs/operations.md"

    def metadata(self, name: str = names.ALERTS) -> Manifest:
        """Of an object of that name, with the labels that the operator's Prometheus selects by."""
        labels = names.labels("alerts", name) | self.spec.labels
        return {"name": name, "namespace": self.namespace, "labels": labels}
