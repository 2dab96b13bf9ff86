"""Kills runs of Pulumi's engine when the cluster or the state meets a condition."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tenancy import names
from tests.support.e2e.rollout import SYSTEM, Object, Rollout, eventually
from toolchain.cluster.paths import TOOLCHAIN

LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"


def advertise_jobs(stack: Rollout) -> list[Object]:
    found = stack.items(f"/apis/batch/v1/namespaces/{SYSTEM}/jobs")
    return [job for job in found if "ownerReferences" not in job["metadata"]]


def is_retiring(stack: Rollout) -> bool:
    return "deletionTimestamp" in stack.get(LEDGER)["metadata"]


def is_creating(stack: Rollout, kind: str) -> bool:
    """Returns True if Pulumi's state has a pending creation of a resource of this kind."""
    state = stack.workspace.folder / "state" / ".pulumi" / "stacks" / "gpu-tenancy" / "prod.json"
    pending = json.loads(state.read_text())["checkpoint"]["latest"].get("pending_operations") or []
    return any(each["type"] == "creating" and each["resource"]["type"].endswith(f":{kind}") for each in pending)


def kill_amid(stack: Rollout, command: str, moment: Callable[[], object]) -> None:
    """Runs an `up` or `destroy`, and kills all its processes as soon as `moment` returns True.

    Stops the processes during each call of `moment`, so that the condition is still true when they are killed.
    """
    stack.rolled_out = None
    log = stack.workspace.folder / f"killed-{command}.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [TOOLCHAIN / "bin" / "pulumi", command, "--yes", "--skip-preview", "--non-interactive", "--stack", "prod"],
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
                pause_seconds=0.2,
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
    """Signals all processes of the session. A process group is not enough, because the CLI's plugins have others."""
    for pid in _living(session):
        with suppress(OSError):
            os.kill(pid, number)


def kill_session(session: int) -> None:
    """Kills all processes of the session, and waits until all of them have ended."""
    signal_session(session, signal.SIGKILL)
    eventually(lambda: not _living(session), "the killed processes have ended", pause_seconds=0.05)


def _living(session: int) -> list[int]:
    """Returns the PIDs of the session's processes, except zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, of_session, *_ = stat.read_text().rpartition(")")[2].split()
            if int(of_session) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found
