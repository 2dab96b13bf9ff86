import pytest

from components.exporter import ExporterSpec
from components.watchdog import Watchdog, WatchdogArgs, WatchdogSpec
from tests.components.given import CLUSTER, CODE, NODES, SYSTEM, declared, environment, rights
from tests.engine import Graph, names


@pytest.fixture(scope="module")
def graph() -> Graph:
    spec = WatchdogSpec(interval_seconds=7, minimum_age_seconds=11, cool_down_seconds=13, evictions_per_hour=2)
    args = WatchdogArgs(spec=spec, cluster=CLUSTER, code=CODE, exporter=ExporterSpec(port=9999))
    return declared(Watchdog, "watchdog", args)


def test_it_is_a_cron_job_under_its_identity(graph: Graph) -> None:
    assert names(graph.children(graph.one("Watchdog"))) == {"watchdog-identity", "watchdog-cron-job"}
    cron_job = graph.one("CronJob")
    assert cron_job.inputs["metadata"]["name"] == "gpu-vram-watchdog"
    assert cron_job.inputs["metadata"]["namespace"] == SYSTEM
    for binding in (*graph.all("RoleBinding"), graph.one("ClusterRoleBinding")):
        assert graph.depends_on(cron_job, binding)


def test_it_has_exactly_these_rights_and_none_to_evict(graph: Graph) -> None:
    assert rights(graph) == {
        (SYSTEM, "/configmaps", "get", ("gpu-tenancy-ledger",)),
        (NODES, "/pods", "list", ()),
        ("*", "/nodes", "list", ()),
    }


def test_its_tunables_are_the_operators(graph: Graph) -> None:
    given = environment(dict(graph.one("CronJob").inputs))
    assert given == {
        "LEDGER_NAMESPACE": SYSTEM,
        "DRY_RUN": "true",
        "INTERVAL_SECONDS": "7",
        "RUN_SECONDS": "45",
        "MINIMUM_AGE_SECONDS": "11",
        "COOL_DOWN_SECONDS": "13",
        "EVICTIONS_PER_HOUR": "2",
        "EXPORTER_NAMESPACE": NODES,
        "EXPORTER_PORT": "9999",
    }


def test_its_output_is_its_cron_job(graph: Graph) -> None:
    assert graph.outputs_of(graph.one("Watchdog")) == {"cronJob": "gpu-vram-watchdog"}
