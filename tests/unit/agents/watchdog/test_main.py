"""Tests the watchdog with a fake API server and a fake exporter: which pods it evicts, and its reports."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from agents.runtime.errors import AgentError, StoppedError
from agents.watchdog import main as watchdog
from agents.watchdog.main import Settings
from tenancy import names
from tests.support.card import BEGIN, JOURNAL, NODE, Card
from tests.support.exporters import add_exporter
from tests.support.fake_cluster import NAMES, SYSTEM, T4, Fault, Served
from tests.support.in_memory_http import serving

SETTINGS = Settings(
    ledger_namespace=SYSTEM,
    exporter_namespace="nodes",
    exporter_port=0,
    dry_run=False,
    interval_seconds=5,
    run_seconds=12,
    pod_name="gpu-vram-watchdog-1",
    tenants=("immich", "team-a"),
    minimum_age_seconds=120,
    cool_down_seconds=600,
    grace_seconds=20,
    evictions_per_hour=6,
    least_free_mib=0,
)


EVICTION = "/api/v1/namespaces/immich/pods/immich-ml/eviction"
SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


def forbidden() -> Fault:
    return Fault("POST", EVICTION, 403, "Forbidden", "cannot create pods/eviction", times=99)


@pytest.fixture
def card(served: Served) -> Iterator[Card]:
    cluster = served.cluster
    cluster.add_ledger(T4)
    cluster.add_node()
    add_exporter(served, ip="127.0.0.1")
    found = Card(served)
    found.add("immich-ml", 10_700)
    found.add("frigate", 2_000, namespace="frigate", declared="2000")
    found.add("llama-swap", 2_000, namespace="llama-swap", declared="5000")
    with serving(found.script) as port:
        served.exporter_port = port
        yield found


def run(card: Card, **changes: Any) -> int:
    settings = replace(SETTINGS, exporter_port=card.served.exporter_port, **changes)
    return watchdog.run(settings, card.served.api(), card.clock(), card.served.log())


def test_a_runaway_is_evicted_five_seconds_after_it_was_seen_and_nobody_else(card: Card) -> None:
    assert run(card) == 0
    writes = [url for method, url in card.served.cluster.requests if method in ("PATCH", "POST")]
    assert writes[:2] == [JOURNAL, EVICTION], "it is written down before it is done"
    assert [card.gone(name) for name in ("immich-ml", "frigate", "llama-swap")] == [True, False, False]
    (event,) = card.events(names.EVENT_RECYCLED)
    assert event["regarding"]["uid"] == "uid-immich-ml"
    assert event["note"] == (
        "evicted because GPU 0 of k8s-node1 has 660 MiB free, its floor is 1536, and immich/immich-ml uses 10700 MiB "
        "of it, having declared 3000"
    )
    (line,) = (line for line in card.served.lines() if line["message"] == "evicted")
    assert (line["overshoot_mib"], line["samples"]) == (7700, 2)
    (entry,) = card.journal()
    assert entry == {
        "at": (BEGIN + timedelta(seconds=5)).isoformat(),
        "workload": "immich/ReplicaSet/immich-ml-rs",
        "pods": ["uid-immich-ml"],
        "node": NODE,
        "overruled": False,
    }


def test_a_pod_that_was_replaced_since_it_was_seen_is_not_evicted(card: Card) -> None:
    card.served.cluster.before_patch = lambda: card.served.cluster.pods[1]["metadata"].update(uid="another")
    run(card, run_seconds=7)
    assert not card.gone("immich-ml")
    assert card.events(names.EVENT_RECYCLED) == []
    assert card.journal() == [], "what was not done does not count"


def test_of_two_watchdogs_one_evicts(card: Card) -> None:
    """Another run wrote the journal after this run had read it."""
    other = {"at": (BEGIN + timedelta(seconds=5)).isoformat(), "workload": "x", "pods": ["uid-immich-ml"]}
    stored = card.served.cluster.objects[JOURNAL]

    def interfere() -> None:
        if not stored.get("data"):
            stored["data"] = {names.JOURNAL_KEY: json.dumps({"recycled": [other]})}
            stored["metadata"]["resourceVersion"] = card.served.cluster.next_version()

    card.served.cluster.before_patch = interfere
    assert run(card, run_seconds=25) == 0
    assert "another watchdog run has recycled; the next pass decides again" in [
        line["message"] for line in card.served.lines()
    ]
    assert not any("eviction" in url for url in card.calls("POST"))


def test_unarmed_it_says_what_it_would_do_once_and_writes_only_events(card: Card) -> None:
    assert run(card, dry_run=True, run_seconds=30) == 0
    (event,) = card.events(names.EVENT_WOULD_RECYCLE)
    assert event["note"].startswith("would be recycled if the watchdog was armed, because GPU 0 of k8s-node1 has 660")
    assert sum(line["message"] == "would recycle" for line in card.served.lines()) == 1
    assert card.calls("PATCH") == card.calls("DELETE") == []
    assert {url.rpartition("/")[2] for url in card.calls("POST")} == {"events"}


@pytest.mark.parametrize("several", [False, True])
def test_a_pod_whose_eviction_a_disruption_budget_refuses_is_deleted_and_the_event_and_the_journal_say_so(
    card: Card, several: bool
) -> None:
    card.served.cluster.held_by_budget |= {"immich-ml", "llama-swap"}
    card.served.cluster.faults = [Fault("POST", EVICTION, 500, "", SEVERAL, times=99)] if several else []
    assert run(card) == 0
    assert [name for name in card.mib if card.gone(name)] == ["immich-ml"]
    (body,) = (body for body in card.served.cluster.bodies if body and body.get("kind") == "DeleteOptions")
    assert (body["preconditions"], body["gracePeriodSeconds"]) == ({"uid": "uid-immich-ml"}, 20)
    (event,) = card.events(names.EVENT_RECYCLED)
    why = SEVERAL if several else "Cannot evict pod as it would violate a budget."
    assert event["note"].startswith(
        f"deleted, although a PodDisruptionBudget refused its eviction ({why}) because GPU 0 of k8s-node1 has 660 MiB"
    )
    assert [entry["overruled"] for entry in card.journal()] == [True]


def test_a_pod_that_may_neither_be_evicted_nor_deleted_is_reported(card: Card) -> None:
    card.served.cluster.held_by_budget.add("immich-ml")
    path = "/api/v1/namespaces/immich/pods/immich-ml"
    card.served.cluster.faults = [Fault("DELETE", path, 403, "Forbidden", "cannot delete pods", times=99)]
    assert run(card) == 0
    assert not card.gone("immich-ml")
    (event,) = card.events(names.EVENT_BLOCKED)
    assert "cannot delete pods" in event["note"]
    assert card.journal() == []


def test_a_refused_eviction_is_tried_once_a_run(card: Card) -> None:
    card.served.cluster.faults = [forbidden()]
    assert run(card, run_seconds=50) == 0
    assert not card.gone("immich-ml")
    assert card.calls("POST").count(EVICTION) == 1
    card.served.cluster.faults = []
    run(card)
    assert card.gone("immich-ml")


def add_a_second_offender(card: Card) -> None:
    card.mib |= {"immich-ml": 3_500, "llama-swap": 5_000}
    card.add("trainer", 2_500, namespace="team-a", declared="2000")
    card.add("emulator", 1_700, namespace="emulator", declared="")


def test_what_was_reserved_and_not_done_is_taken_back_however_the_run_ends(card: Card) -> None:
    add_a_second_offender(card)
    answer = card.served.cluster.answer

    def stop(method: str, url: str, body: Any) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        if url.endswith("/eviction"):
            raise StoppedError
        return answer(method, url, body)

    card.served.cluster.answer = stop  # type: ignore[method-assign]
    with pytest.raises(StoppedError):
        run(card)
    assert card.journal() == []


def test_a_journal_that_cannot_be_corrected_does_not_end_the_run(card: Card) -> None:
    """An entry of the journal is valid for one minute."""
    broken = Fault("PATCH", JOURNAL, 503, times=99)
    card.served.cluster.before_patch = lambda: card.served.cluster.faults.append(broken)
    card.served.cluster.faults = [forbidden()]
    assert run(card, run_seconds=7) == 0
    assert any("the journal lists acts that were not done" in line["message"] for line in card.served.lines())
    card.served.cluster.faults = []
    card.served.time.seconds += 60
    assert run(card) == 0
    assert card.gone("immich-ml")


@pytest.mark.parametrize(("own", "given"), [(None, 20), (5, 5), (3600, 20)])
def test_a_recycle_gives_no_more_grace_than_its_setting(card: Card, own: int | None, given: int) -> None:
    if own is not None:
        card.served.cluster.pods[1]["spec"]["terminationGracePeriodSeconds"] = own
    assert run(card) == 0
    (body,) = (body for body in card.served.cluster.bodies if body and body.get("kind") == "Eviction")
    assert body["deleteOptions"]["gracePeriodSeconds"] == given


def test_an_eviction_without_an_answer_may_have_been_done_and_stays_on_record(card: Card) -> None:
    card.served.cluster.faults = [Fault("POST", "/api/v1/namespaces/immich/pods", 0, times=99)]
    assert run(card, run_seconds=7) == 0
    assert len(card.journal()) == 1


def test_the_cap_is_refused_loudly(card: Card) -> None:
    at = (BEGIN - timedelta(minutes=50)).isoformat()
    later = {"device": "a field of a later version"}
    entries = [{"at": at, "workload": f"immich/Deployment/{index}", "pods": [], **later} for index in range(6)]
    content = json.dumps({"recycled": entries, **later})
    card.served.cluster.objects[JOURNAL]["data"] = {names.JOURNAL_KEY: content}
    assert run(card) == 0, "it ran; that it may not act is told"
    assert not card.gone("immich-ml")
    (event,) = card.events(names.EVENT_CAPPED)
    assert event["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": f"uid-{NODE}"}
    assert "the limit of 6 recycles an hour of immich protects its offenders" in event["note"]


def test_an_offender_whose_recycle_restores_too_little_stays_and_an_event_on_the_node_says_so_once(card: Card) -> None:
    card.mib |= {"immich-ml": 3_036, "llama-swap": 5_000}
    card.add("emulator", 3_904, namespace="android-emulator", declared="")
    assert run(card, run_seconds=45) == 0
    assert not any(map(card.gone, card.mib))
    (event,) = card.events(names.EVENT_TOO_LITTLE)
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Node", NODE)
    assert event["note"] == (
        "GPU 0 of k8s-node1 is 116 MiB short of memory, and nobody is recycled: immich/immich-ml would give back 36 "
        "MiB, which is too little; lower a budget or the floor, or end what uses the rest"
    )


def test_a_journal_that_cannot_be_read_is_no_reason_to_act(card: Card) -> None:
    content = '{"recycled": [{"at": "noon", "workload": "w", "pods": []}]}'
    card.served.cluster.objects[JOURNAL]["data"] = {names.JOURNAL_KEY: content}
    with pytest.raises(AgentError, match="to start over"):
        run(card)


def test_an_armed_watchdog_recycles_nobody_where_the_numbers_of_the_pool_are_assumed_and_reports_it(card: Card) -> None:
    card.served.cluster.add_ledger(replace(T4, assumed=True))
    assert run(card, run_seconds=45) == 0
    assert not any(map(card.gone, card.mib))
    assert card.journal() == []
    (event,) = card.events(names.EVENT_WOULD_RECYCLE)
    assert event["note"] == (
        "would be recycled if the numbers of pool t4 were not assumed, because GPU 0 of k8s-node1 has 660 MiB free, "
        "its floor is 1536, and immich/immich-ml uses 10700 MiB of it, having declared 3000"
    )


QUEUED = {
    "labels": {"kueue.x-k8s.io/podset": "main"},
    "annotations": {"kueue.x-k8s.io/workload": "job-train"},
    "ownerReferences": [{"kind": "Job", "name": "train", "uid": "job-1", "controller": True}],
}
WORKLOAD = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/job-train"


def add_queued_job(card: Card, owner_uid: str = "job-1", **metadata: Any) -> dict[str, Any]:
    card.served.cluster.add_ledger(T4, queue_tenants=("team-a",))
    card.mib["immich-ml"] = 3_000
    card.add("train-0", 7_700, namespace="team-a", declared="2000", **{**QUEUED, **metadata})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner_uid, "controller": True}
    own = {"name": "job-train", "uid": "wl-1", "resourceVersion": "5", "ownerReferences": [owner]}
    workload: dict[str, Any] = {"metadata": own, "spec": {"active": True}}
    card.served.cluster.objects[WORKLOAD] = workload
    return workload


def controlled_by(kind: str, version: str, name: str = "train", uid: str = "job-1") -> dict[str, Any]:
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    return {"ownerReferences": [reference]}


JOB, JOBSET = ("Job", "batch/v1"), ("JobSet", "jobset.x-k8s.io/v1alpha2")
JOB_PATH = "/apis/batch/v1/namespaces/team-a/jobs/train"
JOBSET_PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team-a/jobsets/train"
RAY_PATH = "/apis/ray.io/v1/namespaces/team-a/rayclusters/train"


# The owner of the Workload has the UID "top".
BELOW: dict[str, tuple[dict[str, Any], dict[str, dict[str, Any]]]] = {
    "a RayCluster or an MPIJob": (controlled_by("RayCluster", "ray.io/v1", uid="top"), {}),
    "a JobSet": (controlled_by(*JOB), {JOB_PATH: controlled_by(*JOBSET, uid="top")}),
    "a TrainJob": (
        controlled_by(*JOB),
        {
            JOB_PATH: controlled_by(*JOBSET, uid="job-1"),
            JOBSET_PATH: controlled_by("TrainJob", "trainer.kubeflow.org/v1alpha1", uid="top"),
        },
    ),
    "a RayJob": (
        controlled_by("RayCluster", "ray.io/v1"),
        {RAY_PATH: controlled_by("RayJob", "ray.io/v1", uid="top")},
    ),
    "a pod group or a LeaderWorkerSet": ({"ownerReferences": [], "uid": "top"}, {}),
}


@pytest.mark.parametrize("kind", BELOW)
def test_work_of_each_kind_is_deactivated(card: Card, kind: str) -> None:
    metadata, objects = BELOW[kind]
    workload = add_queued_job(card, owner_uid="top", **metadata)
    for path, found in objects.items():
        card.served.cluster.objects[path] = {"metadata": {**found, "uid": "job-1"}}
    assert run(card) == 0
    assert workload["spec"] == {"active": False}
    assert not card.gone("train-0")


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "of another JobSet": lambda job: job.update(controlled_by(*JOBSET, uid="another")),
    "of nobody": lambda job: job.update(ownerReferences=[]),
    "that replaced the pod's Job": lambda job: job.update(uid="new"),
    "with an unreadable owner": lambda job: job["ownerReferences"][0].update(uid=" "),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=FORGED)
def test_a_job_that_the_owner_of_the_workload_does_not_control_is_not_deactivated(
    card: Card, forge: Callable[[dict[str, Any]], object]
) -> None:
    workload = add_queued_job(card, owner_uid="top", **controlled_by(*JOB))
    job = {**controlled_by(*JOBSET, uid="top"), "uid": "job-1"}
    forge(job)
    card.served.cluster.objects[JOB_PATH] = {"metadata": job}
    assert run(card) == 0
    assert (workload["spec"], card.gone("train-0")) == ({"active": True}, True)


@pytest.mark.parametrize(
    ("kind", "version"), [JOB, ("Job", "batch/../v1"), ("Job", "x/v1"), ("Thing", "v1"), ("DaemonSet", "apps/v1")]
)
def test_a_controller_that_cannot_be_read_does_not_protect_its_pod(card: Card, kind: str, version: str) -> None:
    workload = add_queued_job(card, owner_uid="top", **controlled_by(kind, version))
    card.served.cluster.faults = [Fault("GET", JOB_PATH, 403, "Forbidden", "cannot get jobs", times=99)]
    assert run(card) == 0
    assert (workload["spec"], card.gone("train-0")) == ({"active": True}, True)


def test_a_pod_that_kueue_does_not_stop_after_the_deactivation_is_evicted(card: Card) -> None:
    workload = add_queued_job(card)
    assert run(card, run_seconds=45) == 0
    assert (workload["spec"], card.gone("train-0")) == ({"active": False}, False)
    assert run(card, run_seconds=45) == 0
    assert card.gone("train-0")


def test_the_workload_its_owner_and_each_pod_have_an_event(card: Card) -> None:
    add_queued_job(card)
    card.mib["train-0"] = 4_000
    card.add("train-1", 3_700, namespace="team-a", declared="2000", **QUEUED)
    run(card)
    events = card.events(names.EVENT_RECYCLED)
    kinds = [(event["regarding"]["kind"], event["regarding"]["uid"]) for event in events]
    assert kinds == [("Workload", "wl-1"), ("Job", "job-1"), ("Pod", "uid-train-0"), ("Pod", "uid-train-1")]
    (note,) = {event["note"] for event in events}
    assert note.startswith("Workload job-train was deactivated (spec.active false; true queues it again) because GPU 0")
    assert "team-a/train-0, team-a/train-1 uses 7700 MiB" in note


def test_a_pod_that_names_the_workload_of_another_is_evicted_beside_the_deactivated_job(card: Card) -> None:
    workload = add_queued_job(card)
    card.mib["train-0"] = 4_000
    forged = {**QUEUED, **controlled_by("ReplicationController", "v1", uid="rc-1")}
    card.add("a-forged", 3_700, namespace="team-a", declared="2000", **forged)
    run(card)
    assert workload["spec"] == {"active": False}
    assert [card.gone(name) for name in ("a-forged", "train-0")] == [True, False]


@pytest.mark.parametrize("forged", ["another job's", "none"])
def test_a_pod_that_names_a_workload_that_is_not_its_own_is_evicted(card: Card, forged: str) -> None:
    workload = add_queued_job(card, owner_uid="job-2")
    if forged == "none":
        del card.served.cluster.objects[WORKLOAD]
    run(card)
    assert workload["spec"] == {"active": True}
    assert card.gone("train-0")


def test_a_pod_outside_queue_tenants_that_poses_as_a_queued_jobs_is_evicted_like_all_others(card: Card) -> None:
    """Before the fix, the watchdog could not read the Workload (status 403), and evicted another pod."""
    add_queued_job(card)
    card.served.cluster.add_ledger(T4)
    card.mib["immich-ml"] = 3_400
    card.served.cluster.faults = [Fault("GET", WORKLOAD, 403, "Forbidden", "cannot get workloads", times=99)]
    assert run(card) == 0
    assert [name for name in card.mib if card.gone(name)] == ["train-0"]


def test_a_queued_job_that_cannot_be_deactivated_does_not_keep_the_others_from_being_recycled(card: Card) -> None:
    add_queued_job(card)
    card.mib |= {"immich-ml": 4_200, "train-0": 6_700}
    card.served.cluster.faults = [Fault("GET", WORKLOAD, 403, "Forbidden", "cannot get workloads", times=99)]
    assert run(card, run_seconds=45) == 0
    assert [name for name in card.mib if card.gone(name)] == ["immich-ml"]
    (event,) = card.events(names.EVENT_BLOCKED)
    assert event["regarding"]["name"] == "train-0"


def test_a_bare_pod_is_told_of_and_left_alone(card: Card) -> None:
    card.served.cluster.pods[1]["metadata"]["ownerReferences"] = []
    assert run(card) == 0
    (event,) = card.events(names.EVENT_SPARED)
    assert event["note"].endswith("and is left alone: no controller would recreate it")


def test_a_user_that_declared_nothing_is_told_of_once_though_nothing_is_short(card: Card) -> None:
    card.mib["immich-ml"] = 3_000
    card.add("emulator", 154, namespace="android-emulator", declared="")
    assert run(card, run_seconds=25) == 0
    (event,) = card.events(names.EVENT_UNDECLARED)
    assert event["note"] == f"uses GPU 0 of k8s-node1 and declares no {NAMES.gpumem}"
    assert len(card.calls("POST")) == 1


def test_what_began_with_the_last_pass_gets_one_more(card: Card) -> None:
    """A run of 8 s has passes at 0 s and 5 s."""
    card.mib["immich-ml"] = 3_000

    card.script.uses = lambda: [
        replace(use, mib=10_700) if use.pod == "immich-ml" and card.served.time.seconds else use for use in card.uses()
    ]
    run(card, run_seconds=8)
    assert card.gone("immich-ml")
    assert card.served.time.seconds == 10


FAULTS: dict[str, tuple[Callable[[Card], object], int, str]] = {
    "an exporter that fails": (lambda card: setattr(card.script, "status", 503), 0, "HTTP 503"),
    "a server whose clock is wrong": (lambda card: setattr(card, "ahead", timedelta(hours=1)), 1, "this node's are"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_telemetry_that_cannot_be_believed_is_no_reason_to_act_and_is_named(card: Card, fault: str) -> None:
    tamper, status, words = FAULTS[fault]
    tamper(card)
    assert run(card) == status, "a node's trouble is no reason to call the watchdog dead"
    assert not card.calls("PATCH")
    assert not any("eviction" in url for url in card.calls("POST"))
    assert any(words in str(line) for line in card.served.lines())


@pytest.mark.parametrize("slow", [("GET", "/api/v1/pods"), ("PATCH", JOURNAL)], ids=["pods", "journal"])
def test_a_sample_that_is_old_when_the_api_has_answered_is_not_acted_on(card: Card, slow: tuple[str, str]) -> None:
    answer = card.served.cluster.answer

    def answer_late(method: str, url: str, body: Any) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        if method == slow[0] and url.startswith(slow[1]):
            card.served.time.sleep(31)
        return answer(method, url, body)

    card.served.cluster.answer = answer_late  # type: ignore[method-assign]
    run(card)
    assert not any("eviction" in url for url in card.calls("POST"))
    assert card.journal() == []
    assert any("the API took so long" in str(line) for line in card.served.lines())
