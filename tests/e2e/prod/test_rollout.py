"""Tests the capacity that nodes advertise after an `up`, and the changes of the next `up`."""

from typing import Any

from tenancy import names
from tests.support.e2e import audit
from tests.support.e2e.agents import rollout_jobs, start, without_runs
from tests.support.e2e.rollout import (
    GPU_COUNT,
    GPUMEM,
    SYSTEM,
    Object,
    Rollout,
    changes,
    condition,
    job_pods,
    jobs,
    pods,
    register_anew,
)
from tests.support.waiting import eventually

T4_NODE = "/api/v1/nodes/k8s-node1"
TIER_2 = "/apis/scheduling.k8s.io/v1/priorityclasses/tier-2-gpu"
SOMEBODYS = "somebodys"
LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
PLAIN = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "plain"},
    "spec": {"containers": [{"name": "main", "image": "busybox:1.37.0"}]},
}


def advertise_job(prod: Rollout) -> str:
    (job,) = rollout_jobs(prod)
    assert condition(prod.get(jobs(SYSTEM, job)), "Complete")["status"] == "True"
    return job


def test_the_node_advertises_when_up_returns(prod: Rollout) -> None:
    assert is_whole(prod.get(T4_NODE))
    assert GPUMEM not in prod.capacity("k8s-node2")
    assert advertise_job(prod).startswith(names.RECONCILE)
    began = prod.get(LEDGER)["metadata"]["creationTimestamp"]
    told = prod.events("default", names.EVENT_ADVERTISED)
    advertised = {event["regarding"]["name"] for event in told if event["eventTime"][:19] >= began[:19]}
    assert advertised == {"k8s-node1", "node-4"}


def test_a_changed_budget_is_an_update_and_the_capacity_stays(prod: Rollout) -> None:
    answer = prod.create(pods("frigate"), PLAIN)
    assert answer.refusal is None, answer.refusal
    before, job = prod.get(LEDGER)["metadata"]["uid"], advertise_job(prod)
    priority = prod.get(TIER_2)["metadata"]["uid"]
    removals = len(prod.events("default", names.EVENT_REMOVED))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SOMEBODYS}}
    prod.cluster.api.create("/api/v1/namespaces", namespace)
    prod.workspace.change(changed_in_place)
    outcome = prod.gated_up()
    assert prod.get(LEDGER)["metadata"]["uid"] == before
    assert advertise_job(prod) != job
    assert changes(outcome)["replaced"] == 2  # Pulumi replaces two objects: the Job and the PriorityClass.
    after = prod.get(TIER_2)
    assert (after["value"], after["metadata"]["uid"] != priority) == (500000, True)
    assert len(prod.events("default", names.EVENT_REMOVED)) == removals
    quota = prod.get(f"/api/v1/namespaces/llama-swap/resourcequotas/{names.SEATS}")
    assert quota["spec"]["hard"] == {f"requests.{GPUMEM}": "5400", f"requests.{GPU_COUNT}": "1"}
    assert labels(prod, "frigate")[names.POD_SECURITY_ENFORCE] == "restricted"
    assert prod.get(pods("frigate", "plain"))["metadata"]["uid"] == answer.body["metadata"]["uid"]
    ours = {names.EXEMPT: names.EXEMPT_VALUE}
    assert labels(prod, SOMEBODYS) == ours | {names.LABEL_NAMESPACE: SOMEBODYS}
    prod.delete(pods("frigate", "plain"))


def changed_in_place(config: dict[str, Any]) -> None:
    config["residents"]["llama-swap"].update(gpumem_mib=5400)
    config["tenants"]["frigate"] = {"pod_security": "restricted"}
    config["admission"]["exempt_namespaces"] = [SOMEBODYS]
    config["priorities"]["tier-2-gpu"].update(value=500000)


def labels(prod: Rollout, namespace: str) -> Object:
    found: Object = prod.get(f"/api/v1/namespaces/{namespace}")["metadata"]["labels"]
    return found


def test_a_node_that_registers_again_while_a_run_is_active_is_whole_again_by_a_watch(prod: Rollout) -> None:
    with without_runs(prod, names.RECONCILE):
        run = start(prod, names.RECONCILE)
        pod = eventually(lambda: watching(prod, run), "the run watches the nodes")
        register_anew(prod, "k8s-node1")
        eventually(lambda: is_whole(prod.get(T4_NODE)), "the node is whole again", lambda: prod.capacity("k8s-node1"))
        said = eventually(lambda: told_it_wrote(prod, pod), "the run says that it wrote")
        assert "polls:" not in said  # Reconcile learned of the node by a watch.
        prod.delete(jobs(SYSTEM, run))


def watching(prod: Rollout, run: str) -> str | None:
    asked = audit.entries(prod.cluster, f"system:serviceaccount:{SYSTEM}:{names.RECONCILE}")
    watches = [each for each in asked if (each["verb"], each["objectRef"]["resource"]) == ("watch", "nodes")]
    ours = [pod["metadata"]["name"] for pod in job_pods(prod, SYSTEM, run)]
    return next((name for name in ours if any(_pod_of(each) == [name] for each in watches)), None)


def told_it_wrote(prod: Rollout, pod: str) -> str | None:
    said = str(prod.get(f"{pods(SYSTEM, pod)}/log")["message"])
    return said if '"message": "wrote"' in said else None


def _pod_of(entry: Object) -> Object:
    found: Object = entry["user"].get("extra", {}).get("authentication.kubernetes.io/pod-name", [])
    return found


def is_whole(node: Object) -> bool:
    maps = (node["status"]["capacity"], node["status"]["allocatable"])
    return all((held.get(GPUMEM), held.get(GPU_COUNT)) == ("14k", "14k") for held in maps)
