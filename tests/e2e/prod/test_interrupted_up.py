"""Kills an `up` of prod at several moments. The same command, run again, completes the rollout.

This module runs before all other modules of its cluster.
"""

from pathlib import Path
from typing import Any

from tests.support.e2e.agents import rollout_jobs
from tests.support.e2e.bucket import bucket
from tests.support.e2e.interrupting import kill_amid
from tests.support.e2e.one_state import expect_one_state
from tests.support.e2e.remains import left_behind
from tests.support.e2e.rollout import GPU_COUNT, GPUMEM, Rollout
from tests.support.waiting import becomes

INSTALLS = "/api/v1/namespaces/kueue-system/secrets?labelSelector=owner%3Dhelm%2Cstatus%3Dpending-install"
QUOTAS = "/api/v1/namespaces/immich/resourcequotas"


def promise_less(config: dict[str, Any]) -> None:
    for seat in config["residents"].values():
        seat.update(gpumem_mib=1000)
    del config["tenants"]["portal-stt"], config["residents"]["portal-stt"]


def test_destroy_after_a_first_up_that_was_killed_amid_kueues_install_leaves_only_namespaces(stack: Rollout) -> None:
    kill_amid(stack, "up", lambda: stack.items(INSTALLS))
    said = stack.succeed("destroy")
    (line,) = [line for line in said.splitlines() if "if nobody needs them: kubectl delete namespace " in line]
    assert " gpu-tenancy-system gpu-tenancy-system-nodes " in line
    becomes(lambda: left_behind(stack), set(), "all but the namespaces is gone")


def test_up_completes_ups_that_were_killed_early_and_late_and_of_which_another_machine_has_no_state(
    stack: Rollout, tmp_path: Path
) -> None:
    """The killed runs declare other budgets, and a tenant more. The state is in S3."""
    with bucket() as machine:
        one, other = (Rollout(stack.cluster, machine(tmp_path / name)) for name in ("one", "other"))
        one.init()
        kill_amid(one, "up", lambda: one.items(QUOTAS))
        one.cancel()
        one.workspace.change(lambda config: config["residents"]["immich-server"].update(gpumem_mib=1000))
        kill_amid(one, "up", lambda: rollout_jobs(one), alone=False)
        other.workspace.change(promise_less)
        assert "the stack is currently locked by 1 lock" in other.command("up").text
        other.cancel()  # The operator of the other machine knows that the killed run has ended.
        said = other.succeed("up")
        assert "\nprod removes what a run that ended before its time has left: " in said
        assert "ResourceQuota portal-stt/gpumem-seats" in said
        assert [quota["status"]["hard"] for quota in other.items(QUOTAS)] == [
            {f"requests.{GPUMEM}": "2k", f"requests.{GPU_COUNT}": "2"}
        ]
        assert other.capacity("k8s-node1")[GPUMEM] == "14k"
        expect_one_state(other)
        stack.take_over(other)
