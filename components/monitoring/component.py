"""Alerts: on the last successful run and on the age of telemetry, never on "the pod exists"."""

import pulumi

from components.base.manifest import Manifest, component_type, register
from components.monitoring import alertmanager
from components.monitoring.args import AlertsArgs
from components.monitoring.dashboard import dashboard
from components.monitoring.pod_monitors import pod_monitor, scheduler_monitor
from components.monitoring.rules import agents, capacity, caps, guard, host_memory, scheduler, telemetry, usage
from components.monitoring.rules.alert import referring
from tenancy import names

# The rules are looked at so often that an agent's silence is reported within three minutes of the fault, also where a
# run that saw nothing of it succeeded some seconds later.
EVALUATION_SECONDS = 5


def prometheus_rule(args: AlertsArgs) -> Manifest:
    """Every alert, with its numbers taken from the ledger, and what is recorded."""
    rules = [
        referring(rule, args.run_book)
        for subject in (agents, telemetry, caps, capacity, scheduler, guard, host_memory)
        for rule in subject.rules(args)
    ]
    return {
        "apiVersion": names.PROMETHEUS_OPERATOR_API,
        "kind": "PrometheusRule",
        "metadata": args.metadata(),
        "spec": {
            "groups": [
                {"name": names.ALERTS, "interval": f"{EVALUATION_SECONDS}s", "rules": rules},
                {
                    "name": f"{names.ALERTS}-usage",
                    "interval": f"{usage.INTERVAL_SECONDS}s",
                    "rules": [*usage.recordings()],
                },
            ]
        },
    }


class Alerts(pulumi.ComponentResource):
    """The rules, the scrape that they rest on, the dashboard, and where the alerts go."""

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
            register(alertmanager.alertmanager_config(args.spec.digest, args.metadata()), f"{name}-digest", parent=self)
        alerts = [each["alert"] for group in rule["spec"]["groups"] for each in group["rules"] if "alert" in each]
        self.alerts = declared.urn.apply(lambda _: list(dict.fromkeys(alerts)))
        self.register_outputs({"alerts": self.alerts})
