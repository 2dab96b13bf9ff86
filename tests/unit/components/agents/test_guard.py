from dataclasses import replace

import pytest

from components.agents.guard import Guard, GuardArgs
from tests.support.engine import Graph
from tests.support.given import (
    CLUSTER,
    NODE_CODE,
    PROMETHEUS,
    SCRAPED,
    declared,
)
from tests.support.memory_pools import NODE_4

NODE_5 = replace(NODE_4, name="node-5", node_selector={"zone": "b"})


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Guard, "guard", GuardArgs(cluster=CLUSTER, code=NODE_CODE, pools=(NODE_4, NODE_5)))


def test_prometheus_alone_reaches_the_guards_of_all_pools(graph: Graph) -> None:
    scraped = declared(Guard, "guard", GuardArgs(cluster=SCRAPED, code=NODE_CODE, pools=(NODE_4, NODE_5)))
    spec = scraped.one("NetworkPolicy").inputs["spec"]
    assert spec["ingress"] == [{"from": [PROMETHEUS.peer], "ports": [{"protocol": "TCP", "port": 9402}]}]
    for workload in scraped.all("DaemonSet"):
        labels = workload.inputs["spec"]["template"]["metadata"]["labels"]
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()
        assert scraped.depends_on(workload, scraped.one("NetworkPolicy"))
    assert graph.one("NetworkPolicy").inputs["spec"]["ingress"] == []


def test_no_daemon_set_takes_the_pods_of_another_for_its_own(graph: Graph) -> None:
    specs = [workload.inputs["spec"] for workload in graph.all("DaemonSet")]
    for spec in specs:
        chosen = [
            s for s in specs if spec["selector"]["matchLabels"].items() <= s["template"]["metadata"]["labels"].items()
        ]
        assert chosen == [spec]
