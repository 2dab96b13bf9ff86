import pytest

from components.agents.exporter import ExporterSpec
from components.agents.watchdog import Watchdog, WatchdogArgs, WatchdogSpec
from tests.support.engine import Graph, names
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


def watchdog(**spec: object) -> Graph:
    args = WatchdogArgs(
        spec=WatchdogSpec(**spec),  # type: ignore[arg-type]
        cluster=CLUSTER,
        code=CODE,
        exporter=ExporterSpec(port=9999),
        budgeted=["team-a", "chat"],
        queued=["team-a"],
    )
    return declared(Watchdog, "watchdog", args)


@pytest.fixture(scope="module")
def unarmed() -> Graph:
    return watchdog(
        interval_seconds=7,
        minimum_age_seconds=11,
        cool_down_seconds=13,
        grace_seconds=17,
        waiting_seconds=19,
        evictions_per_hour=2,
        node_evictions_per_hour=3,
        total_evictions_per_hour=5,
    )


@pytest.fixture(scope="module")
def armed() -> Graph:
    return watchdog(armed=True)


def test_it_is_a_cron_job_under_its_identity(unarmed: Graph) -> None:
    assert names(unarmed.children(unarmed.one("Watchdog"))) == {"watchdog-identity", "watchdog-cron-job"}
    cron_job = unarmed.one("CronJob")
    assert cron_job.inputs["metadata"]["name"] == "gpu-vram-watchdog"
    assert cron_job.inputs["metadata"]["namespace"] == SYSTEM
    for binding in (*unarmed.all("RoleBinding"), unarmed.one("ClusterRoleBinding")):
        assert unarmed.depends_on(cron_job, binding)


def test_unless_told_it_is_not_armed_and_has_no_right_to_act(unarmed: Graph) -> None:
    assert environment(dict(unarmed.one("CronJob").inputs))["DRY_RUN"] == "true"
    assert rights(unarmed) == READS | TELLS


def test_armed_it_may_evict_where_the_stack_hands_budgets_out(armed: Graph) -> None:
    assert environment(dict(armed.one("CronJob").inputs))["DRY_RUN"] == "false"
    assert rights(armed) == READS | TELLS | ACTS


def test_it_may_delete_only_when_told_to() -> None:
    deletes = {("chat", "/pods", "delete", ()), ("team-a", "/pods", "delete", ())}
    assert rights(watchdog(armed=True, delete_blocked=True)) == READS | TELLS | ACTS | deletes


def test_armed_it_has_a_journal_before_it_runs(armed: Graph) -> None:
    (journal,) = armed.all("ConfigMap")
    assert journal.inputs["metadata"]["name"] == JOURNAL
    assert "data" not in journal.inputs
    assert armed.depends_on(armed.one("CronJob"), journal)


def test_its_tunables_are_the_operators(unarmed: Graph) -> None:
    assert environment(dict(unarmed.one("CronJob").inputs)) == {
        "LEDGER_NAMESPACE": SYSTEM,
        "DRY_RUN": "true",
        "INTERVAL_SECONDS": "7",
        "RUN_SECONDS": "45",
        "MINIMUM_AGE_SECONDS": "11",
        "COOL_DOWN_SECONDS": "13",
        "GRACE_SECONDS": "17",
        "WAITING_SECONDS": "19",
        "EVICTIONS_PER_HOUR": "2",
        "NODE_EVICTIONS_PER_HOUR": "3",
        "TOTAL_EVICTIONS_PER_HOUR": "5",
        "DELETE_BLOCKED": "false",
        "RECYCLE_BARE_PODS": "false",
        "TENANTS": "chat,team-a",
        "EXPORTER_NAMESPACE": NODES,
        "EXPORTER_PORT": "9999",
    }


def test_its_output_is_its_cron_job(unarmed: Graph) -> None:
    assert unarmed.outputs_of(unarmed.one("Watchdog")) == {"cronJob": "gpu-vram-watchdog"}
