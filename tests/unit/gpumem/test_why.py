"""Tests that `kubectl gpumem why` names every reason why a pod does not run."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gpumem import cluster
from gpumem.draw_why import why_text
from gpumem.evidence import TargetError, gather, target_of
from gpumem.nodes import reason_in_message
from gpumem.paper import Paper
from gpumem.reasons import FINE, REASONS
from gpumem.why import Answer, Why, why
from tenancy import names, policy_names
from tenancy.frameworks import FRAMEWORKS, GATES
from tenancy.ledger import LocalQueue, Seat
from tests.support.kubectl import (
    LEDGER_OF_PROD,
    NAMES,
    SYSTEM,
    FakeApi,
    add_exporter,
    api,
    device_slice,
    node,
    page,
    pod,
)
from tests.support.paths import ROOT

EVENTS = "/api/v1/namespaces/{}/events"
WORKLOADS = f"/apis/{names.KUEUE_API}"
DENIED = "pods \"x\" is forbidden: ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {}"


def ask(found: FakeApi, target: str = "ml", namespace: str = "immich") -> Why:
    seen = cluster.read(found, SYSTEM, lambda: namespace)
    return why(gather(found, seen, target_of(target, namespace), SYSTEM))


def one(found: FakeApi, target: str = "ml", namespace: str = "immich") -> Answer:
    (answer,) = ask(found, target, namespace).answers
    return answer


def with_pods(*pods: dict[str, Any], ready: bool = True, **fields: Any) -> FakeApi:
    found = api(pods, **fields)
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    scheduler = pod("scheduler", 0, SYSTEM, on="k8s-node2", status=status)
    scheduler["metadata"]["labels"] = {names.LABEL_NAME: names.SCHEDULER}
    found.lists[f"/api/v1/namespaces/{SYSTEM}/pods"] = [scheduler]
    return found


def event(about: str, reason: str, message: str, namespace: str = "immich", *, uid: str = "", at: str = "55:00") -> Any:
    kind, _, name = about.partition("/")
    return {
        "involvedObject": {"kind": kind, "name": name, "namespace": namespace, "uid": uid},
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-11-22T11:{at}Z",
        "metadata": {"namespace": namespace},
    }


def say(found: FakeApi, *events: Any, namespace: str = "immich") -> FakeApi:
    found.lists.setdefault(EVENTS.format(namespace), []).extend(events)
    return found


def deployment(found: FakeApi, name: str = "ml", namespace: str = "immich", replicas: int = 1) -> FakeApi:
    base = f"/apis/apps/v1/namespaces/{namespace}"
    owner = [{"uid": f"uid-{name}", "controller": True, "kind": "Deployment", "name": name}]
    made = {"metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"}, "spec": {"replicas": replicas}}
    found.objects[f"{base}/deployments/{name}"] = made
    found.lists[f"{base}/replicasets"] = [{"metadata": {"uid": f"rs-{name}", "ownerReferences": owner}}]
    return found


def cannot_create(message: str) -> FakeApi:
    return say(deployment(with_pods()), event("ReplicaSet/ml-1", "FailedCreate", message, uid="rs-ml"))


def scheduled(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    return {"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]}


def job(found: FakeApi, workload: dict[str, Any] | None = None, **fields: Any) -> FakeApi:
    found.objects["/apis/batch/v1/namespaces/team-a/jobs/train"] = {
        "metadata": {"name": "train", "namespace": "team-a", "uid": "uid-job"},
        "spec": {"suspend": True},
        **fields,
    }
    found.lists[f"{WORKLOADS}/namespaces/team-a/workloads"] = [workload] if workload else []
    return found


def workload(name: str = "job-train", uid: str = "uid-job", minute: int = 30, **fields: Any) -> dict[str, Any]:
    conditions = fields.pop("conditions", [("QuotaReserved", "False", "couldn't assign flavors: 1 more needed")])
    checks = fields.pop("checks", {})
    return {
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "creationTimestamp": f"2026-11-22T11:{minute}:00Z",
            "ownerReferences": [{"uid": uid, "controller": True}],
        },
        "spec": {"queueName": "gpu", "priority": 0, **fields},
        "status": {
            "conditions": [{"type": t, "status": s, "message": m} for t, s, m in conditions],
            "admissionChecks": [{"name": name, "state": state, "message": ""} for name, state in checks.items()],
        },
    }


def waits_for(state: str, message: str = "") -> dict[str, Any]:
    waiting = {"reason": state, "message": message}
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    status = {"name": "main", "state": {"waiting": waiting}, "lastState": last, "restartCount": 4}
    return {"phase": "Pending", "containerStatuses": [status]}


def full(*more: dict[str, Any], **fields: Any) -> FakeApi:
    return with_pods(pod("ml", 3000, **fields), pod("swap", 12000, "llama-swap", on="k8s-node1"), *more)


def in_use(free_mib: int, wanted_mib: int, namespace: str) -> FakeApi:
    found = with_pods(pod("ml", wanted_mib, namespace), pod("swap", 5000, "llama-swap", on="k8s-node1"))
    add_exporter(found, "k8s-node1", page("k8s-node1", free_mib, {"llama-swap/swap": 12000}))
    return found


def two_devices() -> FakeApi:
    held = [pod(f"p{n}", 10000, "llama-swap", on="k8s-node1", devices=(n,)) for n in (0, 1)]
    big = node("k8s-node1", mib=28000)
    return with_pods(pod("ml", 5000), *held, nodes=[big], slices=[device_slice("k8s-node1", 15360, 15360)])


def on_node(found_status: dict[str, Any]) -> FakeApi:
    return with_pods(pod("ml", 3000, on="k8s-node1", status=found_status))


def of_nodes(**fields: Any) -> FakeApi:
    return with_pods(pod("ml", 3000), nodes=[node("k8s-node1", **fields)])


def queueing(*ahead: dict[str, Any], **fields: Any) -> FakeApi:
    ledger = replace(LEDGER_OF_PROD, local_queues=(LocalQueue(name="gpu", tenant="team-a", queue="gpu-cq"),))
    mine = workload(**fields)
    found = job(with_pods(ledger=ledger), mine)
    found.lists[f"{WORKLOADS}/workloads"] = [mine, *ahead]
    return found


def dispatched(**status: Any) -> FakeApi:
    found = queueing(conditions=[("QuotaReserved", "True", "")])
    check = {"name": "multikueue-gpu-cq", "state": "Pending", "message": ""}
    for each in found.lists[f"{WORKLOADS}/namespaces/team-a/workloads"]:
        each["status"] |= {"admissionChecks": [check], **status}
    return found


FULL = scheduled(f"0/1 nodes are available: 1 Insufficient {NAMES.gpumem}. preemption: 0/1 nodes are available: 1 No.")
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
QUOTA = (
    'Error creating: pods "ml-1" is forbidden: exceeded quota: gpumem-seats, requested: '
    f"requests.{NAMES.gpumem}=3k, used: requests.{NAMES.gpumem}=4800, limited: requests.{NAMES.gpumem}=4800"
)
CPU_QUOTA = (
    'Error creating: pods "ml-1" is forbidden: exceeded quota: cpu, requested: limits.cpu=4, used: limits.cpu=4, '
    "limited: limits.cpu=4"
)
NO_CLAIM = '0/1 nodes are available: persistentvolumeclaim "data" not found. preemption: 0/1 nodes are available.'
OTHER_PORTS = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
NO_DEVICE = "nvidia-container-cli: device error: GPU-aaaa1111: unknown device"
OTHER_CPU = "0/1 nodes are available: 1 Insufficient cpu."


def terminating() -> FakeApi:
    found = pod("ml", 3000, on="k8s-node1")
    found["metadata"]["deletionTimestamp"] = "2026-11-22T12:00:30Z"
    return with_pods(found)


ML, JOB, DEPLOYMENT = ("ml", "immich"), ("job/train", "team-a"), ("deployment/ml", "immich")
# Each reason has a cluster, an argument of the command, and some words of the answer.
CASES: dict[str, tuple[Callable[[], FakeApi], tuple[str, str], str]] = {
    "runs": (lambda: with_pods(pod("ml", 3000, on="k8s-node1")), ML, "on k8s-node1, gpu 0"),
    "completed": (lambda: with_pods(pod("ml", 3000, on="k8s-node1", status={"phase": "Succeeded"})), ML, "0"),
    "terminating": (terminating, ML, "until 12:00:30 UTC"),
    "quota": (lambda: cannot_create(QUOTA), DEPLOYMENT, "exceeded quota: gpumem-seats, requested"),
    "admission": (
        lambda: cannot_create(DENIED.format(policy_names.GPU_BUDGET, policy_names.GPU_BUDGET, "it asks for no gpumem")),
        DEPLOYMENT,
        f"{policy_names.GPU_BUDGET}: it asks for no gpumem",
    ),
    "class": (
        lambda: cannot_create(
            DENIED.format(
                policy_names.GPU_BUDGET, policy_names.GPU_BUDGET, "priorityClassName tier-2-gpu is only for tts"
            )
        ),
        DEPLOYMENT,
        "priorityClassName tier-2-gpu is only for tts",
    ),
    "gate": (
        lambda: say(
            deployment(with_pods(), "tts", "tts", 0),
            event("Deployment/tts", names.EVENT_GATE_WAITS, "there is demand, but no room: 2048", "tts", uid="uid-tts"),
            namespace="tts",
        ),
        ("deploy/tts", "tts"),
        "there is demand, but no room: 2048 (5m ago)",
    ),
    "scaled": (lambda: deployment(with_pods(), replicas=0), ("deployments/ml", "immich"), "0 replicas"),
    "queue": (
        lambda: queueing(workload("a", "u1", 10), workload("b", "u2", 40), workload("c", "u3", 50, priority=9)),
        JOB,
        "ClusterQueue gpu-cq: 2 of 4 waiting are before it",
    ),
    "preempted": (
        lambda: queueing(conditions=[("Preempted", "True", "to accommodate a workload of gpu-urgent")]),
        JOB,
        "0 of 1 waiting are before it; to accommodate a workload",
    ),
    "elsewhere": (lambda: dispatched(clusterName="east"), JOB, "in worker cluster east"),
    "dispatch": (lambda: dispatched(nominatedClusterNames=["east", "west"]), JOB, "offered to east, west"),
    "check": (
        lambda: queueing(conditions=[("QuotaReserved", "True", "")], checks={"autoscaler": "Pending"}),
        JOB,
        "gpu-cq has reserved its quota; autoscaler is Pending",
    ),
    "deactivated": (
        lambda: queueing(active=False, conditions=[("Evicted", "True", "no nodes were found")]),
        JOB,
        "spec.active is false; no nodes were found",
    ),
    "unqueued": (lambda: job(with_pods()), JOB, "spec.suspend"),
    "uncreated": (lambda: deployment(with_pods()), DEPLOYMENT, "1 wanted, none is there"),
    "scheduling-gate": (lambda: full(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]), ML, "x-k8s.io/admission"),
    "scheduler": (lambda: with_pods(pod("ml", 3000), ready=False), ML, "1 pods of gpu-tenancy-scheduler"),
    "extender": (
        lambda: with_pods(pod("ml", 3000, status=scheduled("extender: no ledger has been read", "SchedulerError"))),
        ML,
        "no ledger has been read",
    ),
    "untried": (lambda: with_pods(pod("ml", 3000, status=FULL)), ML, "k8s-node1 has room by now"),
    "refused": (lambda: with_pods(pod("ml", 3000, status=scheduled(OTHER_PORTS))), ML, OTHER_PORTS),
    "missing": (
        lambda: with_pods(pod("ml", 3000, status=scheduled(NO_CLAIM))),
        ML,
        '"data" not found',
    ),
    "namespace-quota": (lambda: cannot_create(CPU_QUOTA), DEPLOYMENT, "exceeded quota: cpu"),
    "held": (
        lambda: in_use(2000, 3000, "immich"),
        ML,
        "its largest GPU has 464 MiB free, not 3000, as measured and less the floor; over their budgets there: "
        "llama-swap/swap by 7000 MiB",
    ),
    "measured": (lambda: in_use(2000, 3000, "tts"), ("ml", "tts"), "464 MiB free, not 3000, as measured"),
    "device": (two_devices, ML, "its largest GPU has 2200 MiB free, not 5000"),
    "node-sum": (full, ML, "2000 of its 14000 MiB are free, not 3000"),
    "too-large": (lambda: with_pods(pod("ml", 15000)), ML, "advertises 14000 MiB in all, not 15000"),
    "resources": (lambda: with_pods(pod("ml", 3000, status=scheduled(OTHER_CPU))), ML, OTHER_CPU),
    "capacity": (lambda: of_nodes(mib=0), ML, f"advertises no {NAMES.gpumem}"),
    "unusable": (lambda: with_pods(pod("ml", 3000), slices=[]), ML, "its devices are not published"),
    "not-ready": (lambda: of_nodes(ready="Unknown"), ML, "k8s-node1 is not ready"),
    "cordoned": (lambda: of_nodes(spec={"unschedulable": True}), ML, "k8s-node1 is cordoned"),
    "taint": (lambda: of_nodes(spec={"taints": [TAINT]}), ML, "has the taint dedicated=x:NoSchedule"),
    "selector": (lambda: with_pods(pod("ml", 3000, nodeSelector={"gpu": "a100"})), ML, "has not the label gpu=a100"),
    "image": (lambda: on_node(waits_for("ImagePullBackOff", "Back-off")), ML, "main: ImagePullBackOff"),
    "config": (lambda: on_node(waits_for("CreateContainerConfigError", "no secret")), ML, "no secret"),
    "device-error": (lambda: on_node(waits_for("RunContainerError", NO_DEVICE)), ML, NO_DEVICE),
    "rejected": (
        lambda: on_node({"phase": "Failed", "reason": "OutOfgpumem", "message": "Pod was rejected: Node didn't have"}),
        ML,
        "OutOfgpumem: Pod was rejected",
    ),
    "crash": (lambda: on_node(waits_for("CrashLoopBackOff")), ML, "last with exit code 137 (OOMKilled)"),
    "starting": (lambda: on_node({"phase": "Pending"}), ML, "on k8s-node1, gpu 0"),
    "device-lost": (
        lambda: say(
            with_pods(pod("ml", 3000, on="k8s-node1")),
            event("Pod/ml", names.EVENT_DEVICE_LOST, "k8s-node1 no longer has the device", uid="uid-immich-ml"),
        ),
        ML,
        "no longer has the device",
    ),
    "recycled": (
        lambda: say(with_pods(), event("Pod/ml", names.EVENT_RECYCLED, "evicted because GPU 0 has 100 MiB free")),
        ML,
        "evicted because GPU 0",
    ),
    "evicted": (
        lambda: say(with_pods(), event("Pod/ml", "Preempted", "Preempted by pod x on node k8s-node1")),
        ML,
        "Preempted by pod x",
    ),
    "failed": (lambda: on_node({"phase": "Failed", "message": "exit 1"}), ML, "exit 1"),
    "gone": (lambda: say(with_pods(), event("Pod/ml", "Killing", "Stopping container main")), ML, "Killing: Stopping"),
}


@pytest.mark.parametrize("reason", CASES)
def test_a_reason_is_reported_with_its_numbers(reason: str) -> None:
    made, target, words = CASES[reason]
    report = ask(made(), *target)
    (answer,) = report.answers
    assert answer.reason == reason, answer
    assert words in answer.text
    assert report.fine is (reason in FINE)
    assert answer.then == REASONS[reason].then
    assert REASONS[reason].title in why_text(report, Paper(200))


def test_what_a_reason_sends_people_to_is_in_the_run_book() -> None:
    runbook = (ROOT / "docs" / "operations.md").read_text()
    named = {name for each in REASONS.values() for name in re.findall(r"Gpu[A-Z]\w+", each.do)}
    assert {name for name in named if f"### {name}\n" not in runbook} == set()


def test_a_pod_with_two_devices_waits_for_the_second() -> None:
    pair = Seat(name="pair", tenant="immich", pool="t4", gpumem_mib=6000, devices_per_pod=2)
    ledger = replace(LEDGER_OF_PROD, seats=(*LEDGER_OF_PROD.seats, pair))
    mine, other = pod("ml", 12000, devices=(0, 1)), pod("other", 9000, "llama-swap", on="k8s-node1")
    shown = {"nodes": [node("k8s-node1", mib=28000)], "slices": [device_slice("k8s-node1", 15360, 15360)]}
    answer = one(with_pods(mine, other, ledger=ledger, **shown))
    assert answer.reason == "device"
    assert "asks for 12000 MiB on 2 devices" in answer.text
    assert "has 1 of 2 GPUs with 6000 MiB free" in answer.text


def test_of_several_nodes_the_nearest_says_why_and_each_is_listed() -> None:
    nodes = [node("k8s-node1", mib=0), node("k8s-node3", ready="False"), node("k8s-node4", spec={"taints": [TAINT]})]
    slices = [device_slice(each["metadata"]["name"], 15360) for each in nodes]
    answer = one(with_pods(pod("ml", 3000), nodes=nodes, slices=slices))
    assert answer.reason == "not-ready"
    assert [line.partition(":")[0] for line in answer.more] == ["k8s-node3", "k8s-node1", "k8s-node4"]


@pytest.mark.parametrize(
    ("toleration", "reason"),
    [
        ({"key": "dedicated", "value": "x", "effect": "NoSchedule"}, "untried"),
        ({"key": "dedicated", "operator": "Exists"}, "untried"),
        ({"operator": "Exists"}, "untried"),
        ({"key": "dedicated", "value": "y"}, "taint"),
        ({"key": "dedicated", "value": "x", "effect": "NoExecute"}, "taint"),
        ({"key": "other", "operator": "Exists"}, "taint"),
    ],
)
def test_a_toleration_counts_as_the_scheduler_reads_it(toleration: dict[str, str], reason: str) -> None:
    found = with_pods(
        pod("ml", 3000, status=FULL, tolerations=[toleration]), nodes=[node("k8s-node1", spec={"taints": [TAINT]})]
    )
    assert one(found).reason == reason


def test_a_node_that_takes_the_pod_once_absent_seats_get_their_memory_elsewhere_has_room() -> None:
    """Before the fix, `why` ended with a KeyError."""
    nodes, pods = ("k8s-node1", "k8s-node3"), (pod("there", 3000, on="k8s-node3"), pod("ml", 5000, status=FULL))
    found = with_pods(*pods, nodes=[*map(node, nodes)], slices=[device_slice(each, 12000) for each in nodes])
    answer = one(found)
    assert (answer.reason, answer.more[:2]) == ("untried", tuple(f"{each}: has room by now" for each in nodes))


def test_a_seat_that_is_held_back_says_what_the_extender_said_and_what_was_begun() -> None:
    note = "the ledger has room for this seat, but memory in use keeps it from loading"
    found = say(in_use(2000, 3000, "immich"), event("Pod/ml", names.EVENT_SEAT_HELD, note, uid="uid-immich-ml"))
    found.lists["/api/v1/events"] = [event("Deployment/tts", names.EVENT_GATE_CLOSED, "a seat needs its memory", "tts")]
    more = one(found).more
    assert f"{names.EVENT_SEAT_HELD} (5m ago): {note}" in more
    assert f"{names.EVENT_GATE_CLOSED} on tts/tts (5m ago): a seat needs its memory" in more


def test_a_container_that_has_just_crashed_is_no_pod_that_runs() -> None:
    ended = {"name": "main", "restartCount": 2, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
    answer = one(on_node({"phase": "Running", "containerStatuses": [ended]}))
    assert (answer.reason, answer.text) == (
        "crash",
        "container main: it was restarted 2 times, and ended last with exit code 3 (Error)",
    )


def test_by_whom_a_job_was_preempted_is_reported_once() -> None:
    by = "Preempted to accommodate a workload (UID: 1)"
    once = one(queueing(conditions=[("Preempted", "True", by), ("QuotaReserved", "False", by)]), "job/train", "team-a")
    assert (once.reason, once.more) == ("preempted", ())
    lacks = [("Preempted", "True", by), ("QuotaReserved", "False", "insufficient unused quota")]
    assert one(queueing(conditions=lacks), "job/train", "team-a").more == ("insufficient unused quota",)


def test_pods_that_wait_for_the_same_are_one_answer_and_come_before_those_that_run() -> None:
    pods = [pod(f"ml-{n}", 3000) for n in (1, 2)] + [pod("ml-0", 3000, on="k8s-node1")]
    for each in pods:
        each["metadata"]["ownerReferences"] = [{"uid": "rs-ml", "controller": True, "kind": "ReplicaSet", "name": "x"}]
    report = ask(deployment(with_pods(*pods, pod("swap", 9000, "llama-swap", on="k8s-node1"))), "deployment/ml")
    assert [(each.about, each.reason) for each in report.answers] == [
        ("pod immich/ml-1", "node-sum"),
        ("pod immich/ml-0", "runs"),
    ]
    assert not report.fine


def test_a_refusal_from_before_the_pod_was_made_is_over() -> None:
    made = pod("ml-1", 3000, on="k8s-node1")
    made["metadata"]["ownerReferences"] = [{"uid": "rs-ml", "controller": True, "kind": "ReplicaSet", "name": "x"}]
    found = say(deployment(with_pods(made)), event("ReplicaSet/ml-1", "FailedCreate", QUOTA, uid="rs-ml", at="40:00"))
    assert one(found, "deployment/ml").reason == "runs"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (f"0/2 nodes are available: 2 Insufficient {NAMES.gpumem}.", "node-sum"),
        ("0/2 nodes are available: 1 its largest GPU has 4000 MiB free, not 5000, 1 Insufficient cpu.", "device"),
        ("0/1: its largest GPU has 464 MiB free, not 3000, as measured and less the floor", "measured"),
        ("...as measured and less the floor; the seat is held back for at most 60 s", "held"),
        ("0/1: its largest GPU has 14000 MiB to share, not 15000", "too-large"),
        ("0/1 nodes are available: 1 Insufficient cpu.", "resources"),
        ("0/1 nodes are available: 1 node(s) had untolerated taint(s).", "taint"),
        ("0/1 nodes are available: 1 node(s) were unschedulable.", "cordoned"),
        ("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", "selector"),
        ("0/3 nodes are available: 1 node(s) had volume node affinity conflict, 2 Insufficient cpu.", "refused"),
        (NO_CLAIM, "missing"),
        ("something new", "refused"),
    ],
)
def test_without_a_sight_of_the_others_the_schedulers_message_is_what_there_is(message: str, reason: str) -> None:
    assert reason_in_message(message, NAMES.gpumem) == reason
    found = full(status=scheduled(message))
    found.refused |= {"/api/v1/pods", f"/api/v1/namespaces/{SYSTEM}/pods"}
    answer = one(found)
    assert (answer.reason, answer.text) == (reason, message)


@pytest.mark.parametrize("text", ["service/x", "deployment/", "/", ""])
def test_what_cannot_be_looked_up_is_one_sentence(text: str) -> None:
    with pytest.raises(TargetError, match="write a pod's name, or pod/NAME"):
        target_of(text, "immich")


def test_a_pod_without_an_object_and_without_events_may_be_a_typing_error() -> None:
    with pytest.raises(TargetError, match="no pod immich/mll, and no Event about it: check its name"):
        ask(with_pods(pod("ml", 3000)), "mll")


def test_the_events_of_a_predecessor_and_of_a_sibling_are_about_other_pods() -> None:
    """Before the fix, `why` said of both healthy pods that their device was lost, and to delete them."""
    lost = [
        event("Pod/ml", names.EVENT_DEVICE_LOST, "of the predecessor", uid="uid-before"),
        event("Pod/other", names.EVENT_DEVICE_LOST, "of a sibling", uid="uid-immich-other"),
    ]
    pods = [pod(name, 3000, on="k8s-node1") for name in ("ml", "other")]
    for each in pods:
        each["metadata"]["ownerReferences"] = [{"uid": "rs-ml", "controller": True, "kind": "ReplicaSet", "name": "x"}]
    found = say(deployment(with_pods(*pods)), *lost)
    assert one(found).reason == "runs"
    assert [each.reason for each in ask(found, "deployment/ml").answers] == ["device-lost", "runs"]


@pytest.mark.parametrize("reason", [names.EVENT_PLACED, names.EVENT_SEAT_OVERCROWDED])
def test_a_running_pod_has_its_device_for_the_reason_in_its_event(reason: str) -> None:
    note = "gets 3000 MiB of k8s-node1 device 0, where 6200 of 14000 MiB were free; there is no other device"
    running = on_node({"phase": "Running"})
    assert one(running).more == (), "after an hour, the Event is gone, and nobody guesses"
    assert one(say(running, event("Pod/ml", reason, note, uid="uid-immich-ml"))).more == (note,)


def test_a_workload_that_is_not_there_is_an_error() -> None:
    with pytest.raises(TargetError, match="there is no job team-a/train"):
        ask(with_pods(), "job/train", "team-a")


def test_a_pod_that_is_kept_by_a_finalizer_has_not_failed() -> None:
    found = pod("ml", 3000, on="k8s-node1")
    found["metadata"] |= {"deletionTimestamp": "2026-11-22T12:00:30Z", "finalizers": ["example.com/keeps"]}
    found["status"] = {"phase": "Failed"}
    (answer,) = ask(with_pods(found), "ml", "immich").answers
    assert answer.reason == "terminating"
    assert "finalizers keep it: example.com/keeps" in str(answer)


def custom(found: FakeApi, kind: str, held: dict[str, Any] | None) -> FakeApi:
    framework = next(each for each in FRAMEWORKS.values() if each.kind == kind)
    version = f"{framework.group}/v1beta7"
    found.objects[f"/apis/{framework.group}"] = {"preferredVersion": {"groupVersion": version}}
    made = {"metadata": {"name": "train", "namespace": "team-a", "uid": "uid-job"}, "spec": {}}
    found.objects[f"/apis/{version}/namespaces/team-a/{framework.resource}/train"] = made
    found.lists[f"{WORKLOADS}/namespaces/team-a/workloads"] = [held] if held else []
    return found


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (None, "unqueued"),
        (workload(queueName=""), "unqueued"),
        (workload(conditions=[("QuotaReserved", "True", "")]), "uncreated"),
        (workload(conditions=[("Finished", "True", "all done")]), "completed"),
    ],
)
def test_work_without_pods_has_the_state_of_its_workload(held: dict[str, Any] | None, reason: str) -> None:
    assert one(custom(with_pods(), "JobSet", held), "jobset/train", "team-a").reason == reason


def test_a_workload_with_a_message_of_multikueue_shows_the_message() -> None:
    found = dispatched()
    held = found.lists[f"{WORKLOADS}/namespaces/team-a/workloads"][0]
    held["status"]["admissionChecks"][0]["message"] = "Admitting remote lost"
    answer = one(found, *JOB)
    assert (answer.reason, answer.text, answer.more) == (
        "dispatch",
        "offered to no worker cluster",
        ("Admitting remote lost",),
    )
    held["status"]["admissionChecks"][0]["name"] = "autoscaler"
    assert one(found, *JOB).reason == "check"


@pytest.mark.parametrize("fields", [{"status": "x"}, {"spec": []}, {"status": {"conditions": [{"type": 1}]}}])
def test_an_unreadable_workload_is_a_line_and_the_others_are_counted(fields: dict[str, Any]) -> None:
    found = queueing({**workload("broken", "u1", 10), **fields}, workload("b", "u2", 20))
    report = ask(found, *JOB)
    assert "1 of 2 waiting are before it" in report.answers[0].text
    assert [line for line in report.unknown if line.startswith("Workload team-a/broken is not counted: ")]


def test_the_pods_of_a_job_set_are_found_by_their_label() -> None:
    made = pod("train-0", 3000, "team-a", on="k8s-node1")
    made["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": "train"}
    answer = one(custom(with_pods(made), "JobSet", workload()), "jobset/train", "team-a")
    assert (answer.about, answer.reason) == ("pod team-a/train-0", "runs")


def test_a_pod_at_kueues_gate_waits_in_the_queue() -> None:
    found = with_pods(pod("ml", 3000, "team-a", schedulingGates=[{"name": GATES[0]}]))
    found.lists[f"{WORKLOADS}/namespaces/team-a/workloads"] = [workload(uid="uid-team-a-ml")]
    assert one(found, "ml", "team-a").reason == "queue"


def test_a_tenants_text_cannot_control_the_terminal() -> None:
    gone = say(with_pods(), event("Pod/ml", "Evicted", "low\x1b[2J\non \u202ememory"))
    text = why_text(ask(gone), Paper())
    assert "Evicted: low\\x1b[2J on \\u202ememory" in text


def test_the_first_workloads_before_a_queued_one_are_named() -> None:
    before = [workload(f"old-{n}", f"u{n}", 10 + n) for n in range(4)]
    urgent, later = workload("urgent", "u8", 50, priority=9), workload("later", "u9", 40)
    report = ask(queueing(*before, urgent, later), *JOB)
    ahead = report.answers[0].ahead
    assert ahead is not None
    assert ahead.total == 5
    assert [(row.namespace, row.name, row.priority, row.age) for row in ahead.first] == [
        ("team-a", "urgent", 9, "10m"),
        ("team-a", "old-0", 0, "50m"),
        ("team-a", "old-1", 0, "49m"),
    ]
    text = why_text(report, Paper())
    assert "  - before it: team-a/urgent, priority 9, 10m old\n" in text
    assert "  - before it: team-a/old-1, priority 0, 49m old\n  - and 2 more\n" in text


BY_A_PLUGIN = (
    "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 {}. preemption: 0/2 nodes are"
)


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        ("Insufficient cpu", "resources"),
        ("node(s) had volume node affinity conflict", "refused"),
        ("node(s) a reason of a later Kubernetes", "refused"),
        (f"Insufficient {NAMES.gpumem}", "untried"),
        ("node(s) had untolerated taint {a: }", "untried"),
    ],
)
def test_what_a_plugin_says_counts_where_nothing_of_ours_stands_in_the_way(plugin: str, reason: str) -> None:
    assert one(with_pods(pod("ml", 3000, status=scheduled(BY_A_PLUGIN.format(plugin))))).reason == reason


@pytest.mark.parametrize(
    ("operator", "key", "values"),
    [
        ("In", "gpu", ["a100"]),
        ("NotIn", "gpu", ["t4"]),
        ("Exists", "zone", []),
        ("DoesNotExist", "gpu", []),
        ("Gt", "gpu", ["1"]),
    ],
)
def test_an_affinity_that_no_node_has_is_named(operator: str, key: str, values: list[str]) -> None:
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    message = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    assert one(with_pods(pod("ml", 3000, status=scheduled(message), affinity=affinity))).reason == "selector"


@pytest.mark.parametrize(("created", "reason"), [("11:59:40", "untried"), ("11:40:00", "scheduler")])
def test_a_pod_that_no_scheduler_has_tried_for_a_while_has_none(created: str, reason: str) -> None:
    made = pod("ml", 3000, schedulerName="other")
    made["metadata"]["creationTimestamp"] = f"2026-11-22T{created}Z"
    assert one(with_pods(made)).reason == reason


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('error looking up service account immich/ml: serviceaccount "ml" not found', "missing"),
        ("no PriorityClass with name high was found", "class"),
    ],
)
def test_what_a_pod_needs_before_it_can_be_created_is_named(message: str, reason: str) -> None:
    assert one(cannot_create(f'pods "ml-1" is forbidden: {message}'), "deployment/ml").reason == reason


def test_a_device_that_the_runtime_does_not_find_by_cdi_is_a_device_error() -> None:
    told = waits_for(
        "CreateContainerError", "CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=GPU-a"
    )
    assert one(on_node(told)).reason == "device-error"


def test_a_waiting_pod_is_told_who_has_the_memory_and_since_when() -> None:
    answer = one(full(pod("old", 500, on="k8s-node1")))
    assert [(row.namespace, row.name, row.mib, row.age) for row in answer.held_by] == [
        ("llama-swap", "swap", 12000, "10m"),
        ("immich", "old", 500, "10m"),
    ]
    assert "llama-swap/swap has 12000 MiB for 10m" in why_text(ask(full()), Paper())


def test_a_pod_that_no_node_may_take_is_told_no_holder() -> None:
    assert one(full(nodeSelector={"gpu": "a100"})).held_by == ()


def test_a_pod_that_waits_for_a_whole_device_is_told_who_has_one() -> None:
    waits = pod(
        "ml", limits={names.GPU: "1"}, status=scheduled(f"0/2 nodes are available: 2 Insufficient {names.GPU}.")
    )
    found = with_pods(waits, pod("train", namespace="team-a", on="k8s-node2", limits={names.GPU: "1"}))
    assert [(row.namespace, row.name, row.mib) for row in one(found).held_by] == [("team-a", "train", None)]


def test_queued_work_is_told_which_work_has_the_quota_and_since_when() -> None:
    has, ended = (
        workload(name, name, conditions=[("QuotaReserved", "True", ""), *more])
        for name, more in (("has", []), ("ended", [("Finished", "True", "")]))
    )
    has["metadata"]["ownerReferences"] = [{"uid": "u", "kind": "Job", "name": "first"}]
    has["status"]["conditions"][0]["lastTransitionTime"] = "2026-11-22T09:00:00Z"
    answer = ask(queueing(has, ended, workload("waits", "waits")), *JOB).answers[0]
    assert [(row.namespace, row.name, row.mib, row.age) for row in answer.held_by] == [
        ("team-a", "job/first", None, "3h")
    ]
