"""The first of prod on a cluster: an `up` that is killed at one moment and another, and what goes on from there."""

from typing import Any

from tests.e2e.prod.interrupting import advertise_jobs, is_creating, kill_amid
from tests.e2e.remains import left_behind
from tests.e2e.rollout import GPU_COUNT, GPUMEM, SYSTEM, Rollout, becomes, eventually
from toolchain.cluster.api import MERGE

INSTALLS = "/api/v1/namespaces/kueue-system/secrets?labelSelector=owner%3Dhelm%2Cstatus%3Dpending-install"
WEBHOOK_SERVICE = "/api/v1/namespaces/kueue-system/services/kueue-webhook-service"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def give_each(config: dict[str, Any], mib: int) -> None:
    for seat in config["residents"].values():
        seat.update(gpumem_mib=mib)


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
    stack.workspace.change(lambda config: give_each(config, 1000))
    stack.up()
    assert [quota["status"]["hard"] for quota in stack.items("/api/v1/namespaces/immich/resourcequotas")] == [
        {f"requests.{GPUMEM}": "2k", f"requests.{GPU_COUNT}": "2"}
    ]
    assert stack.capacity("k8s-node1")[GPUMEM] == "14k"
    stack.expect_no_changes()


def test_up_goes_back_to_what_was_before_an_up_that_ended_at_the_reconcile_job(stack: Rollout) -> None:
    """The Job of what was before is there still or is gone, and never in the way of its like."""
    (before,) = advertise_jobs(stack)
    name = before["metadata"]["name"]

    def makes_another() -> bool:
        others = [job for job in advertise_jobs(stack) if job["metadata"]["name"] != name]
        return bool(others) and is_creating(stack, "Job")

    stack.workspace.change(lambda config: give_each(config, 900))
    kill_amid(stack, "up", makes_another)
    stack.recover()
    stack.workspace.change(lambda config: give_each(config, 1000))
    stack.up()
    (after,) = advertise_jobs(stack)
    assert after["metadata"]["name"] == name
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    stack.expect_no_changes()


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
    becomes(lambda: stack.get(WEBHOOK_SERVICE)["spec"]["type"], "ExternalName", "calls of webhooks come to Kueue")
    eventually(lambda: api.get(f"{API_SERVICES}/{name}") is None, "the aggregated API is gone")
