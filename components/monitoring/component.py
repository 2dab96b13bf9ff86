"""Declares the alerts with their scrapes and recording rules, the dashboard, and the digest."""

import pulumi

from components.base.manifest import Manifest, component_type, register
from components.monitoring import alertmanager, usage
from components.monitoring.args import AlertsArgs
from components.monitoring.dashboard import dashboard
from components.monitoring.pod_monitors import kueue_monitor, pod_monitor, scheduler_monitor
from components.monitoring.rules import alerts
from tenancy import names

# With this interval, an alert reports a failed agent within three minutes of the fault. An alert fires within three
# minutes even if one more run succeeds a few seconds after the fault.
EVALUATION_SECONDS = 5


def rule_groups(args: AlertsArgs) -> Manifest:
    """Returns a rule file for Prometheus with every alert and every recording rule. The numbers in the alerts come from
    the ledger."""
    rules = [alert.rule(args.run_book) for alert in alerts(args)]
    return {
        "groups": [
            {"name": names.ALERTS, "interval": f"{EVALUATION_SECONDS}s", "rules": rules},
            {
                "name": f"{names.ALERTS}-usage",
                "interval": f"{usage.INTERVAL_SECONDS}s",
                "rules": [*usage.recordings()],
            },
        ]
    }


def prometheus_rule(args: AlertsArgs) -> Manifest:
    """Returns the alerts and recording rules as a PrometheusRule for the Prometheus Operator."""
    return {
        "apiVersion": names.PROMETHEUS_OPERATOR_API,
        "kind": "PrometheusRule",
        "metadata": args.metadata(),
        "spec": rule_groups(args),
    }


class Alerts(pulumi.ComponentResource):
    """The objects for Prometheus, Alertmanager and Grafana."""

    def __init__(self, name: str, args: AlertsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Alerts"), name, {"cronJobs": list(args.cron_jobs)}, opts)
        if args.spec.operator:
            register(prometheus_rule(args), f"{name}-rule", parent=self)
            register(pod_monitor(args), f"{name}-pod-monitor", parent=self)
        if args.spec.operator and args.places_by_device:
            register(scheduler_monitor(args), f"{name}-scheduler-monitor", parent=self)
        if args.spec.operator and args.kueue_namespace is not None:
            register(kueue_monitor(args, args.kueue_namespace), f"{name}-kueue-monitor", parent=self)
        register(dashboard(args.namespace, args.run_book), f"{name}-dashboard", parent=self)
        if args.spec.digest is not None:
            register(alertmanager.alertmanager_config(args.spec.digest, args.metadata()), f"{name}-digest", parent=self)
        self.register_outputs({})
