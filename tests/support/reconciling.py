"""Runs reconcile on the fake cluster."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from agents.reconcile.decide import Action, NodeFinding, NodePatch
from agents.reconcile.main import Reconciler, Settings
from tests.support.fake_cluster import SYSTEM, Served

# NOTHING is the state of a node before it advertises gpumem.
FULL = ("14k", "14k", "14k", "14k")
NOTHING = (None, None, None, None)


def reconciler(
    served: Served, *, run_seconds: int = 0, pod_name: str = "one", now: Callable[[], datetime] | None = None
) -> Reconciler:
    settings = Settings(ledger_namespace=SYSTEM, pod_name=pod_name, interval_seconds=10, run_seconds=run_seconds)
    clock = served.time.clock()
    clock = clock if now is None else replace(clock, now=now)
    return Reconciler(settings=settings, api=served.api(), clock=clock, log=served.log())


def written(actions: Iterable[Action]) -> list[int | None]:
    return [action.gpumem_mib for action in actions if isinstance(action, NodePatch)]


def findings(actions: Iterable[Action]) -> dict[str, str]:
    return {action.reason: action.note for action in actions if isinstance(action, NodeFinding)}
