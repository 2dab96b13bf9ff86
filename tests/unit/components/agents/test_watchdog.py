from collections.abc import Sequence

import pytest

from components.agents.watchdog import Watchdog, WatchdogArgs, WatchdogSpec
from tests.support.engine import Graph
from tests.support.given import CLUSTER, CODE, NODES, SYSTEM, declared, environment, rights

READS = {
    (SYSTEM, "/configmaps", "get", ("gpu-tenancy-ledger",)),
    (NODES, "/pods", "list", ()),
    ("*", "/nodes", "list", ()),
    ("*", "/pods", "list", ()),
}
TELLS = {("*", "events.k8s.io/events", "create", ())}
JOURNAL = "gpu-vram-watchdog-journal"
ACTS = {
    (SYSTEM, "/configmaps", "get", (JOURNAL,)),
    (SYSTEM, "/configmaps", "patch", (JOURNAL,)),
    ("chat", "/pods/eviction", "create", ()),
    ("team-a", "/pods/eviction", "create", ()),
    ("team-a", "kueue.x-k8s.io/workloads", "get", ()),
    ("team-a", "kueue.x-k8s.io/workloads", "patch", ()),
}


def watchdog(*, armed: bool, assumed: Sequence[str] = ()) -> Graph:
    args = WatchdogArgs(
        spec=WatchdogSpec(armed=armed),
        cluster=CLUSTER,
        code=CODE,
        budgeted=["team-a", "chat"],
        queued=["team-a"],
        assumed=assumed,
    )
    return declared(Watchdog, "watchdog", args)


@pytest.mark.parametrize(("armed", "held"), [(False, READS | TELLS), (True, READS | TELLS | ACTS)])
def test_it_has_the_right_to_act_only_when_armed(armed: bool, held: set[tuple[str, str, str, tuple[str, ...]]]) -> None:
    graph = watchdog(armed=armed)
    assert environment(dict(graph.one("CronJob").inputs))["DRY_RUN"] == str(not armed).lower()
    assert rights(graph) == held


def test_it_has_no_right_to_evict_whose_seats_are_all_in_pools_with_assumed_numbers() -> None:
    graph = watchdog(armed=True, assumed=["chat"])
    assert rights(graph) == READS | TELLS | ACTS - {("chat", "/pods/eviction", "create", ())}
    assert environment(dict(graph.one("CronJob").inputs))["TENANTS"] == "chat,team-a"
