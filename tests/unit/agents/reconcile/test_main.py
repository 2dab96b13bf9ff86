"""reconcile against a cluster over real TLS: what the nodes show when it is done."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.kube.ledger import LedgerError
from agents.reconcile.main import Reconciler, Settings
from tenancy.ledger import Ledger
from tenancy.names import EVENT_ADVERTISED, EVENT_REFUSED, EVENT_REMOVED, LABEL_GPU_MEMORY, RECONCILE
from tests.support.fake_cluster import DOMAIN, LABELS, NAMES, SYSTEM, T4, Fault, Served

FULL = ("14k", "1", "14k", "1")
MINUTE = datetime(2026, 11, 21, 4, 30, tzinfo=UTC)
NOTHING = (None, None, None, None)


def agent(
    served: Served, *, run_seconds: int = 0, dry_run: bool = False, pod_name: str = "gpumem-reconcile-1"
) -> Reconciler:
    settings = Settings(
        ledger_namespace=SYSTEM,
        pod_name=pod_name,
        dry_run=dry_run,
        interval_seconds=10,
        run_seconds=run_seconds,
    )
    clock = replace(served.time.clock(), now=lambda: MINUTE + timedelta(seconds=served.time.seconds))
    return Reconciler(settings=settings, api=served.api(), clock=clock, log=served.log())


def patches(served: Served) -> list[str]:
    return [url for method, url in served.cluster.requests if method == "PATCH"]


def test_a_node_of_the_pool_is_advertised_read_back_and_told_of(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    assert agent(served).run() == 0
    assert served.cluster.shown() == FULL
    assert patches(served) == ["/api/v1/nodes/k8s-node1/status"]
    assert [url for method, url in served.cluster.requests if url.startswith("/api/v1/nodes?")][1:] != []
    (event,) = served.cluster.events.values()
    assert event["reason"] == EVENT_ADVERTISED
    assert event["type"] == "Normal"
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "k8s-node1", "uid": "uid-k8s-node1"}
    assert event["metadata"]["namespace"] == "default"
    assert (event["reportingController"], event["reportingInstance"]) == (RECONCILE, "gpumem-reconcile-1")


def test_a_node_that_is_right_is_left_alone(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node(gpumem="14k", gpu_count="1")
    assert agent(served).run() == 0
    assert patches(served) == []
    assert served.cluster.events == {}


def test_a_ledger_that_nothing_would_retire_is_not_advertised(served: Served) -> None:
    """The stack was changed to leave reconcile out: this run outlives the ledger that it retired."""
    served.cluster.add_ledger(T4)
    served.cluster.objects[served.cluster.ledger_path]["metadata"]["finalizers"] = ["example.com/other"]
    served.cluster.add_node()
    assert agent(served).run() == 0
    assert served.cluster.shown() == NOTHING
    assert patches(served) == []


def test_other_capacity_is_kept(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    agent(served).run()
    assert served.cluster.nodes["k8s-node1"]["status"]["capacity"]["cpu"] == "8"


def test_a_concurrent_change_is_a_conflict_and_is_decided_again(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    others = iter([True])

    def somebody_writes_first() -> None:
        if next(others, False):
            node = served.cluster.nodes["k8s-node1"]
            node["metadata"]["resourceVersion"] = served.cluster.next_version()
            node["status"]["capacity"]["example.com/other"] = "3"

    served.cluster.before_patch = somebody_writes_first
    assert agent(served).run() == 0
    assert served.cluster.shown() == FULL
    assert served.cluster.nodes["k8s-node1"]["status"]["capacity"]["example.com/other"] == "3"
    assert len(patches(served)) == 2


def test_a_pod_bound_while_the_capacity_is_lowered_raises_it_again(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node(gpumem="16k", gpu_count="1")
    served.cluster.add_pod("first", "k8s-node1", "13k")
    late = iter([True])

    def scheduler_binds() -> None:
        if next(late, False):
            served.cluster.add_pod("late", "k8s-node1", "2k")

    served.cluster.before_patch = scheduler_binds
    assert agent(served).run() == 0
    assert served.cluster.shown()[0] == "15k"


def test_a_write_that_does_not_last_is_reported_by_a_run_that_is_alive(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.ignores_patches = True
    assert agent(served, run_seconds=50).run() == 0
    assert "k8s-node1: still differs after 4 writes" in served.lines()[-1]["message"]
    assert served.lines()[-1]["level"] == "error"


def test_missing_rights_end_the_run_with_the_servers_words(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    message = 'nodes "k8s-node1" is forbidden: User cannot patch resource "nodes/status"'
    served.cluster.faults = [Fault("PATCH", "/api/v1/nodes", 403, "Forbidden", message)]
    assert agent(served).run() == 1
    last = served.lines()[-1]["message"]
    assert "k8s-node1: PATCH /api/v1/nodes/k8s-node1/status: 403 Forbidden: nodes" in last
    assert served.time.slept == []


@pytest.mark.parametrize("run_seconds", [0, 50])
def test_a_patch_that_one_node_refuses_keeps_no_other_from_being_advertised(served: Served, run_seconds: int) -> None:
    served.cluster.add_ledger(replace(T4, nodes=3))
    for name in ("a", "b", "c"):
        served.cluster.add_node(name)
    served.cluster.faults = [Fault("PATCH", "/api/v1/nodes/b/", 422, "Invalid", "denied by a policy", times=999)]
    assert agent(served, run_seconds=run_seconds).run() == 0
    assert [served.cluster.shown(name) for name in ("a", "b", "c")] == [FULL, NOTHING, FULL]
    last = served.lines()[-1]
    assert last["level"] == "error"
    assert "b: PATCH /api/v1/nodes/b/status: 422 Invalid: denied by a policy" in last["message"]


def test_a_node_without_labels_does_not_hold_a_rollout_whose_pool_has_another(served: Served) -> None:
    served.cluster.add_ledger(replace(T4, nodes=2))
    served.cluster.add_node("bare", labels={"gpu": "t4"})
    served.cluster.add_node("sound")
    assert agent(served).run() == 0
    assert (served.cluster.shown("bare"), served.cluster.shown("sound")) == (NOTHING, FULL)
    assert served.time.slept == []
    assert "bare: the label nvidia.com/gpu.memory and nvidia.com/gpu.count is missing" in served.lines()[-1]["message"]


def test_a_pod_whose_request_cannot_be_read_is_its_nodes_alone(served: Served) -> None:
    served.cluster.add_ledger(replace(T4, nodes=2))
    served.cluster.add_node("a", gpumem="16k", gpu_count="1")
    served.cluster.add_node("b")
    served.cluster.add_pod("odd", "a", "x")
    assert agent(served).run() == 0
    assert (served.cluster.shown("a")[0], served.cluster.shown("b")) == ("16k", FULL)
    told = [line["message"] for line in served.lines() if line["level"] == "warning"]
    assert any(message.startswith("pod immich/odd: viktorbarzin.me/gpumem: ") for message in told)


def test_a_busy_server_delays_and_does_not_fail(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.faults = [Fault("PATCH", "/api/v1/nodes", 429, headers={"Retry-After": "2"})]
    assert agent(served).run() == 0
    assert served.cluster.shown() == FULL
    assert served.time.slept == [2.0]


def test_a_run_passes_every_interval_until_its_time_is_over(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    assert agent(served, run_seconds=50).run() == 0
    assert served.time.slept == [10.0] * 4


def test_a_run_that_starts_late_in_its_minute_ends_by_itself(served: Served) -> None:
    """12 s late, of 45 s it has 36."""
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.time.seconds = 12
    scheduled = int(MINUTE.timestamp()) // 60
    assert agent(served, run_seconds=45, pod_name=f"gpumem-reconcile-{scheduled}-x7k2p").run() == 0
    assert served.time.slept == [10.0] * 3


def test_a_node_that_lost_its_keys_is_whole_again_after_one_interval(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.time.meanwhile = served.cluster.add_node
    assert agent(served, run_seconds=20).run() == 0
    assert served.time.slept == [10.0]
    assert served.cluster.shown() == FULL


def test_a_pass_that_the_server_failed_is_made_good_by_the_next(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.faults = [Fault("GET", "/api/v1/nodes", 503, times=4)]
    assert agent(served, run_seconds=50).run() == 0
    assert served.cluster.shown() == FULL


def test_a_run_whose_last_pass_failed_is_no_heartbeat(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.faults = [Fault("GET", "/api/v1/nodes", 503, times=999)]
    assert agent(served, run_seconds=50).run() == 1


def test_the_job_waits_for_the_labels_of_a_new_node(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node(labels={"gpu": "t4"})

    def discover() -> None:
        if served.time.seconds >= 300:
            served.cluster.nodes["k8s-node1"]["metadata"]["labels"] = dict(LABELS)

    served.time.meanwhile = discover
    assert agent(served).run() == 0
    assert served.time.seconds == 300
    assert served.cluster.shown() == FULL


def test_the_job_fails_at_once_when_a_pool_has_no_node(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node(labels={"gpu": "l4"})
    assert agent(served).run() == 1
    assert served.lines()[-1]["message"] == "not up to date: pool t4: no node matches its node_selector"
    assert served.time.slept == []


def test_fewer_nodes_than_declared_are_told_of_and_accepted(served: Served) -> None:
    served.cluster.add_ledger(replace(T4, nodes=2))
    served.cluster.add_node()
    assert agent(served).run() == 0
    warnings = [line["message"] for line in served.lines() if line["level"] == "warning"]
    assert warnings == ["pool t4: 1 nodes match, pools.t4.nodes is 2"]


def test_devices_smaller_than_declared_are_refused_with_an_event_that_stands_once(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node(labels={**LABELS, LABEL_GPU_MEMORY: "8192"})
    assert agent(served, run_seconds=50).run() == 0
    assert served.cluster.shown() == NOTHING
    (event,) = served.cluster.events.values()
    assert event["reason"] == EVENT_REFUSED
    assert event["type"] == "Warning"
    assert "nvidia.com/gpu.memory shows 8192, 15360 declared" in event["note"]


def test_a_node_that_left_its_pool_loses_the_keys(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node("stays")
    served.cluster.add_node("left", labels={}, gpumem="14k", gpu_count="1")
    assert agent(served).run() == 0
    assert served.cluster.shown("left") == NOTHING
    assert served.cluster.shown("stays") == FULL
    assert EVENT_REMOVED in {event["reason"] for event in served.cluster.events.values()}


def test_a_ledger_that_goes_takes_the_capacity_off_every_node_and_then_may_go(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.delete_ledger()
    served.cluster.add_node(gpumem="14k", gpu_count="1")
    served.cluster.add_node("other", labels={}, gpumem="7k", gpu_count="1")
    assert agent(served, run_seconds=50).run() == 0
    assert served.cluster.shown() == NOTHING
    assert served.cluster.shown("other") == NOTHING
    assert served.cluster.ledger_path not in served.cluster.objects
    assert patches(served)[-1] == served.cluster.ledger_path


def test_the_finalizers_of_others_stay(served: Served) -> None:
    served.cluster.add_ledger(T4, finalizers=("example.com/theirs",))
    served.cluster.delete_ledger()
    served.cluster.add_node(gpumem="14k", gpu_count="1")
    assert agent(served, run_seconds=50).run() == 0
    assert served.cluster.objects[served.cluster.ledger_path]["metadata"]["finalizers"] == ["example.com/theirs"]


def test_the_finalizer_stays_while_a_node_keeps_its_capacity(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.delete_ledger()
    served.cluster.add_node(gpumem="14k", gpu_count="1")
    served.cluster.ignores_patches = True
    assert agent(served, run_seconds=50).run() == 0
    assert served.cluster.objects[served.cluster.ledger_path]["metadata"]["finalizers"] == [NAMES.capacity_finalizer]


def test_a_broken_ledger_cannot_hold_up_its_own_deletion(served: Served) -> None:
    served.cluster.add_ledger(text="{")
    served.cluster.delete_ledger()
    served.cluster.add_node(gpumem="14k", gpu_count="1")
    assert agent(served).run() == 0
    assert served.cluster.shown() == NOTHING
    assert served.cluster.ledger_path not in served.cluster.objects


def test_pods_that_run_on_a_retired_node_are_told_of(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.delete_ledger()
    served.cluster.add_node(gpumem="14k", gpu_count="1")
    served.cluster.add_pod("immich-ml", "k8s-node1", "3k")
    assert agent(served).run() == 0
    (event,) = served.cluster.events.values()
    assert "pods that request 3000 MiB run here" in event["note"]


def test_without_a_ledger_there_is_nothing_to_do(served: Served) -> None:
    served.cluster.add_node(gpumem="14k", gpu_count="1")
    assert agent(served).run() == 0
    assert served.cluster.shown() == FULL


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        (json.dumps({"domain": "x.y", "pools": [{"name": 3}]}), r"ledger\.pools\.0\.name: must be a string \(got 3\)"),
    ],
)
def test_a_broken_ledger_ends_the_run_and_leaves_the_nodes_alone(served: Served, text: str, problem: str) -> None:
    served.cluster.add_ledger(text=text)
    served.cluster.add_node(gpumem="9k", gpu_count="1")
    with pytest.raises(LedgerError, match=problem):
        agent(served).run()
    assert patches(served) == []


def test_a_ledger_of_a_later_version_is_advertised_and_what_was_left_out_is_logged_once(served: Served) -> None:
    later = Ledger(domain=DOMAIN, pools=(T4,)).to_data() | {"leases": []}
    served.cluster.add_ledger(text=json.dumps(later))
    served.cluster.add_node()
    assert agent(served, run_seconds=50).run() == 0
    assert served.cluster.shown() == FULL
    (told,) = [line["message"] for line in served.lines() if line["level"] == "warning"]
    assert told == (
        "ConfigMap gpu-tenancy-ledger: ledger.leases: not known to this version of the agents and left out; if that "
        "stays, an up was interrupted: run pulumi up again"
    )


def test_a_dry_run_says_what_it_would_write_and_writes_nothing(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    assert agent(served, dry_run=True).run() == 0
    assert {method for method, _ in served.cluster.requests} == {"GET"}
    (line,) = [line for line in served.lines() if line["message"] == "would write"]
    assert (line["node"], line["gpumem_mib"], line["gpu_count"]) == ("k8s-node1", 14000, 1)


def test_a_dry_run_leaves_the_finalizer_of_a_ledger_that_goes(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.delete_ledger()
    served.cluster.add_node(gpumem="14k", gpu_count="1")
    assert agent(served, dry_run=True).run() == 0
    assert {method for method, _ in served.cluster.requests} == {"GET"}


def test_an_event_that_cannot_be_written_does_not_stop_the_capacity(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.faults = [Fault("POST", "/apis/events.k8s.io", 403, "Forbidden", "no events", times=9)]
    assert agent(served).run() == 0
    assert served.cluster.shown() == FULL


def test_ended_pods_do_not_count(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node(gpumem="20k", gpu_count="1")
    served.cluster.add_pod("done", "k8s-node1", "20k", phase="Succeeded")
    assert agent(served).run() == 0
    assert served.cluster.shown()[0] == "14k"


def test_a_node_that_is_gone_when_it_is_written_is_no_error(served: Served) -> None:
    served.cluster.add_ledger(T4)
    served.cluster.add_node()
    served.cluster.add_node("leaving")
    served.cluster.before_patch = lambda: served.cluster.nodes.pop("leaving", None)  # type: ignore[assignment, return-value]
    assert agent(served).run() == 0
    assert served.cluster.shown() == FULL
