"""Kills a `destroy` of prod, and rolls prod out again. A second `destroy` keeps the namespaces.

This module runs after all other modules of its cluster.
"""

from tenancy import names
from tests.support.e2e.agents import run_once, without_runs
from tests.support.e2e.interrupting import LEDGER, is_retiring, kill_amid
from tests.support.e2e.one_state import expect_one_state
from tests.support.e2e.remains import left_behind
from tests.support.e2e.rollout import SYSTEM, Rollout, await_running, job, jobs, submit
from tests.support.prod import raw
from tests.support.waiting import becomes


def test_up_creates_again_what_a_killed_destroy_was_deleting(prod: Rollout) -> None:
    before = prod.get(LEDGER)["metadata"]["uid"]
    with without_runs(prod, names.RECONCILE):
        kill_amid(prod, "destroy", lambda: is_retiring(prod))
    run_once(prod, names.RECONCILE)
    assert " objects again that have changed since its last run\n" in prod.succeed("up")
    assert prod.get(LEDGER)["metadata"]["uid"] != before
    expect_one_state(prod)


def test_destroy_leaves_each_namespace_with_what_people_have_there(prod: Rollout) -> None:
    await_running(prod, "team-a", submit(prod, "team-a", job("holds-quota", "team-a-gpu")))
    refused = prod.command("destroy")
    assert refused.code == 1
    assert "Kueue's queues go, and 1 Workload (team-a/job-holds-quota-" in refused.text
    assert prod.delete(jobs("team-a", "holds-quota")).refusal is None
    config_maps = "/api/v1/namespaces/immich/configmaps"
    before = prod.cluster.api.create(config_maps, {"metadata": {"name": "photos"}})["metadata"]["uid"]
    prod.destroy()
    becomes(lambda: left_behind(prod), set(), "all but the namespaces is gone")
    there = {each["metadata"]["name"] for each in prod.items("/api/v1/namespaces")}
    assert there > {*raw()["tenants"], SYSTEM, "kueue-system"}
    assert prod.get(f"{config_maps}/photos")["metadata"]["uid"] == before
    assert prod.delete(f"{config_maps}/photos").refusal is None
