"""Reads the parts of a stack that a simulated cluster needs: the ledger, and the agents' environment variables from the
components.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.agents.gate import GateArgs, gate_agent, gate_cron_job
from components.agents.reconcile import CapacityArgs, ledger_config_map, reconcile_agent
from components.agents.scheduler import SchedulerArgs, SchedulerSpec, deployment
from components.agents.watchdog import watchdog_agent
from components.base.agent import RUN_SECONDS, cron_job
from components.base.zipapp import Zipapp
from stacks.platform import watchdog_args
from stacks.settings import StackSettings
from tenancy.ledger import Ledger
from tenancy.names import GATE, LEDGER_KEY, RECONCILE, SCHEDULER, WATCHDOG

_NO_CODE = Zipapp(b"", "")  # the agents run in the simulation's process


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The parts of a stack that a simulated cluster needs.

    `environ` has the environment variables of each agent; the cluster has only these agents. `overlaps` is True for an
    agent with runs that may overlap. `quotas` has the quota of each namespace in MiB.
    """

    ledger_text: str
    ledger: Ledger
    environ: Mapping[str, Mapping[str, str]]
    overlaps: Mapping[str, bool]
    quotas: Mapping[str, int]


def stack_of(settings: StackSettings) -> Stack:
    """Returns the stack of these settings.

    If a stack uses other software in place of reconcile, the extender or the exporter, the simulation runs our agents
    with default settings.
    """
    ledger = settings.ledger()
    config_map = ledger_config_map(ledger, settings.cluster.system_namespace, advertised=True)
    cron_jobs = dict(_cron_jobs(settings, ledger))
    environ = {name: environ_of(spec["jobTemplate"]["spec"]["template"]["spec"]) for name, spec in cron_jobs.items()}
    scheduler_args = SchedulerArgs(
        spec=settings.scheduler or SchedulerSpec(),
        cluster=settings.cluster,
        code=_NO_CODE,
        ledger=ledger,
    )
    environ[SCHEDULER] = environ_of(deployment(scheduler_args)["spec"]["template"]["spec"], "extender")
    return Stack(
        ledger_text=config_map["data"][LEDGER_KEY],
        ledger=ledger,
        environ=environ,
        overlaps={name: spec["concurrencyPolicy"] != "Forbid" for name, spec in cron_jobs.items()},
        quotas={
            seat.tenant: ledger.budget_mib(seat.tenant)
            for seat in ledger.seats
            if settings.enforces(settings.tenants[seat.tenant])
        },
    )


def _cron_jobs(settings: StackSettings, ledger: Ledger) -> Iterator[tuple[str, Mapping[str, Any]]]:
    cluster = settings.cluster
    capacity = CapacityArgs(cluster=cluster, code=_NO_CODE, ledger=ledger, reconcile=True)
    yield RECONCILE, cron_job(reconcile_agent(capacity, run_seconds=RUN_SECONDS))["spec"]
    if settings.watchdog is not None:
        args = watchdog_args(settings.watchdog, settings, ledger, code=_NO_CODE)
        yield WATCHDOG, cron_job(watchdog_agent(args))["spec"]
    if settings.gate is not None and settings.on_demand:
        gate_args = GateArgs(
            spec=settings.acting(settings.gate),
            cluster=cluster,
            code=_NO_CODE,
            on_demand=settings.on_demand,
        )
        yield GATE, gate_cron_job(gate_agent(gate_args))["spec"]


def environ_of(pod_spec: Mapping[str, Any], container: str = "") -> dict[str, str]:
    """Returns the environment variables of a container that have a fixed value."""
    found = next(each for each in pod_spec["containers"] if container in ("", each["name"]))
    return {each["name"]: each["value"] for each in found["env"] if "value" in each}
