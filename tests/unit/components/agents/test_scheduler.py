import json
from dataclasses import replace
from typing import Any

import pytest

from agents.extender import main as extender
from agents.extender import protocol
from components.agents.scheduler import Scheduler, SchedulerArgs, SchedulerSpec
from tests.support.engine import Graph
from tests.support.given import CLUSTER, CODE, LEDGER, PROMETHEUS, SCRAPED, declared, pod

ARGS = SchedulerArgs(
    spec=SchedulerSpec(image="mirror.example/kube-scheduler:v1.37.1"),
    cluster=CLUSTER,
    code=CODE,
    ledger=LEDGER,
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Scheduler, "scheduler", ARGS)


def deployment(graph: Graph) -> dict[str, Any]:
    return dict(graph.one("Deployment").inputs)


def containers(graph: Graph) -> dict[str, dict[str, Any]]:
    spec = pod(deployment(graph))
    return {each["name"]: each for each in spec["containers"]}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {e["name"]: e["value"] for e in container["env"] if "value" in e}


def configuration(graph: Graph) -> dict[str, Any]:
    (content,) = graph.one("ConfigMap").inputs["data"].values()
    return dict(json.loads(content))


def test_a_change_of_the_configuration_is_a_rollout(graph: Graph) -> None:
    (volume,) = (v for v in pod(deployment(graph))["volumes"] if v["name"] == "config")
    config_map = graph.one("ConfigMap").inputs
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    assert config_map["immutable"] is True
    other = replace(ARGS, ledger=replace(LEDGER, domain="other.com"))
    assert declared(Scheduler, "s", other).one("ConfigMap").inputs["metadata"]["name"] != config_map["metadata"]["name"]


def test_only_the_port_that_answers_questions_can_be_reached(graph: Graph) -> None:
    scraped = declared(Scheduler, "scheduler", replace(ARGS, cluster=SCRAPED)).one("NetworkPolicy").inputs["spec"]
    assert scraped["ingress"] == [{"from": [PROMETHEUS.peer], "ports": [{"protocol": "TCP", "port": 9402}]}]
    extender = containers(graph)["extender"]
    assert extender["ports"] == [{"name": "metrics", "containerPort": 9402}]
    assert environment(extender)["HTTP_PORT"] == "9402"


def test_the_scheduler_calls_the_extenders_verbs_on_the_port_where_it_listens(graph: Graph) -> None:
    (asked,) = configuration(graph)["extenders"]
    port = environment(containers(graph)["extender"])["VERBS_PORT"]
    assert asked["urlPrefix"] == f"http://{extender.LOOPBACK}:{port}"
    assert {asked[f"{verb}Verb"] for verb in ("filter", "preempt", "bind")} == {
        protocol.FILTER,
        protocol.PREEMPT,
        protocol.BIND,
    }
