"""Kills a run of Pulumi's engine as soon as a condition is true."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tenancy import names
from tests.support.e2e.rollout import SYSTEM, Rollout
from tests.support.waiting import eventually

LEDGER = f"/api/v1/namespaces/{SYSTEM}/configmaps/{names.LEDGER}"


def is_retiring(stack: Rollout) -> bool:
    return "deletionTimestamp" in stack.get(LEDGER)["metadata"]


def kill_amid(stack: Rollout, command: str, moment: Callable[[], object], *, alone: bool = True) -> None:
    """Kills Pulumi as `make up` and `make destroy` run it: the state is written only at the end.

    Pulumi alone is quicker, but cannot complete a first `up`, because the PriorityClasses exist.
    """
    stack.rolled_out = None
    log = stack.workspace.folder / f"killed-{command}.log"
    ours = (sys.executable, "-m", "stacks", command, "--stack", "prod", "--yes")
    engine = stack.workspace.engine(command, "prod") if alone else ours
    at_the_end = {"KUBECONFIG": str(stack.cluster.kubeconfig), "PULUMI_SKIP_CHECKPOINTS": "true"}
    environment = {**stack.workspace.env, **at_the_end}
    code = kill_at(moment, engine, cwd=stack.workspace.project, env=environment, log=log)
    assert code == -signal.SIGKILL, log.read_text()


def kill_at(
    moment: Callable[[], object],
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    only: str = "",
) -> int:
    """Kills the command as soon as `moment` is true.

    With `only`, kills only the processes whose command lines contain this text, and waits for the end of the others.
    Once the condition is true, SIGSTOP stops the processes and `moment` runs again, so that the condition is still true
    at the kill.
    """
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        ) as process,
    ):
        try:
            eventually(
                lambda: process.poll() is not None or (moment() and stands_still_at(process.pid, moment)),
                f"{' '.join(command)} comes to where it is to be killed",
                log.read_text,
                pause_seconds=0.2,
            )
        finally:
            kill_session(process.pid, only)
    return process.returncode


def stands_still_at(session: int, moment: Callable[[], object]) -> bool:
    signal_session(session, signal.SIGSTOP)
    if moment():
        return True
    signal_session(session, signal.SIGCONT)
    return False


def signal_session(session: int, number: signal.Signals, only: str = "") -> None:
    """The plugins of the Pulumi CLI have their own process groups."""
    for pid in _living(session):
        with suppress(OSError):
            if only in _command_line(pid):
                os.kill(pid, number)


def kill_session(session: int, only: str = "") -> None:
    signal_session(session, signal.SIGKILL, only)
    signal_session(session, signal.SIGCONT)
    eventually(lambda: not _living(session), "the killed processes have ended", pause_seconds=0.05)


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def _living(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, of_session, *_ = stat.read_text().rpartition(")")[2].split()
            pid = int(stat.parent.name)
            if int(of_session) == session and state != "Z":
                found.append(pid)
    return found
