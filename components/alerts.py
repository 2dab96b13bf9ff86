"""Alerts: on the last successful run and on the age of telemetry, never on "the pod exists"."""

from pydantic import Field

from components.spec import DnsLabel, LabelKey, LabelValue, Spec


class AlertsSpec(Spec):
    """PrometheusRule for the Prometheus Operator."""

    namespace: DnsLabel | None = Field(default=None, description="Default: the system namespace.")
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="What your Prometheus selects rules by, for instance release: prometheus."
    )
