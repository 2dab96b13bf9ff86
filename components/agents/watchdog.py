"""The watchdog: recycles as few pods over their budgets as possible while a device is below its floor
(docs/records/0000).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pulumi
from pydantic import Field

from components.agents.exporter import telemetry_environment, telemetry_rules
from components.base.agent import RUN_SECONDS, Agent, cron_job, flag
from components.base.identity import Identity, PolicyRule, events_rule
from components.base.journal import journal_config_map, journal_rule
from components.base.manifest import component_type, register
from components.base.spec import Count, MibOrNone, Seconds, Spec
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.frameworks import FrameworkName, parts_of

# The time between two passes.
_INTERVAL_SECONDS = 5
# The time before the watchdog may recycle the same workload again.
_COOL_DOWN_SECONDS = 600
# The longest grace period of a recycled pod. The grace period of a recycled pod is short, because other pods wait for
# the memory.
_GRACE_SECONDS = 30


class WatchdogSpec(Spec):
    """The agent that recycles pods over their budget while a device is below its floor."""

    needs: ClassVar[Mapping[str, str]] = {"exporter": "the watchdog acts on what the exporter measures"}

    armed: bool = Field(
        default=False, description="false: the watchdog only reports its decisions, and has no right to evict."
    )
    minimum_age_seconds: Seconds = Field(
        default=120,
        description="Minimum age of a pod in seconds before the watchdog may recycle the pod, because a new pod may "
        "still load its model.",
    )
    evictions_per_hour: Count = Field(
        default=4,
        description="Recycle limit of each tenant. An alert fires when a tenant reaches the recycle limit. After the "
        "limit, the watchdog recycles the tenant's next pod when the oldest of the counted recycles is an hour "
        "old.",
    )
    least_free_mib: MibOrNone = Field(
        default=0,
        examples=[512],
        description="If recycles cannot free enough memory for a device's floor, the watchdog recycles only if they "
        "leave least_free_mib of free memory. With least_free_mib: 0, the watchdog recycles only if recycles can "
        "free enough memory for the floor.",
    )


@dataclass(frozen=True, kw_only=True)
class WatchdogArgs:
    """Holds the watchdog's arguments. `budgeted` are the tenants with budgets: the watchdog may recycle their pods.
    `queued` are the queue tenants with budgets, and `frameworks` are the kinds of work that Kueue queues. `assumed` are
    the tenants with all their seats in pools with assumed memory.
    """

    spec: WatchdogSpec
    cluster: ClusterSpec
    code: Zipapp
    budgeted: Sequence[str]
    queued: Sequence[str] = ()
    frameworks: Sequence[FrameworkName] = ()
    assumed: Sequence[str] = ()


def watchdog_agent(args: WatchdogArgs) -> Agent:
    """Returns the watchdog. If the watchdog enforces (`armed`), it may evict pods in the namespaces of tenants with
    budgets. In the mode observe, the watchdog only reads and reports."""
    spec, namespace = args.spec, args.cluster.system_namespace
    return Agent(
        program="watchdog",
        name=names.WATCHDOG,
        namespace=namespace,
        cluster=args.cluster,
        code=args.code,
        environment={
            "DRY_RUN": flag(not spec.armed),
            "INTERVAL_SECONDS": str(_INTERVAL_SECONDS),
            "RUN_SECONDS": str(RUN_SECONDS),
            "MINIMUM_AGE_SECONDS": str(spec.minimum_age_seconds),
            "COOL_DOWN_SECONDS": str(_COOL_DOWN_SECONDS),
            "GRACE_SECONDS": str(_GRACE_SECONDS),
            "EVICTIONS_PER_HOUR": str(spec.evictions_per_hour),
            "LEAST_FREE_MIB": str(spec.least_free_mib),
            "TENANTS": ",".join(sorted(args.budgeted)),
            **telemetry_environment(namespace),
        },
        rules=tuple(_rules(args)),
    )


def _rules(args: WatchdogArgs) -> Iterator[PolicyRule]:
    yield from telemetry_rules(args.cluster.system_namespace)
    yield PolicyRule("", ("pods",), ("list",))
    yield events_rule()
    if not args.spec.armed:
        return
    yield journal_rule(names.WATCHDOG, args.cluster.system_namespace)
    for tenant in sorted(set(args.budgeted) - set(args.assumed)):
        yield PolicyRule("", ("pods/eviction",), ("create",), namespace=tenant)
        # The watchdog deletes a pod only after a PodDisruptionBudget, which a tenant may create, refused its eviction.
        yield PolicyRule("", ("pods",), ("delete",), namespace=tenant)
        if tenant in args.queued:
            yield PolicyRule(names.KUEUE_GROUP, ("workloads",), ("get", "patch"), namespace=tenant)
            # The watchdog deactivates a Workload only if the Workload's owner controls the pod.
            for part in parts_of(args.frameworks):
                yield PolicyRule(part.group, (part.resource,), ("get",), namespace=tenant)


class Watchdog(pulumi.ComponentResource):
    """The watchdog's CronJob. In the mode enforce, the watchdog has a journal. In the mode enforce, the watchdog
    depends on the tenants, because it has roles in their namespaces."""

    def __init__(self, name: str, args: WatchdogArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Watchdog"), name, args.spec.model_dump(), opts)
        agent = watchdog_agent(args)
        needed: list[pulumi.Resource] = [Identity(f"{name}-identity", agent, pulumi.ResourceOptions(parent=self))]
        if args.spec.armed:
            needed.append(register(journal_config_map(agent), f"{name}-journal", parent=self))
        register(cron_job(agent), f"{name}-cron-job", parent=self, depends_on=needed)
        self.register_outputs({})
