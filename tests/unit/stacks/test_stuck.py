"""Tests how `up` and `destroy` find out that no agent can run, and how `destroy` removes the gpumem itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from agents.kube.errors import ApiError
from stacks.engine import EngineError
from stacks.stuck import PATIENCE_SECONDS, Retirement, Wait, why_none_runs
from tenancy import names
from tests.support.cluster_objects import Object, Objects

SYSTEM = "gpu-tenancy-system"
JOBS = f"/apis/batch/v1/namespaces/{SYSTEM}/jobs"
PODS, EVENTS, CONFIG_MAPS = (f"/api/v1/namespaces/{SYSTEM}/{kind}" for kind in ("pods", "events", "configmaps"))
KEYS = names.Names("example.com")


def job(**status: Any) -> Object:
    return {"metadata": {"name": "reconcile-1", "namespace": SYSTEM, "uid": "job"}, "status": status}


def scheduled_job() -> Object:
    owner = {"kind": "CronJob", "uid": "cron-job"}
    metadata = {"name": "reconcile-2", "namespace": SYSTEM, "uid": "scheduled", "ownerReferences": [owner]}
    return {"metadata": metadata, "status": {}}


def pod(uid: str = "pod", job: str = "job", **status: Any) -> Object:
    owner = [{"uid": job}]
    metadata = {"name": f"reconcile-1-{uid}", "namespace": SYSTEM, "uid": uid, "ownerReferences": owner}
    return {"metadata": metadata, "status": {"phase": "Pending", **status}}


def container(reason: str, message: str) -> Mapping[str, Any]:
    return {"containerStatuses": [{"state": {"waiting": {"reason": reason, "message": message}}}]}


def event(reason: str, message: str, *, at: str = "10", kind: str = "Warning") -> Object:
    return {"metadata": {}, "type": kind, "reason": reason, "message": message, "lastTimestamp": at}


def unscheduled(message: str) -> Mapping[str, Any]:
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]}


def why(*pods: Object, jobs: tuple[Object, ...] = (job(),), events: tuple[Object, ...] = ()) -> str | None:
    return why_none_runs(Objects({JOBS: [*jobs], PODS: [*pods], EVENTS: [*events]}), SYSTEM)


SCHEDULED = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
STARTING = {**SCHEDULED, **container("ContainerCreating", "")}
MOUNT = event("FailedMount", 'configmap "agents" not found', at="2026-11-26T15:00:02.000001Z")


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (pod(**container("ErrImagePull", "no such host")), "ErrImagePull: no such host"),
        (pod(**unscheduled("no nodes available")), "Unschedulable: no nodes available"),
        (pod(**unscheduled("1 node(s) had untolerated taint")), "Unschedulable: 1 node(s) had untolerated taint"),
    ],
)
def test_a_pod_that_cannot_start_is_named_with_its_own_reason(found: Object, told: str) -> None:
    assert why(found) == f"pod {SYSTEM}/reconcile-1-pod: {told}"


def test_a_job_that_gets_no_pod_is_named_with_the_quota() -> None:
    told = why(events=(event("FailedCreate", 'pods "reconcile-1-x" is forbidden: exceeded quota: none'),))
    assert told == (f'Job {SYSTEM}/reconcile-1: FailedCreate: pods "reconcile-1-x" is forbidden: exceeded quota: none')


def test_the_last_event_of_a_pod_on_a_node_is_its_reason() -> None:
    assert why(pod(**STARTING), events=(MOUNT,)) == (
        f'pod {SYSTEM}/reconcile-1-pod: FailedMount: configmap "agents" not found'
    )
    pulling = event("Pulling", "", at="2026-11-26T15:00:03Z", kind="Normal")
    assert why(pod(**STARTING), events=(pulling, MOUNT)) is None


@pytest.mark.parametrize(
    "pods",
    [
        (),
        (pod(),),
        (pod(**STARTING),),
        (pod("a", **container("ErrImagePull", "")), pod("b", phase="Running")),
        (pod("a", phase="Failed"), pod("b", **unscheduled(""))),
    ],
)
def test_an_agent_that_starts_or_has_run_is_not_stuck(pods: tuple[Object, ...]) -> None:
    assert why(*pods) is None


@dataclass
class World(Objects):
    patches: list[tuple[str, ...]] = field(default_factory=list)
    error: Exception | None = None

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        if isinstance(self.error, ApiError):
            raise self.error
        return super().items(path, **parameters)

    def patch(self, *what: str, patch: Object) -> None:
        if self.error:
            raise self.error
        self.patches.append((*what, str(patch)))


def stuck(*, deleting: bool = True, nodes: tuple[Object, ...] = ()) -> World:
    metadata = {"name": names.LEDGER, "finalizers": ["others/own", KEYS.capacity_finalizer]}
    ledger = {"metadata": metadata | ({"deletionTimestamp": "now"} if deleting else {})}
    pods = [pod(**unscheduled("no nodes available"))]
    return World({JOBS: [job()], PODS: pods, CONFIG_MAPS: [ledger], "/api/v1/nodes": [*nodes]})


@dataclass
class Hand:
    seconds: float = 0

    def __call__(self) -> float:
        return self.seconds


def test_a_reason_must_hold_for_the_whole_patience() -> None:
    now, world = Hand(), stuck()
    wait = Wait(world, SYSTEM, clock=now)
    asked = []
    for seconds in (0, PATIENCE_SECONDS - 1, PATIENCE_SECONDS, PATIENCE_SECONDS + 1):
        world.lists[PODS] = [pod(phase="Running")] if seconds == PATIENCE_SECONDS else stuck().lists[PODS]
        now.seconds = seconds
        asked.append(wait.is_vain())
    now.seconds += PATIENCE_SECONDS
    assert (asked, wait.why, wait.is_vain()) == ([False] * 4, "", True)
    assert wait.why == f"pod {SYSTEM}/reconcile-1-pod: Unschedulable: no nodes available"


def test_jobs_of_earlier_rollouts_and_an_api_server_that_does_not_answer_show_no_reason() -> None:
    now, world = Hand(), stuck()
    older, wait = Wait(world, SYSTEM, {"job"}, now), Wait(world, SYSTEM, (), now)
    assert not wait.is_vain()
    world.error = ApiError("GET jobs", None, "NoAnswer", "refused")
    now.seconds = PATIENCE_SECONDS
    assert (older.is_vain(), wait.is_vain()) == (False, False)


@pytest.mark.parametrize(
    ("status", "told"),
    [(unscheduled("old"), "pod gpu-tenancy-system/reconcile-1-pod: Unschedulable: new"), ({"phase": "Running"}, None)],
)
def test_a_pod_of_the_cron_job_is_no_reason_for_a_rollout_but_shows_that_an_agent_runs(
    status: Mapping[str, Any], told: str | None
) -> None:
    old = pod("old", "scheduled", **status)
    both = {JOBS: [scheduled_job(), job()], PODS: [old, pod(**unscheduled("new"))]}
    assert why_none_runs(Objects(both), SYSTEM, before=()) == told
    assert why_none_runs(Objects({JOBS: [scheduled_job()], PODS: [old]}), SYSTEM, before=()) is None


def test_a_pod_of_the_cron_job_is_a_reason_for_a_removal() -> None:
    old = pod("old", "scheduled", **unscheduled("old"))
    told = why_none_runs(Objects({JOBS: [scheduled_job()], PODS: [old]}), SYSTEM)
    assert told == f"pod {SYSTEM}/reconcile-1-old: Unschedulable: old"


def node(name: str, **capacity: str) -> Object:
    return {"metadata": {"name": name}, "status": {"capacity": {"cpu": "1"}, "allocatable": capacity}}


def retirement(world: World) -> Retirement:
    now = Hand()
    found = Retirement(world, Wait(world, SYSTEM, clock=now))
    assert not found.is_vain()
    now.seconds = PATIENCE_SECONDS
    return found


def test_a_removal_takes_the_gpumem_off_the_nodes_that_have_it_and_then_releases_the_ledger() -> None:
    world = stuck(nodes=(node("a", **{KEYS.gpumem: "1"}), node("b"), node("c", **{KEYS.gpu_count: "1"})))
    assert not retirement(world).is_vain()
    empty = {KEYS.gpumem: None, KEYS.gpu_count: None}
    assert world.patches == [
        ("node", "a", "c", "--subresource=status", str({"status": {"capacity": empty, "allocatable": empty}})),
        ("configmap", names.LEDGER, f"--namespace={SYSTEM}", str({"metadata": {"finalizers": ["others/own"]}})),
    ]


def test_a_removal_changes_nothing_before_pulumi_deletes_the_ledger() -> None:
    world = stuck(deleting=False, nodes=(node("a", **{KEYS.gpumem: "1"}),))
    assert not retirement(world).is_vain()
    assert world.patches == []


def test_a_removal_ends_if_the_operator_may_not_change_nodes() -> None:
    world = stuck(nodes=(node("a", **{KEYS.gpumem: "1"}),))
    world.error = EngineError("nodes is forbidden")
    found = retirement(world)
    assert found.is_vain()
    assert found.failure.endswith("its gpumem stays on the nodes: nodes is forbidden")


def test_a_removal_goes_on_if_an_agent_lets_the_ledger_go_meanwhile() -> None:
    class Racing(World):
        def patch(self, *what: str, patch: Object) -> None:
            self.lists[CONFIG_MAPS] = []
            raise EngineError('configmaps "gpu-tenancy-ledger" not found')

    assert not retirement(Racing(stuck().lists)).is_vain()


def test_a_removal_ends_if_the_ledger_cannot_be_released() -> None:
    world = stuck()
    world.error = EngineError("configmaps is forbidden")
    assert retirement(world).is_vain()
