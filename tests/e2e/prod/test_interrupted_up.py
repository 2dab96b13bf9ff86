"""Runs that are killed, and the runs after them: each test leaves the cluster as the next one wants it."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tenancy import names
from tests.cluster.faults.agents import run_once, without_runs
from tests.cluster.remains import left_behind
from tests.cluster.rollout import GPUMEM, SYSTEM, Object, Rollout, eventually
from tests.preview.cli import TOOLS, workspace
from toolchain.cluster.api import MERGE
from toolchain.cluster.cluster import HeldCluster

LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"
INSTALLS = "/api/v1/namespaces/kueue-system/secrets?labelSelector=owner%3Dhelm%2Cstatus%3Dpending-install"
WEBHOOK_SERVICE = "/api/v1/namespaces/kueue-system/services/kueue-webhook-service"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


@pytest.fixture(scope="module")
def stack(real_cluster: HeldCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    """Prod, of which nothing is there yet."""
    rollout = Rollout(real_cluster, workspace(tmp_path_factory.mktemp("interrupted")))
    rollout.init()
    yield rollout
    try:
        rollout.recover()
    finally:
        rollout.destroy()


def advertise_jobs(stack: Rollout) -> list[Object]:
    found = stack.items(f"/apis/batch/v1/namespaces/{SYSTEM}/jobs")
    return [job for job in found if "ownerReferences" not in job["metadata"]]


def is_retiring(stack: Rollout) -> bool:
    return "deletionTimestamp" in stack.get(LEDGER)["metadata"]


def is_creating(stack: Rollout, kind: str) -> bool:
    """Whether the state says so of an object of that kind."""
    state = stack.workspace.folder / "state" / ".pulumi" / "stacks" / "gpu-tenancy" / "prod.json"
    pending = json.loads(state.read_text())["checkpoint"]["latest"].get("pending_operations") or []
    return any(each["type"] == "creating" and each["resource"]["type"].endswith(f":{kind}") for each in pending)


def kill_amid(stack: Rollout, command: str, moment: Callable[[], object]) -> None:
    """Kills all processes of an `up` or `destroy` at that moment: what a machine that loses its power does. They stand
    still while it is looked whether the moment has come, so that it is not over at the kill."""
    log = stack.workspace.folder / f"killed-{command}.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [TOOLS / "bin" / "pulumi", command, "--yes", "--skip-preview", "--non-interactive", "--stack", "prod"],
            cwd=stack.workspace.project,
            env={**stack.workspace.env, "KUBECONFIG": str(stack.cluster.kubeconfig)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        try:
            eventually(
                lambda: process.poll() is not None or stands_still_at(process.pid, moment),
                f"{command} comes to where it is to be killed",
            )
        finally:
            signal_session(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, log.read_text()


def stands_still_at(session: int, moment: Callable[[], object]) -> bool:
    signal_session(session, signal.SIGSTOP)
    if moment():
        return True
    signal_session(session, signal.SIGCONT)
    return False


def signal_session(session: int, number: signal.Signals) -> None:
    """The CLI's plugins have process groups of their own."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                os.kill(int(stat.parent.name), number)


def test_destroy_leaves_nothing_after_an_up_that_was_killed_amid_kueues_install(stack: Rollout) -> None:
    kill_amid(stack, "up", lambda: stack.items(INSTALLS) and is_creating(stack, "Release"))
    said = stack.recover()
    assert "\n  Release kueue-system/kueue: half installed, so removed\n" in said
    assert said.endswith("\nprod: unlocked\n")
    stack.destroy()
    assert left_behind(stack) == set()


def test_up_goes_on_after_ups_that_were_killed_amid_the_quotas_and_while_the_reconcile_job_ran(stack: Rollout) -> None:
    """The budgets are others than those of the killed runs: an object under another field manager than the one that
    applied it would refuse the change as a conflict."""
    kill_amid(stack, "up", lambda: is_creating(stack, "ResourceQuota"))
    assert "creating ResourceQuota" in stack.recover()
    kill_amid(stack, "up", lambda: advertise_jobs(stack) and is_creating(stack, "Job"))
    (job,) = advertise_jobs(stack)
    assert f"creating Job {SYSTEM}/{job['metadata']['name']}\n" in stack.recover()
    stack.workspace.change(lambda config: [seat.update(gpumem_mib=1000) for seat in config["residents"].values()])
    stack.up()
    assert [quota["status"]["hard"] for quota in stack.items("/api/v1/namespaces/immich/resourcequotas")] == [
        {f"requests.{GPUMEM}": "2k"}
    ]
    assert stack.capacity("k8s-node1")[GPUMEM] == "14k"
    stack.up("--expect-no-changes")


def test_recovery_says_and_does_nothing_when_nothing_was_interrupted(stack: Rollout) -> None:
    assert stack.recover() == ""


def test_kueue_answers_again_after_its_release_put_its_services_back(stack: Rollout) -> None:
    """As an upgrade of the chart does. With a dead aggregated API, no namespace could be deleted."""
    api = stack.cluster.api
    name = "v1beta2.visibility.kueue.x-k8s.io"
    api.patch(WEBHOOK_SERVICE, {"spec": {"type": "ClusterIP", "externalName": None}}, MERGE)
    service = {"name": "kueue-visibility-server", "namespace": "kueue-system"}
    group, version = "visibility.kueue.x-k8s.io", "v1beta2"
    priorities = {"groupPriorityMinimum": 100, "versionPriority": 100}
    spec = {"group": group, "version": version, "service": service, "insecureSkipTLSVerify": True, **priorities}
    kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    api.create(API_SERVICES, {**kind, "metadata": {"name": name}, "spec": spec})
    eventually(lambda: stack.get(WEBHOOK_SERVICE)["spec"]["type"] == "ExternalName", "calls of webhooks come to Kueue")
    eventually(lambda: api.get(f"{API_SERVICES}/{name}") is None, "the aggregated API is gone")


def test_up_makes_anew_what_a_destroy_that_was_killed_had_asked_to_go(stack: Rollout) -> None:
    before = stack.get(LEDGER)["metadata"]["uid"]
    with without_runs(stack, names.RECONCILE):  # or the ledger might be gone before the kill
        kill_amid(stack, "destroy", lambda: is_retiring(stack))
    run_once(stack, names.RECONCILE)
    assert f"\n  ConfigMap {SYSTEM}/{names.LEDGER}: not there\n" in stack.recover()
    stack.up()
    assert stack.get(LEDGER)["metadata"]["uid"] != before
    stack.up("--expect-no-changes")
    stack.destroy()
    assert left_behind(stack) == set()
