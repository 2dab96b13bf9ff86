"""The last of prod on a cluster: a `destroy` that is killed and taken back, and one that leaves nothing."""

from tenancy import names
from tests.support.e2e.agents import run_once, without_runs
from tests.support.e2e.interrupting import LEDGER, is_retiring, kill_amid
from tests.support.e2e.remains import left_behind
from tests.support.e2e.rollout import SYSTEM, Rollout, await_running, job, submit


def test_up_makes_again_what_a_destroy_that_was_killed_had_asked_to_go(prod: Rollout) -> None:
    before = prod.get(LEDGER)["metadata"]["uid"]
    with without_runs(prod, names.RECONCILE):  # or the ledger might be gone before the kill
        kill_amid(prod, "destroy", lambda: is_retiring(prod))
    run_once(prod, names.RECONCILE)
    assert f"\n  ConfigMap {SYSTEM}/{names.LEDGER}: not there\n" in prod.recover()
    prod.up()
    assert prod.get(LEDGER)["metadata"]["uid"] != before
    prod.expect_no_changes()


def test_destroy_leaves_nothing_though_a_job_holds_quota(prod: Rollout) -> None:
    await_running(prod, "team-a", submit(prod, "team-a", job("holds-quota", "team-a-gpu")))
    prod.destroy()
    assert left_behind(prod) == set()
