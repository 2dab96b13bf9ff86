import json

import pytest

from agents.runtime.clock import PROMPT_SECONDS
from components.agents.gate import (
    Gate,
    GateArgs,
    GateSpec,
    HttpJsonDemand,
    OnDemandSpec,
    PrometheusDemand,
    WindowDemand,
)
from components.monitoring.rules.agents import UNSEEN_SECONDS
from tenancy.seconds import SILENT_SECONDS
from tests.support.engine import Graph
from tests.support.given import CLUSTER, CODE, NODES, declared, environment

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
        prometheus=PrometheusDemand(address="http://prometheus:9090", query="sum(queue)"),
    ),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return of(GateSpec())


def of(spec: GateSpec) -> Graph:
    args = GateArgs(spec=spec, cluster=CLUSTER, code=CODE, on_demand=ON_DEMAND)
    return declared(Gate, "gate", args)


def test_the_gates_are_served_by_name_those_without_a_demand_signal_last(graph: Graph) -> None:
    given = environment(dict(graph.one("CronJob").inputs))
    assert [gate["name"] for gate in json.loads(given["GATES"])] == ["books", "tts", "video", "always"]
    assert (given["EXPORTER_NAMESPACE"], given["EXPORTER_PORT"]) == (NODES, "9401")


def test_its_runs_overlap_so_that_a_seat_that_waits_is_always_seen(graph: Graph) -> None:
    """When a run of the gate ends, the next run has already begun."""
    spec = graph.one("CronJob").inputs["spec"]
    slowest_start_seconds = 10
    run_seconds = int(environment(dict(graph.one("CronJob").inputs))["RUN_SECONDS"])
    deadline_seconds = spec["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    assert (spec["schedule"], spec["concurrencyPolicy"]) == ("* * * * *", "Allow")
    assert 60 + slowest_start_seconds <= run_seconds + PROMPT_SECONDS <= deadline_seconds - 10
    assert 60 + deadline_seconds < SILENT_SECONDS
    assert 60 + deadline_seconds + 15 <= UNSEEN_SECONDS
