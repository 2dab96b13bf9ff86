from dataclasses import replace
from typing import Any

import pytest

from agents.guard.follow import AdjustmentRule, PodWatcher, ProtectedPod
from agents.kube.pods import Pod
from tenancy.host_memory.oom import guarded_oom_score_adj
from tests.support.fake_cluster import Served
from tests.support.informing import HurriedTime, running
from tests.support.oom_killer import badness_pages
from tests.support.waiting import eventually

MEMORY_MIB, TOTAL_MIB = 62464, 62364
RULE = AdjustmentRule(members=frozenset({"inference/critical"}), allocatable_mib=TOTAL_MIB, memory_mib=MEMORY_MIB)
GUARDED = guarded_oom_score_adj(32768, TOTAL_MIB)


def limited(memory: str | None, **fields: Any) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {"memory": memory}} if memory else {}, **fields}


def pod(name: str = "llm", node: str = "node-4", priority: str = "critical", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"namespace": "inference", "name": name, "uid": f"uid-{name}", "annotations": {}},
        "spec": {"nodeName": node, "priorityClassName": priority, "containers": [limited("32Gi")], **spec},
        "status": {"phase": "Running"},
    }


def protected(name: str = "llm", adj: int = GUARDED) -> ProtectedPod:
    return ProtectedPod(namespace="inference", name=name, uid=f"uid-{name}", adj=adj)


@pytest.mark.parametrize(
    "other",
    [
        pod(priority="disposable"),
        {**pod(), "metadata": {**pod()["metadata"], "namespace": "agents"}},
        {**pod(), "spec": {"containers": []}},
    ],
    ids=["of another class", "of another tenant", "of no class"],
)
def test_any_other_pod_is_not_protected(other: dict[str, Any]) -> None:
    assert RULE.protect(Pod(other)) is None


def test_a_pod_whose_limit_cannot_be_read_is_protected_as_one_without_and_reported_once(served: Served) -> None:
    odd = pod("odd", containers=[limited("much")])
    unlimited = RULE.protect(Pod(pod("odd", containers=[limited(None)])))
    assert unlimited is not None
    served.cluster.pods = [odd, pod()]
    follower = PodWatcher(api=served.api(), node="node-4", rule=RULE, clock=served.time.clock(), log=served.log())
    follower.informer.lists()
    follower.informer.lists()
    assert follower.last is not None
    assert follower.last["uid-odd"].adj == unlimited.adj
    assert follower.last["uid-llm"] == protected()
    (line,) = served.lines()
    assert line["message"].startswith("the pod inference/odd cannot be judged: pod inference/odd: its memory limit: ")


@pytest.mark.parametrize(
    ("memory", "rule", "adj"),
    [
        ("16Gi", RULE, guarded_oom_score_adj(16384, TOTAL_MIB)),
        (None, RULE, guarded_oom_score_adj(MEMORY_MIB, TOTAL_MIB)),
        ("100Gi", RULE, guarded_oom_score_adj(MEMORY_MIB, TOTAL_MIB)),
        ("32Gi", replace(RULE, victim_request_mib=640), GUARDED - 10),
        ("32Gi", replace(RULE, swap_mib=4096), guarded_oom_score_adj(32768 + 4096, TOTAL_MIB)),
    ],
    ids=["by its limit", "without a limit", "limit above all memory", "victim that requests memory", "swap"],
)
def test_a_pod_scores_below_a_victim_even_when_it_takes_all_it_may(
    memory: str | None, rule: AdjustmentRule, adj: int
) -> None:
    assert rule.protect(Pod(pod(containers=[limited(memory)]))) == protected(adj=adj)


SIDECAR = limited("1Gi", restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "mib"),
    [
        ({"containers": [limited("3Gi"), limited("1Gi")]}, 4096),
        ({"containers": [limited("3Gi")], "initContainers": [SIDECAR]}, 4096),
        ({"containers": [limited("3Gi")], "initContainers": [limited("8Gi")]}, 8192),
        ({"containers": [limited("3Gi")], "initContainers": [SIDECAR, limited("8Gi")]}, 9216),
        ({"containers": [limited("3Gi"), limited(None)]}, None),
        ({"containers": [limited("3Gi")], "initContainers": [limited(None)]}, None),
        ({"containers": [limited(None)], "resources": {"limits": {"memory": "5Gi"}}}, 5120),
        ({"containers": [limited("1")]}, 1),
    ],
)
def test_a_pods_limit_is_what_its_containers_may_hold_at_once(spec: dict[str, Any], mib: int | None) -> None:
    assert Pod({"spec": spec}).memory_limit_mib() == mib


@pytest.fixture
def served(served: Served) -> Served:
    return offering(served, f"{TOTAL_MIB}Mi")


def offering(served: Served, memory: str) -> Served:
    served.cluster.add_node("node-4")
    served.cluster.nodes["node-4"]["status"]["allocatable"]["memory"] = memory
    return served


def test_a_node_smaller_than_its_pool_declares_is_measured_by_what_it_offers(served: Served) -> None:
    """Otherwise the kernel would kill inference at its limit before a microVM."""
    offering(served, f"{47_104 * 1024}Ki").cluster.pods += [pod()]
    following = follower(served)
    following.informer.lists()
    adj = guarded_oom_score_adj(32768, 47_104)
    assert following.last == {"uid-llm": protected(adj=adj)}
    assert badness_pages(32768, adj, 47_104) < badness_pages(0, 1000, 47_104) <= badness_pages(32768, GUARDED, 47_104)


def follower(served: Served, time: HurriedTime | None = None) -> PodWatcher:
    clock = (time or HurriedTime()).clock()
    return PodWatcher(api=served.api(), node="node-4", rule=RULE, clock=clock, log=served.log())


def test_the_nodes_pods_are_listed_and_others_are_not(served: Served) -> None:
    served.cluster.pods += [pod(), pod("elsewhere", node="node-5"), pod("vm", priority="disposable")]
    following = follower(served)
    assert following.last is None
    with running(following.informer, served.cluster):
        assert following.last == {"uid-llm": protected()}
    requests = [url for _, url in served.cluster.requests if url != "/api/v1/nodes/node-4"]
    assert all("fieldSelector=spec.nodeName%3Dnode-4" in url for url in requests)


def test_a_pod_that_comes_is_protected_and_one_that_goes_is_not_any_more(served: Served) -> None:
    served.cluster.pods += [pod()]
    following = follower(served)
    with running(following.informer, served.cluster):
        for kind, found in (("ADDED", pod("new")), ("DELETED", pod())):
            version = {"resourceVersion": served.cluster.next_version()}
            served.cluster.tell(kind, "/api/v1/pods", {**found, "metadata": {**found["metadata"], **version}})
        eventually(lambda: following.last == {"uid-new": protected("new")}, state=lambda: following.last)
