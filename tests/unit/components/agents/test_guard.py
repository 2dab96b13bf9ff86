from dataclasses import replace

import pytest

from components.agents.guard import Guard, GuardArgs
from tenancy.host_memory.oom import guarded_oom_score_adj
from tests.support.engine import Graph, names
from tests.support.given import (
    CLUSTER,
    NODE_4,
    NODE_CODE,
    NODES,
    PROMETHEUS,
    SCRAPED,
    container,
    declared,
    environment,
    pod,
    rights,
)

NODE_5 = replace(
    NODE_4,
    name="node-5",
    node_selector={"zone": "b"},
    disposable=(replace(NODE_4.disposable[0], request_mib=1024, resident_least_mib=2048, resident_most_mib=2048),),
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Guard, "guard", GuardArgs(cluster=CLUSTER, code=NODE_CODE, pools=(NODE_4, NODE_5)))


def test_each_pool_has_a_daemon_set_of_its_own_under_one_identity_among_the_node_agents(graph: Graph) -> None:
    assert names(graph.children(graph.one("Guard"))) == {
        *(f"guard-{what}" for what in ("identity", "network-policy", "node-4", "node-5")),
    }
    assert {(d.inputs["metadata"]["namespace"], d.inputs["metadata"]["name"]) for d in graph.all("DaemonSet")} == {
        (NODES, "memory-guard-node-4"),
        (NODES, "memory-guard-node-5"),
    }
    for workload in graph.all("DaemonSet"):
        assert pod(dict(workload.inputs))["serviceAccountName"] == "memory-guard"
        assert graph.depends_on(workload, graph.one("ServiceAccount"))


def test_prometheus_alone_reaches_the_guards_of_all_pools(graph: Graph) -> None:
    scraped = declared(Guard, "guard", GuardArgs(cluster=SCRAPED, code=NODE_CODE, pools=(NODE_4, NODE_5)))
    spec = scraped.one("NetworkPolicy").inputs["spec"]
    assert spec["ingress"] == [{"from": [PROMETHEUS.peer], "ports": [{"protocol": "TCP", "port": 9402}]}]
    for workload in scraped.all("DaemonSet"):
        labels = workload.inputs["spec"]["template"]["metadata"]["labels"]
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()
        assert scraped.depends_on(workload, scraped.one("NetworkPolicy"))
    assert graph.one("NetworkPolicy").inputs["spec"]["ingress"] == []  # nobody said where Prometheus is


def test_no_daemon_set_takes_the_pods_of_another_for_its_own(graph: Graph) -> None:
    specs = [workload.inputs["spec"] for workload in graph.all("DaemonSet")]
    for spec in specs:
        chosen = [
            s for s in specs if spec["selector"]["matchLabels"].items() <= s["template"]["metadata"]["labels"].items()
        ]
        assert chosen == [spec]


def test_it_runs_on_every_node_of_its_pool_whatever_the_taints_and_is_not_evicted(graph: Graph) -> None:
    spec = pod(dict(graph.one("DaemonSet", "guard-node-5").inputs))
    assert spec["nodeSelector"] == {"zone": "b"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["priorityClassName"] == "system-node-critical"


def test_it_knows_what_its_pool_is_proven_with(graph: Graph) -> None:
    """The pods' cgroup is the smallest of what may run out, and the value that follows is the one that is proven."""
    given = environment(dict(graph.one("DaemonSet", "guard-node-4").inputs))
    assert given["PROTECTED"] == "inference/critical,signoz/critical"
    total_mib, victim_adj = int(given["TOTAL_MIB"]), int(given["VICTIM_OOM_SCORE_ADJ"])
    assert (total_mib, victim_adj) == (61440 + 512, 1000)
    (llm, _) = NODE_4.workloads
    assert guarded_oom_score_adj(llm.limit_mib, total_mib, victim_adj) == NODE_4.oom_score_adj(llm)


def test_victims_that_request_something_lower_what_they_are_measured_by(graph: Graph) -> None:
    given = environment(dict(graph.one("DaemonSet", "guard-node-5").inputs))
    assert given["VICTIM_OOM_SCORE_ADJ"] == str(NODE_5.victim_adj(NODE_5.disposable[0])) == "984"


def test_it_has_two_capabilities_and_no_other_way_to_the_host_than_its_processes(graph: Graph) -> None:
    for workload in (dict(found.inputs) for found in graph.all("DaemonSet")):
        assert container(workload)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": False,
            "runAsUser": 0,
            "capabilities": {"drop": ["ALL"], "add": ["SYS_RESOURCE", "DAC_OVERRIDE"]},
        }
        assert pod(workload)["hostPID"] is True
        assert not {"hostNetwork", "hostIPC"} & pod(workload).keys()
        assert [volume for volume in pod(workload)["volumes"] if "hostPath" in volume] == []


def test_it_may_read_which_pods_there_are_and_tell_them_and_nothing_else(graph: Graph) -> None:
    assert rights(graph) == {
        ("*", "/pods", "list", ()),
        ("*", "/pods", "watch", ()),
        ("*", "events.k8s.io/events", "create", ()),
    }


def test_its_port_answers_the_probes(graph: Graph) -> None:
    for workload in (dict(found.inputs) for found in graph.all("DaemonSet")):
        assert container(workload)["ports"] == [{"name": "metrics", "containerPort": 9402}]
        assert environment(workload)["PORT"] == "9402"
        for probe in ("livenessProbe", "readinessProbe"):
            assert container(workload)[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}


def test_its_output_lists_its_daemon_sets(graph: Graph) -> None:
    assert graph.outputs_of(graph.one("Guard")) == {"daemonSets": ["memory-guard-node-4", "memory-guard-node-5"]}
