"""Kills a `destroy` of prod, and rolls prod out again. A second `destroy` keeps the namespaces of tenants.

This module runs after all other modules of its cluster.
"""

from typing import Any

from tenancy import names
from tests.support.e2e.agents import run_once, without_runs
from tests.support.e2e.interrupting import LEDGER, is_retiring, kill_amid
from tests.support.e2e.killed_rollouts import expect_one_state
from tests.support.e2e.remains import kept, left_behind
from tests.support.e2e.rollout import Rollout, await_running, job, submit
from tests.support.prod import raw
from tests.support.waiting import becomes

QUEUE_TENANTS = {"team-a", "team-b"}


def test_up_creates_again_what_a_killed_destroy_was_deleting(prod: Rollout) -> None:
    before = prod.get(LEDGER)["metadata"]["uid"]
    with without_runs(prod, names.RECONCILE):
        kill_amid(prod, "destroy", lambda: is_retiring(prod))
    run_once(prod, names.RECONCILE)
    assert " objects again that have changed since its last run\n" in prod.succeed("up")
    assert prod.get(LEDGER)["metadata"]["uid"] != before
    expect_one_state(prod)


def test_destroy_leaves_the_namespaces_of_tenants_but_those_that_may_go_though_a_job_holds_quota(prod: Rollout) -> None:
    """If `destroy` kept a Job's namespace, the Job would block the deletion of its queue."""
    await_running(prod, "team-a", submit(prod, "team-a", job("holds-quota", "team-a-gpu")))
    refused = prod.command("destroy")
    assert refused.code == 1
    assert "Kueue's queues go, and 1 Workload (team-a/job-holds-quota-" in refused.text
    prod.settle(let_the_queue_tenants_go)
    config_maps = "/api/v1/namespaces/immich/configmaps"
    before = prod.cluster.api.create(config_maps, {"metadata": {"name": "photos"}})["metadata"]["uid"]
    prod.destroy()
    becomes(lambda: left_behind(prod), set(), "all but the tenants' namespaces is gone")
    assert kept(prod) == set(raw()["tenants"]) - QUEUE_TENANTS
    assert prod.get(f"{config_maps}/photos")["metadata"]["uid"] == before
    assert prod.delete(f"{config_maps}/photos").refusal is None


def let_the_queue_tenants_go(config: dict[str, Any]) -> None:
    for tenant in QUEUE_TENANTS:
        config["tenants"][tenant]["delete"] = True
