"""Alerts on the agents' runs. The alerts on runs use the time of the last successful run, because an existing pod
proves nothing."""

from collections.abc import Iterator

from components.monitoring.alert import Alert
from components.monitoring.args import AlertsArgs
from tenancy import names
from tenancy.seconds import SILENT_SECONDS

# The longest time after which Prometheus knows the first completed run of a new CronJob. The time is the sum of one
# minute, the length of a run and a scrape interval.
UNSEEN_SECONDS = 160


def rules(args: AlertsArgs) -> Iterator[Alert]:
    """Yields two alerts for each CronJob. The alert on a missing heartbeat waits longer, because Prometheus may have
    just started.
    """
    for cron_job in args.cron_jobs:
        yield from _silent(cron_job, args.cluster.system_namespace)


def _silent(cron_job: str, namespace: str) -> Iterator[Alert]:
    series = f'kube_cronjob_status_last_successful_time{{namespace="{namespace}", cronjob="{cron_job}"}}'
    look = f"kubectl -n {namespace} get jobs,pods -l {names.LABEL_NAME}={cron_job}"
    yield Alert(
        "GpuAgentSilent",
        # With `abs`, the alert also fires for a heartbeat in the future, which shows a wrong clock. Without `abs`, no
        # alert would fire for a failed agent with a heartbeat in the future.
        f"abs(time() - max by (namespace, cronjob) ({series})) > {SILENT_SECONDS}",
        hold="0s",
        severity="critical",
        labels={"cronjob": cron_job},
        summary=f"{cron_job} has not completed a run for {SILENT_SECONDS} s",
        description=f"A healthy agent completes a run each minute. Read the agent's last Jobs and their logs: {look}.",
        fires={series: "0x30"},
        silent={series: "0+60x12 780x17"},
    )
    yield Alert(
        "GpuAgentUnseen",
        f"absent({series})",
        hold=f"{UNSEEN_SECONDS}s",
        severity="critical",
        labels={"cronjob": cron_job},
        summary=f"Prometheus has no completed run of {cron_job}",
        description=(
            f"The CronJob never completed a run ({look}), or it was deleted, or Prometheus does not scrape "
            "kube-state-metrics. Without kube-state-metrics, the alerts on the agents' runs cannot fire."
        ),
        fires={series: "_x30"},
        silent={series: "_x13 780+60x17"},
    )
