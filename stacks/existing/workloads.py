"""Lists the workloads that a rollout starts, one of each kind of pod, from the settings alone."""

from collections.abc import Iterator, Mapping
from typing import Any

from components.agents import exporter, guard
from components.agents.exporter import ExporterArgs
from components.agents.guard import GuardArgs
from components.agents.reconcile import CapacityArgs, reconcile_agent
from components.base import zipapp
from components.base.agent import cron_job
from stacks.settings import StackSettings


def workloads(settings: StackSettings) -> Iterator[Mapping[str, Any]]:
    """Yields the exporter, the guards, and an agent without privileges, whose pods are those of the other agents."""
    ledger = settings.ledger()
    if settings.exporter is not None:
        pools = ledger.shared_pools
        args = ExporterArgs(
            cluster=settings.cluster,
            code=zipapp.build_for_nodes(),
            ledger=ledger,
            publish_devices=settings.publishes_devices,
        )
        selectors = [pool.node_selector for pool in pools]
        yield exporter.daemon_set(exporter.exporter_agent(args), selectors, reads_caps=any(pool.caps for pool in pools))
    if settings.guarded:
        guards = GuardArgs(cluster=settings.cluster, code=zipapp.build_for_nodes(), pools=settings.guarded)
        yield from (guard.daemon_set(guard.guard_agent(guards, pool), pool) for pool in guards.pools)
    if settings.reconcile is not None:
        capacity = CapacityArgs(cluster=settings.cluster, code=zipapp.build(), ledger=ledger, reconcile=True)
        yield cron_job(reconcile_agent(capacity, run_seconds=1))
