"""Tests the limits on Jobs of queue tenants and on the pods of these Jobs, on a real API server with prod's
policies.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tenancy import names
from tenancy.names import GARBAGE_COLLECTOR, JOB_CONTROLLERS, service_account_user
from tests.support.e2e.admitted import (
    GPUMEM,
    GPUS,
    Pod,
    asks,
    container,
    create,
    create_queued,
    pod,
    put_into_force,
    queued,
)
from tests.support.e2e.server import ApiAnswer, ApiServer
from tests.support.e2e.tenant import TENANT, let_edit, may_write
from tests.support.prod import drop, put
from toolchain.cluster.api import MERGE

KUEUE = service_account_user("kueue-system", names.KUEUE_SERVICE_ACCOUNT)
QUEUED = "work of this namespace goes through its queue"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"


@pytest.fixture(scope="module")
def cluster(server: ApiServer) -> ApiServer:
    put_into_force(
        server, drop("scheduler"), put("residents train", {"tenant": "team-b", "pool": "t4", "gpumem_mib": 500})
    )
    may_write(server, KUEUE, ["jobs"], "batch")
    may_write(server, JOB_CONTROLLERS[1], ["pods"], "")
    for tenant in ("team-a", "team-b"):
        let_edit(server, tenant)
    return server


def job(limits: dict[str, str], name: str = "job", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [container(limits=limits)]}}
    labels = {names.KUEUE_QUEUE_LABEL: "team-a-gpu"}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}


def submit(server: ApiServer, manifest: dict[str, Any], where: str = "team-a") -> ApiAnswer:
    return server.request("POST", f"{JOBS.format(where)}?dryRun=All", manifest)


def change(server: ApiServer, spec: dict[str, Any], *, user: str = "admin", name: str = "job") -> str | None:
    path = f"{JOBS.format('team-a')}/{name}"
    return server.request("PATCH", path, {"spec": spec}, user=user, content_type=MERGE).refusal


@pytest.mark.parametrize(
    ("manifest", "where", "message"),
    [
        (job(GPUS), "team-a", f"{QUEUED}: give it the label {names.KUEUE_QUEUE_LABEL}"),
        (job(GPUS, suspend=False), "team-a", QUEUED),
        (job({GPUMEM: "500"}), "team-b", QUEUED),
        (job({}), "team-a", QUEUED),
        (job(GPUS, suspend=True), "team-a", None),  # Kueue's webhook suspends each new Job.
        (job(GPUS), "tts", None),
    ],
    ids=["not queued", "not suspended", "a seat", "no GPU", "queued", "another tenant"],
)
def test_every_job_of_a_queue_tenant_waits_for_its_queue(
    cluster: ApiServer, manifest: dict[str, Any], where: str, message: str | None
) -> None:
    refusal = submit(cluster, manifest, where).refusal
    assert refusal is None if message is None else message in (refusal or "")


@pytest.fixture
def waiting(cluster: ApiServer) -> Iterator[ApiServer]:
    with made(cluster, job(GPUS, suspend=True, parallelism=2)):
        yield cluster


@contextmanager
def made(server: ApiServer, manifest: dict[str, Any]) -> Iterator[None]:
    path = JOBS.format("team-a")
    assert server.request("POST", path, manifest).refusal is None
    yield
    name = f"{path}/{manifest['metadata']['name']}"
    assert server.request("DELETE", f"{name}?propagationPolicy=Background").refusal is None
    assert server.request("GET", name).code == 404


def test_only_kueue_starts_a_job_of_its_queue(waiting: ApiServer) -> None:
    assert "only Kueue starts it" in (change(waiting, {"suspend": False}) or "")
    assert change(waiting, {"parallelism": 3}) is None
    assert change(waiting, {"suspend": False}, user=KUEUE) is None


def test_a_job_that_runs_takes_no_more_than_its_queue_gave_it(waiting: ApiServer) -> None:
    assert change(waiting, {"suspend": False}, user=KUEUE) is None
    assert "its pods may only become fewer" in (change(waiting, {"parallelism": 3}) or "")
    assert change(waiting, {"parallelism": 1}) is None
    assert change(waiting, {"suspend": True}) is None
    assert "only Kueue starts it" in (change(waiting, {"suspend": False}) or "")


def running(server: ApiServer, name: str, manifest: Pod, where: str = "team-a") -> str:
    counted = {"batch.kubernetes.io/controller-uid": "1", names.KUEUE_POD_SET_LABEL: "main"}
    bound = queued({**manifest, "spec": {**manifest["spec"], "nodeName": "node"}})
    bound["metadata"] |= {"name": name, "labels": counted}
    assert create(server, where, bound, user=JOB_CONTROLLERS[0], dry_run=False).refusal is None
    return f"/api/v1/namespaces/{where}/pods/{name}"


def test_a_limited_priority_class_is_its_tenants_only(cluster: ApiServer) -> None:
    def of(priority: str) -> dict[str, Any]:
        made = job(GPUS, suspend=True)
        return {**made, "metadata": {**made["metadata"], "labels": {names.KUEUE_PRIORITY_LABEL: priority}}}

    theirs = "WorkloadPriorityClass gpu-urgent is for team-b: name another one"
    assert theirs in (submit(cluster, of("gpu-urgent")).refusal or "")
    assert submit(cluster, of("gpu-urgent"), "team-b").refusal is None
    assert submit(cluster, of("gpu-batch")).refusal is None
    path = f"{JOBS.format('team-a')}/job"
    cluster.create(JOBS.format("team-a"), of("gpu-batch"))
    assert theirs in (rewrite(cluster, path, {"labels": {names.KUEUE_PRIORITY_LABEL: "gpu-urgent"}}) or "")
    assert rewrite(cluster, path, {"labels": {"mine": "yes"}}) is None
    cluster.api.request("DELETE", f"{path}?propagationPolicy=Background")


def rewrite(server: ApiServer, path: str, metadata: dict[str, Any], *, user: str = TENANT) -> str | None:
    return server.request("PATCH", path, {"metadata": metadata}, user=user, content_type=MERGE).refusal


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "1", "controller": True}
KEEPER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "kube-root-ca.crt", "uid": "2"}
RELEASES: dict[str, dict[str, Any]] = {
    "no owner": {"ownerReferences": None},
    "an owner that does not control it": {"ownerReferences": [{**JOB, "controller": False}]},
    "another owner, for when the Job is gone": {"ownerReferences": [JOB, KEEPER]},
    "no label of its Job": {"labels": {"batch.kubernetes.io/controller-uid": None}},
    "the label of another Job": {"labels": {"batch.kubernetes.io/controller-uid": "2"}},
    "the label of an older Kubernetes": {"labels": {"controller-uid": "2"}},
    "no label of Kueue's": {"labels": {names.KUEUE_POD_SET_LABEL: None}},
    "another label of Kueue's": {"labels": {"kueue.x-k8s.io/managed": "true"}},
}


def test_a_running_pod_stays_its_jobs(cluster: ApiServer) -> None:
    path = running(cluster, "runs", asks(gpu="1"))
    for release, metadata in RELEASES.items():
        for user in (TENANT, "admin"):
            assert "this pod has GPUs from its queue" in (rewrite(cluster, path, metadata, user=user) or ""), release
    unseen = {"labels": {"team": "a"}, "annotations": {"note": "1"}, "finalizers": ["example.com/mine"]}
    assert rewrite(cluster, path, unseen) is None
    assert rewrite(cluster, path, {"finalizers": None}) is None


@pytest.mark.parametrize("account", [*JOB_CONTROLLERS, GARBAGE_COLLECTOR])
@pytest.mark.parametrize("release", ["no owner", "another owner, for when the Job is gone", "no label of its Job"])
def test_a_controller_may_release_and_delete_a_pod(cluster: ApiServer, account: str, release: str) -> None:
    path = running(cluster, "let-go", asks(gpu="1"))
    assert rewrite(cluster, path, RELEASES[release], user=account) is None
    assert cluster.request("DELETE", f"{path}?gracePeriodSeconds=0").refusal is None


@pytest.mark.parametrize(
    ("where", "manifest"), [("team-a", pod()), ("team-b", asks(mib="500"))], ids=["no GPU", "a seat"]
)
def test_a_pod_that_has_nothing_of_its_queue_may_be_let_go(cluster: ApiServer, where: str, manifest: Pod) -> None:
    path = running(cluster, "own", manifest, where)
    assert rewrite(cluster, path, RELEASES["no owner"] | RELEASES["no label of its Job"]) is None


def delete_job(server: ApiServer, name: str = "job", **options: Any) -> str | None:
    path = f"{JOBS.format('team-a')}{f'/{name}' if name else ''}?dryRun=All"
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], **options}
    return server.request("DELETE", path, body, user=TENANT).refusal


@pytest.mark.parametrize("options", [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}, {}])
@pytest.mark.parametrize("name", ["job", ""], ids=["by its name", "with all others"])
def test_a_job_goes_with_its_pods(waiting: ApiServer, options: dict[str, Any], name: str) -> None:
    assert "its pods would keep the GPUs" in (delete_job(waiting, name, **options) or "")


@pytest.mark.parametrize(
    "options", [{"propagationPolicy": "Background"}, {"propagationPolicy": "Foreground"}, {"orphanDependents": False}]
)
def test_a_job_may_be_deleted_with_its_pods(waiting: ApiServer, options: dict[str, Any]) -> None:
    assert delete_job(waiting, **options) is None


def orphaning(manifest: dict[str, Any]) -> dict[str, Any]:
    return {**manifest, "metadata": {**manifest["metadata"], "finalizers": ["orphan"]}}


def selecting(manifest: dict[str, Any]) -> dict[str, Any]:
    selected = {"manualSelector": True, "selector": {"matchLabels": {"known": "as"}}}
    template = {**manifest["spec"]["template"], "metadata": {"labels": {"known": "as"}}}
    return {**manifest, "spec": {**manifest["spec"], **selected, "template": template}}


def test_no_job_is_made_to_leave_its_pods(waiting: ApiServer) -> None:
    finalizer, select = "the finalizer orphan", "remove spec.manualSelector"
    assert finalizer in (submit(waiting, orphaning(job(GPUS, suspend=True))).refusal or "")
    assert select in (submit(waiting, selecting(job(GPUS, suspend=True))).refusal or "")
    assert submit(waiting, orphaning(selecting(job({}, name="plain"))), "tts").refusal is None
    path = f"{JOBS.format('team-a')}/job"
    assert finalizer in (rewrite(waiting, path, {"finalizers": ["orphan"]}) or "")
    assert rewrite(waiting, path, {"finalizers": ["example.com/mine"]}) is None
    assert rewrite(waiting, path, {"finalizers": None}, user=KUEUE) is None


GRACE, YEARS = "ends within 600 s", 2147483647


@pytest.mark.parametrize("seconds", [600, 601, YEARS])
def test_a_gpu_pod_without_a_seat_goes_soon(cluster: ApiServer, seconds: int) -> None:
    def is_long(answer: ApiAnswer) -> bool:
        return GRACE in (answer.refusal or "")

    slow = asks(gpu="1")
    slow["spec"]["terminationGracePeriodSeconds"] = seconds
    refused = seconds > 600
    assert is_long(create(cluster, "tts", slow)) is refused
    assert is_long(create_queued(cluster, "team-a", slow)) is refused
    for where, manifest in (("immich", asks(mib="3000")), ("team-b", asks(mib="500")), ("tts", pod())):
        manifest["spec"]["terminationGracePeriodSeconds"] = seconds
        assert create(cluster, where, manifest).refusal is None


@pytest.mark.parametrize("seconds", [None, 0, 600, 601, YEARS])
def test_nobody_deletes_it_later_than_that(cluster: ApiServer, seconds: int | None) -> None:
    options = {} if seconds is None else {"gracePeriodSeconds": seconds}

    def delete(path: str) -> str | None:
        return cluster.request("DELETE", path, {"dryRun": ["All"], **options}, user=TENANT).refusal

    def evict(path: str) -> str | None:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": path.rpartition("/")[2]}}
        body = {**eviction, "deleteOptions": {"dryRun": ["All"], **options}}
        return cluster.request("POST", f"{path}/eviction?dryRun=All", body, user=TENANT).refusal

    gpus, plain = running(cluster, "gpus", asks(gpu="1")), running(cluster, "plain", pod())
    seat = running(cluster, "seat", asks(mib="500"), "team-b")
    try:
        for refusal in (delete(gpus), delete(gpus.rpartition("/")[0]), evict(gpus)):
            assert (GRACE in (refusal or "")) is (seconds is not None and seconds > 600), refusal
        for own in (plain, seat):
            assert delete(own) is None
    finally:
        for path in (gpus, plain, seat):
            assert cluster.request("DELETE", f"{path}?gracePeriodSeconds=0").refusal is None
