import json

import pytest

from agents.runtime.clock import PROMPT_SECONDS
from components.agents.exporter import ExporterSpec
from components.agents.gate import (
    GATE_RUN_SECONDS,
    Gate,
    GateArgs,
    GateSpec,
    HttpJsonDemand,
    OnDemandSpec,
    PrometheusDemand,
    WindowDemand,
    most_samples,
)
from components.monitoring.rules.agents import UNSEEN_SECONDS
from components.monitoring.rules.alert import SILENT_SECONDS
from tests.support.engine import Graph, names
from tests.support.given import CLUSTER, CODE, NODES, SYSTEM, declared, environment, rights

ON_DEMAND = {
    "tts": OnDemandSpec(tenant="voice", pool="t4", need_mib=2048, window=WindowDemand(between="02:00-06:00")),
    "books": OnDemandSpec(
        tenant="voice",
        pool="t4",
        need_mib=1024,
        deployment="books-worker",
        http_json=HttpJsonDemand(url="http://books.voice.svc/status", field="pending"),
    ),
    "always": OnDemandSpec(tenant="voice", pool="t4", need_mib=256),
    "video": OnDemandSpec(
        tenant="media",
        pool="t4",
        need_mib=512,
        margin_mib=100,
        samples=5,
        prometheus=PrometheusDemand(address="http://prometheus:9090", query="sum(queue)", at_least=2),
    ),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return of(GateSpec())


def of(spec: GateSpec) -> Graph:
    args = GateArgs(spec=spec, cluster=CLUSTER, code=CODE, exporter=ExporterSpec(), on_demand=ON_DEMAND)
    return declared(Gate, "gate", args)


def test_all_gates_are_one_cron_job(graph: Graph) -> None:
    assert names(graph.children(graph.one("Gate"))) == {"gate-identity", "gate-journal", "gate-cron-job"}
    cron_job = graph.one("CronJob")
    assert cron_job.inputs["metadata"]["name"] == "gpu-demand-gate"
    for binding in (*graph.all("RoleBinding"), *graph.all("ClusterRoleBinding")):
        assert graph.depends_on(cron_job, binding)


READS = {
    (SYSTEM, "/configmaps", "get", ("gpu-tenancy-ledger",)),
    (SYSTEM, "/configmaps", "get", ("gpu-demand-gate-journal",)),
    (SYSTEM, "/configmaps", "patch", ("gpu-demand-gate-journal",)),
    (NODES, "/pods", "list", ()),
    ("*", "/pods", "list", ()),
    ("*", "/nodes", "list", ()),
    ("voice", "apps/deployments", "get", ("books-worker", "tts", "always")),
    ("media", "apps/deployments", "get", ("video",)),
    *(
        (namespace, resource, verb, ())
        for namespace in ("voice", "media")
        for resource, verb in (
            ("autoscaling/horizontalpodautoscalers", "list"),
            ("keda.sh/scaledobjects", "list"),
            ("events.k8s.io/events", "create"),
        )
    ),
}
SCALES = {
    ("voice", "apps/deployments/scale", "patch", ("books-worker", "tts", "always")),
    ("media", "apps/deployments/scale", "patch", ("video",)),
}


def test_it_is_not_armed_unless_told_and_may_scale_nothing_then(graph: Graph) -> None:
    assert rights(graph) == READS
    assert environment(dict(graph.one("CronJob").inputs))["DRY_RUN"] == "true"


def test_armed_it_may_scale_its_own_deployments() -> None:
    armed = of(GateSpec(armed=True))
    assert rights(armed) == READS | SCALES
    assert environment(dict(armed.one("CronJob").inputs))["DRY_RUN"] == "false"


def test_its_journal_is_there_before_its_first_run_and_declares_no_data(graph: Graph) -> None:
    journal = graph.one("ConfigMap")
    assert (journal.inputs["metadata"]["name"], journal.inputs.get("data")) == ("gpu-demand-gate-journal", None)
    assert graph.depends_on(graph.one("CronJob"), journal)


def test_the_gates_are_served_by_name_those_without_a_demand_signal_last(graph: Graph) -> None:
    given = environment(dict(graph.one("CronJob").inputs))
    assert [gate["name"] for gate in json.loads(given["GATES"])] == ["books", "tts", "video", "always"]
    assert (given["EXPORTER_NAMESPACE"], given["EXPORTER_PORT"]) == (NODES, "9401")


def test_how_long_a_resident_may_load_is_the_stacks_to_say() -> None:
    given = [environment(dict(of(spec).one("CronJob").inputs)) for spec in (GateSpec(), GateSpec(starting_seconds=15))]
    assert [each["STARTING_SECONDS"] for each in given] == ["300", "15"]


def test_a_gate_says_what_it_lets_in_where_and_when(graph: Graph) -> None:
    books, tts, video, always = json.loads(environment(dict(graph.one("CronJob").inputs))["GATES"])
    assert tts == {
        "name": "tts",
        "namespace": "voice",
        "deployment": "tts",
        "pool": "t4",
        "need_mib": 2048,
        "margin_mib": 256,
        "samples": 3,
        "idle_seconds": 300,
        "cool_down_seconds": 300,
        "demand": {"kind": "window", "between": "02:00-06:00", "time_zone": "Etc/UTC"},
    }
    assert always["demand"] == {"kind": "free_memory"}
    assert books["deployment"] == "books-worker"
    assert books["demand"] == {
        "kind": "http_json",
        "url": "http://books.voice.svc/status",
        "field": "pending",
        "at_least": 1,
    }
    assert (video["margin_mib"], video["samples"]) == (100, 5)
    assert video["demand"] == {
        "kind": "prometheus",
        "address": "http://prometheus:9090",
        "query": "sum(queue)",
        "at_least": 2,
    }


def test_its_runs_overlap_so_that_a_seat_that_waits_is_always_seen(graph: Graph) -> None:
    """The next run's pod is at work by then; and the alerts on runs have to bear with how long one lasts."""
    spec = graph.one("CronJob").inputs["spec"]
    slowest_start_seconds = 10
    run_seconds = int(environment(dict(graph.one("CronJob").inputs))["RUN_SECONDS"])
    deadline_seconds = spec["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("* * * * *", "Allow")
    assert 60 + slowest_start_seconds <= run_seconds + PROMPT_SECONDS <= deadline_seconds - 10
    assert 60 + deadline_seconds < SILENT_SECONDS
    assert 60 + deadline_seconds + 15 <= UNSEEN_SECONDS


@pytest.mark.parametrize(("interval", "reading", "most"), [(5, 5, 12), (10, 5, 6), (1, 15, 4), (15, 15, 4)])
def test_so_many_samples_a_run_is_sure_to_take_in_a_row(interval: int, reading: int, most: int) -> None:
    """W8: with more its gate would never act, and nobody would be told."""
    assert most_samples(interval_seconds=interval, reading_seconds=reading) == most
    slowest_start_seconds = 10
    assert (most - 1) * max(interval, reading) < GATE_RUN_SECONDS + PROMPT_SECONDS - slowest_start_seconds


def test_its_output_is_its_cron_job(graph: Graph) -> None:
    assert graph.outputs_of(graph.one("Gate")) == {"cronJob": "gpu-demand-gate"}
