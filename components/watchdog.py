"""The watchdog: under pressure it recycles the smallest set of over-budget pods (seed 000)."""

from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.agent import RUN_SECONDS, Agent, cron_job
from components.exporter import ExporterSpec, telemetry_environment, telemetry_rules
from components.identity import Identity
from components.manifest import component_type, register
from components.spec import Count, Seconds, Spec
from components.system import ClusterSpec
from components.zipapp import Zipapp
from tenancy import names


class WatchdogSpec(Spec):
    """The agent that recycles over-budget pods under pressure."""

    interval_seconds: Seconds = Field(default=5, le=30)
    minimum_age_seconds: Seconds = Field(default=120, description="Younger pods are left alone: they load models.")
    cool_down_seconds: Seconds = Field(default=600, description="A recycled workload is left alone this long.")
    evictions_per_hour: Count = Field(default=6, description="Beyond it the watchdog refuses loudly.")


@dataclass(frozen=True, kw_only=True)
class WatchdogArgs:
    """`exporter` is where the watchdog measures."""

    spec: WatchdogSpec
    cluster: ClusterSpec
    code: Zipapp
    exporter: ExporterSpec


def watchdog_agent(args: WatchdogArgs) -> Agent:
    """The agent that reports what it would recycle: it may read and has no right to evict yet."""
    spec, namespace = args.spec, args.cluster.system_namespace
    return Agent(
        program="watchdog",
        name=names.WATCHDOG,
        namespace=namespace,
        cluster=args.cluster,
        code=args.code,
        environment={
            "INTERVAL_SECONDS": str(spec.interval_seconds),
            "RUN_SECONDS": str(RUN_SECONDS),
            "MINIMUM_AGE_SECONDS": str(spec.minimum_age_seconds),
            "COOL_DOWN_SECONDS": str(spec.cool_down_seconds),
            "EVICTIONS_PER_HOUR": str(spec.evictions_per_hour),
            **telemetry_environment(namespace, args.exporter),
        },
        rules=telemetry_rules(namespace),
        dry_run=True,
    )


class Watchdog(pulumi.ComponentResource):
    """The watchdog's CronJob. It depends on the ledger and the exporter at run time alone: without them it acts on
    nothing."""

    cron_job: pulumi.Output[str]

    def __init__(self, name: str, args: WatchdogArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Watchdog"), name, args.spec.model_dump(), opts)
        agent = watchdog_agent(args)
        identity = Identity(f"{name}-identity", agent.identity, pulumi.ResourceOptions(parent=self))
        declared = register(cron_job(agent), f"{name}-cron-job", parent=self, depends_on=[identity])
        self.cron_job = declared.urn.apply(lambda _: agent.name)
        self.register_outputs({"cronJob": self.cron_job})
