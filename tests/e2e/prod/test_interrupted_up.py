"""Kills an `up` of prod at several moments. Another `up` completes the rollout.

This module runs before all other modules of its cluster.
"""

import random
from pathlib import Path
from typing import Any

from tests.support.e2e.agents import rollout_jobs
from tests.support.e2e.bucket import bucket
from tests.support.e2e.interrupting import is_creating, kill_amid
from tests.support.e2e.killed_rollouts import KilledRollouts
from tests.support.e2e.remains import left_behind
from tests.support.e2e.rollout import GPU_COUNT, GPUMEM, SYSTEM, Rollout
from tests.support.waiting import becomes

TENANTS = 10
INSTALLS = "/api/v1/namespaces/kueue-system/secrets?labelSelector=owner%3Dhelm%2Cstatus%3Dpending-install"


def give_each(config: dict[str, Any], mib: int) -> None:
    for seat in config["residents"].values():
        seat.update(gpumem_mib=mib)


def test_destroy_leaves_nothing_after_an_up_that_was_killed_amid_kueues_install(stack: Rollout) -> None:
    kill_amid(stack, "up", lambda: stack.items(INSTALLS) and is_creating(stack, "Release"))
    said = stack.recover()
    assert "\n  Release kueue-system/kueue: half installed, so removed\n" in said
    assert said.endswith("\nprod: unlocked\n")
    stack.destroy()
    becomes(lambda: left_behind(stack), set(), "all is gone")


def test_up_goes_on_after_ups_that_were_killed_amid_the_quotas_and_while_the_reconcile_job_ran(stack: Rollout) -> None:
    """The last `up` declares other budgets than the killed runs of `up`."""
    stack.workspace.change(lambda config: give_each(config, 1000))
    kill_amid(stack, "up", lambda: is_creating(stack, "ResourceQuota"))
    assert "creating ResourceQuota" in stack.recover()
    kill_amid(stack, "up", lambda: rollout_jobs(stack) and is_creating(stack, "Job"))
    (job,) = rollout_jobs(stack)
    assert f"creating Job {SYSTEM}/{job}\n" in stack.recover()
    stack.workspace.reset()
    stack.up()
    assert [quota["status"]["hard"] for quota in stack.items("/api/v1/namespaces/immich/resourcequotas")] == [
        {f"requests.{GPUMEM}": "4800", f"requests.{GPU_COUNT}": "2"}
    ]
    assert stack.capacity("k8s-node1")[GPUMEM] == "14k"
    stack.expect_no_changes()


def test_up_leaves_nothing_orphaned_or_doubled_after_a_rollout_that_was_killed_before_it_saved_its_state(
    stack: Rollout, tmp_path: Path
) -> None:
    """The state is in S3. Another machine recovers and completes the rollout.

    `python -m tests.e2e.kills` kills more rollouts with more tenants. Their state is in a folder.
    """
    moments = random.Random(4)  # noqa: S311 (moments, not secrets)
    with bucket() as machine:
        one, other = (Rollout(stack.cluster, machine(tmp_path / name)) for name in ("one", "other"))
        one.init()
        one.take_over(stack)
        how, refused = KilledRollouts(one, TENANTS, moments).interrupt(1), other.command("recover")
        assert "prod is in use by " in refused.text, how
        other.cancel()  # The operator of the other machine knows that the killed run has ended.
        assert " objects\n" in other.recover(), how
        completed = KilledRollouts(other, TENANTS, moments)
        completed.declare()
        completed.complete()
        stack.take_over(other)
