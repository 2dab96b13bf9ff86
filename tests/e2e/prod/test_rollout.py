"""Prod from nothing to nothing on a real control plane: what each `pulumi up` changes, and that nothing is left."""

from datetime import UTC, datetime, timedelta

from tenancy import names
from tests.cluster.remains import left_behind
from tests.cluster.rollout import (
    GPU_COUNT,
    GPUMEM,
    SYSTEM,
    Object,
    Rollout,
    await_running,
    changes,
    condition,
    eventually,
    job,
    pods,
    register_anew,
    submit,
)

T4_NODE = "/api/v1/nodes/k8s-node1"
LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
JOBS = f"/apis/batch/v1/namespaces/{SYSTEM}/jobs"


def advertise_job(prod: Rollout) -> str:
    """The reconcile Job of the rollout, not one of the CronJob's."""
    (job,) = (job for job in prod.items(JOBS) if "ownerReferences" not in job["metadata"])
    assert condition(job, "Complete")["status"] == "True"
    return str(job["metadata"]["name"])


def test_the_node_advertises_when_up_returns(prod: Rollout) -> None:
    assert is_whole(prod.get(T4_NODE))
    assert GPUMEM not in prod.capacity("k8s-node2")
    assert advertise_job(prod).startswith(names.RECONCILE)
    began = prod.get(LEDGER)["metadata"]["creationTimestamp"]  # before it, other files' rollouts on the same cluster
    told = prod.events("default", names.EVENT_ADVERTISED)
    assert {event["regarding"]["name"] for event in told if event["eventTime"][:19] >= began[:19]} == {"k8s-node1"}


def test_a_second_up_changes_nothing(prod: Rollout) -> None:
    prod.up("--expect-no-changes")


def test_refresh_sees_no_drift(prod: Rollout) -> None:
    prod.refresh("--expect-no-changes")


def test_a_changed_budget_is_an_update_and_the_capacity_stays(prod: Rollout) -> None:
    before, job = prod.get(LEDGER)["metadata"]["uid"], advertise_job(prod)
    removals = len(prod.events("default", names.EVENT_REMOVED))  # of other files' rollouts: they share the cluster
    prod.workspace.change(lambda config: config["residents"]["llama-swap"].update(gpumem_mib=5500))
    outcome = prod.up()
    assert prod.get(LEDGER)["metadata"]["uid"] == before
    assert advertise_job(prod) != job
    assert changes(outcome)["replaced"] == 1
    assert len(prod.events("default", names.EVENT_REMOVED)) == removals
    quota = prod.get(f"/api/v1/namespaces/llama-swap/resourcequotas/{names.SEATS}")
    assert quota["spec"]["hard"] == {f"requests.{GPUMEM}": "5500"}


def test_a_changed_priority_is_a_new_class(prod: Rollout) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses/tier-2-gpu"
    before = prod.get(path)["metadata"]["uid"]
    prod.workspace.change(lambda config: config["priorities"]["tier-2-gpu"].update(value=500000))
    prod.up()
    after = prod.get(path)
    assert (after["value"], after["metadata"]["uid"] != before) == (500000, True)


def test_a_node_that_registers_again_while_a_run_is_active_is_whole_in_under_ten_seconds(prod: Rollout) -> None:
    """By the CronJob's own container under its own token."""
    pod = eventually(lambda: active(prod, names.RECONCILE, at_least=5, at_most=25), "a run of reconcile is active")
    register_anew(prod, "k8s-node1")
    whole = eventually(lambda: whole_node(prod), "the node is whole again")
    assert advertised_at(whole) - datetime.fromisoformat(whole["metadata"]["creationTimestamp"]) < timedelta(seconds=10)
    said = prod.get(f"{pods(SYSTEM, pod)}/log")["message"]
    assert '"message": "wrote"' in said
    assert "polls:" not in said  # it was told, and did not come by


def active(prod: Rollout, agent: str, *, at_least: int, at_most: int) -> str | None:
    """The pod of the agent whose container runs for that many seconds."""
    for pod in prod.items(f"{pods(SYSTEM)}?labelSelector={names.LABEL_NAME}%3D{agent}"):
        for container in pod["status"].get("containerStatuses", ()):
            if running := container["state"].get("running"):
                age = datetime.now(UTC) - datetime.fromisoformat(running["startedAt"])
                if timedelta(seconds=at_least) <= age <= timedelta(seconds=at_most):
                    return str(pod["metadata"]["name"])
    return None


def whole_node(prod: Rollout) -> Object | None:
    node = prod.get(T4_NODE)
    return node if is_whole(node) else None


def advertised_at(node: Object) -> datetime:
    """When, by the API server's clock, the keys were written that are there."""
    (written,) = (
        datetime.fromisoformat(entry["time"])
        for entry in node["metadata"]["managedFields"]
        if f"f:{GPUMEM}" in entry["fieldsV1"].get("f:status", {}).get("f:capacity", {})
    )
    return written


def is_whole(node: Object) -> bool:
    maps = (node["status"]["capacity"], node["status"]["allocatable"])
    return all((held.get(GPUMEM), held.get(GPU_COUNT)) == ("14k", "1") for held in maps)


def test_destroy_leaves_nothing_though_a_job_holds_quota(prod: Rollout) -> None:
    """Last: the module's own clean-up then finds nothing to do."""
    await_running(prod, "team-a", submit(prod, "team-a", job("holds-quota", "team-a-gpu")))
    prod.destroy()
    assert left_behind(prod) == set()
