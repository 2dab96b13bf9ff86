"""The arguments of the alerts, their scrapes and the dashboard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field, ValidationInfo, field_validator

from components.base.manifest import Manifest
from components.base.spec import HttpUrl, Labels, Spec
from components.base.system import ClusterSpec
from components.monitoring.alertmanager import DigestSpec
from tenancy import names
from tenancy.host_memory.pool import HostMemoryPool
from tenancy.ledger import Ledger


class AlertsSpec(Spec):
    """Rules and scrapes for Prometheus, and a dashboard for Grafana. The rules also need the metrics of
    kube-state-metrics."""

    needs: ClassVar[Mapping[str, str]] = {"exporter": "the alerts watch what the exporter measures"}

    operator: bool = Field(
        default=True,
        description="false: the cluster has no Prometheus Operator. With false, `python -m stacks rules` prints the "
        "rule file for Prometheus.",
    )
    labels: Labels = Field(
        default_factory=dict,
        description="Labels by which your Prometheus selects PrometheusRules and PodMonitors, for example release: "
        "prometheus.",
        examples=[{"release": "prometheus"}],
    )
    run_book: HttpUrl | None = Field(
        default=None,
        description="URL of your copy of docs/operations.md, to which the alerts and the dashboard link.",
        examples=["https://wiki.example.com/gpus"],
    )
    queue_wait_minutes: Annotated[int, Field(ge=1, le=10_080)] = Field(
        default=60,
        description="Minutes that Jobs wait in a queue with idle quota before an alert fires.",
        examples=[30],
    )
    digest: DigestSpec | None = Field(default=None, description="A Slack channel that gets the alerts. Default: none.")

    @field_validator("digest")
    @classmethod
    def _needs_the_operator(cls, digest: DigestSpec | None, info: ValidationInfo) -> DigestSpec | None:
        if digest is not None and not info.data.get("operator", True):
            raise ValueError("is an object of the Prometheus Operator; remove it, or operator: false")
        return digest


@dataclass(frozen=True, kw_only=True)
class AlertsArgs:
    """Names the parts of the stack that the alerts watch."""

    spec: AlertsSpec
    cluster: ClusterSpec
    ledger: Ledger
    cron_jobs: Sequence[str]
    recycles_per_hour: int | None = None  # The recycle limit of each tenant, or None without a watchdog.
    places_by_device: bool = False
    guards: Sequence[str] = ()  # The names of the guard's DaemonSets.
    host_memory: Sequence[HostMemoryPool] = ()
    kueue_namespace: str | None = None  # None without queues
    kueue_deployment: str = names.KUEUE_SERVICE_ACCOUNT

    @property
    def namespace(self) -> str:
        return self.cluster.system_namespace

    @property
    def run_book(self) -> str:
        return self.spec.run_book or "docs/operations.md"

    def metadata(self, name: str = names.ALERTS) -> Manifest:
        """Returns an object's metadata, with the labels by which the Prometheus Operator selects objects."""
        labels = names.labels("alerts", name) | self.spec.labels
        return {"name": name, "namespace": self.namespace, "labels": labels}
