"""The watchdog: under pressure it recycles the smallest set of over-budget pods (record 0000)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.agents.exporter import ExporterSpec, telemetry_environment, telemetry_rules
from components.base.agent import RUN_SECONDS, Agent, cron_job, flag
from components.base.identity import Identity, PolicyRule, events_rule
from components.base.journal import journal, journal_rule
from components.base.manifest import component_type, register
from components.base.spec import Count, Seconds, Spec
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names


class WatchdogSpec(Spec):
    """The agent that recycles over-budget pods under pressure."""

    armed: bool = Field(
        default=False, description="Whether it acts. Else it has no right to, and tells what it would have done."
    )
    interval_seconds: Seconds = Field(default=5, le=30)
    minimum_age_seconds: Seconds = Field(default=120, description="Younger pods are left alone: they load models.")
    cool_down_seconds: Seconds = Field(default=600, description="A recycled workload is left alone this long.")
    grace_seconds: Seconds = Field(
        default=30,
        description="The longest grace of a recycled pod, which may ask for less: its neighbours lack the memory.",
    )
    waiting_seconds: Seconds = Field(
        default=30,
        description="A pod that waits for its seat leaves the gates so long before others are recycled for it.",
    )
    evictions_per_hour: Count = Field(
        default=4, description="Of one tenant. Beyond it the watchdog leaves the tenant alone, and says so loudly."
    )
    node_evictions_per_hour: Count = Field(default=8, description="On one node, of all its tenants.")
    total_evictions_per_hour: Count = Field(
        default=24, description="Of everybody on all nodes: a brake for what nobody has thought of."
    )
    delete_blocked: bool = Field(
        default=False, description="Delete a pod whose eviction a PodDisruptionBudget refuses, instead of telling so."
    )
    recycle_bare_pods: bool = Field(
        default=False, description="Also end pods that have no controller, which nothing brings back."
    )


@dataclass(frozen=True, kw_only=True)
class WatchdogArgs:
    """`exporter` is where the watchdog measures; `budgeted` are the tenants whose pods declare gpumem, and with it
    those that it may recycle; `queued` are those of them that Kueue admits."""

    spec: WatchdogSpec
    cluster: ClusterSpec
    code: Zipapp
    exporter: ExporterSpec
    budgeted: Sequence[str]
    queued: Sequence[str] = ()


def watchdog_agent(args: WatchdogArgs) -> Agent:
    """The agent, with rights in the budgeted tenants' namespaces; unarmed it may read, and tell what it would do."""
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
            "GRACE_SECONDS": str(spec.grace_seconds),
            "WAITING_SECONDS": str(spec.waiting_seconds),
            "EVICTIONS_PER_HOUR": str(spec.evictions_per_hour),
            "NODE_EVICTIONS_PER_HOUR": str(spec.node_evictions_per_hour),
            "TOTAL_EVICTIONS_PER_HOUR": str(spec.total_evictions_per_hour),
            "DELETE_BLOCKED": flag(spec.delete_blocked),
            "RECYCLE_BARE_PODS": flag(spec.recycle_bare_pods),
            "TENANTS": ",".join(sorted(args.budgeted)),
            **telemetry_environment(namespace, args.exporter),
        },
        rules=tuple(_rules(args)),
        dry_run=not spec.armed,
    )


def _rules(args: WatchdogArgs) -> Iterator[PolicyRule]:
    """It looks at pods and tells of them wherever a GPU is used; it acts where the stack hands budgets out."""
    yield from telemetry_rules(args.cluster.system_namespace)
    yield PolicyRule(resources=("pods",), verbs=("list",))
    yield events_rule()
    if not args.spec.armed:
        return
    yield journal_rule(names.WATCHDOG, args.cluster.system_namespace)
    for tenant in sorted(args.budgeted):
        yield PolicyRule(resources=("pods/eviction",), verbs=("create",), namespace=tenant)
        if args.spec.delete_blocked:
            yield PolicyRule(resources=("pods",), verbs=("delete",), namespace=tenant)
        if tenant in args.queued:
            group = names.KUEUE_API.partition("/")[0]
            yield PolicyRule(api_groups=(group,), resources=("workloads",), verbs=("get", "patch"), namespace=tenant)


class Watchdog(pulumi.ComponentResource):
    """The watchdog's CronJob, and when armed its journal. Armed it has a role in each budgeted tenant's namespace, so
    it depends on the tenants; on the ledger and the exporter at run time alone: without them it acts on nothing."""

    cron_job: pulumi.Output[str]

    def __init__(self, name: str, args: WatchdogArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Watchdog"), name, args.spec.model_dump(), opts)
        agent = watchdog_agent(args)
        needed: list[pulumi.Resource] = [
            Identity(f"{name}-identity", agent.identity, pulumi.ResourceOptions(parent=self))
        ]
        if args.spec.armed:
            needed.append(register(journal(agent), f"{name}-journal", parent=self))
        declared = register(cron_job(agent), f"{name}-cron-job", parent=self, depends_on=needed)
        self.cron_job = declared.urn.apply(lambda _: agent.name)
        self.register_outputs({"cronJob": self.cron_job})
