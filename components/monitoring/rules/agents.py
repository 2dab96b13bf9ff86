"""Alerts on the agents' runs: on the last one that succeeded, never on "the pod exists"."""

from collections.abc import Iterator

from components.base.manifest import Manifest
from components.monitoring.args import AlertsArgs
from components.monitoring.rules.alert import SILENT_SECONDS, alert
from tenancy import names

# From the making of a CronJob to its first completed run on record: up to a minute, the run, a scrape.
UNSEEN_SECONDS = 160


def rules(args: AlertsArgs) -> Iterator[Manifest]:
    """Two for each CronJob, since a heartbeat that was never seen may as well be a Prometheus that has just started."""
    for cron_job in args.cron_jobs:
        yield from _silent(cron_job, args.cluster.system_namespace)


def _silent(cron_job: str, namespace: str) -> Iterator[Manifest]:
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
