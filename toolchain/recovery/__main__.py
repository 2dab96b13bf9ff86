"""`python -m toolchain.recovery STACK`: puts a stack right after a run that was killed; else it does and says nothing.

It works on a copy of the state, which takes the state's place in one step at the end: killed itself, it begins again.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from toolchain.recovery import state
from toolchain.recovery.cli import CliError, Stack, scratch
from toolchain.recovery.lock import locks, remove_torn_attributes
from toolchain.recovery.state import Deployment, Operation

CONFIRM = Path(__file__).resolve().parents[1] / "confirm.sh"
DELETION_SECONDS = 300
PAUSE_SECONDS = 2


class RecoveryError(Exception):
    """A person has to do something first; the message is a sentence."""


def main(arguments: Sequence[str]) -> int:
    """0 when a run can begin, else 1 with the reason on stderr and nothing changed in the state."""
    parser = argparse.ArgumentParser(prog="python -m toolchain.recovery", description=__doc__)
    parser.add_argument("stack")
    stack = Stack(parser.parse_args(arguments).stack, Path.cwd(), dict(os.environ))
    try:
        recover(stack)
    except (RecoveryError, CliError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def recover(stack: Stack) -> None:
    """Raises RecoveryError and CliError."""
    locked, before = _is_locked_by_the_dead(stack), stack.export()
    after = None if state.is_clean(before) else _put_right(stack, before)
    if locked:  # until now it kept others out
        stack.unlock()
        print(f"{stack.name}: unlocked")
    if after is not None:
        stack.replace(after)


def _is_locked_by_the_dead(stack: Stack) -> bool:
    project = yaml.safe_load((stack.folder / "Pulumi.yaml").read_text(encoding="utf-8"))["name"]
    held = locks(stack.backend, project, stack.name)
    for lock in held:
        if not lock.is_stale:
            cancel = f"PULUMI_BACKEND_URL={stack.backend} .toolchain/bin/pulumi cancel --stack {stack.name}"
            raise RecoveryError(f"{stack.name} is in use by {lock}. Wait; or, if you know that it is gone: {cancel}")
    if held:
        remove_torn_attributes(stack.backend, project, stack.name)
    return bool(held)


def _put_right(stack: Stack, before: Deployment) -> Deployment:
    """The state that follows from what is in the cluster, where parts of a chart are removed."""
    operations = state.interrupted(before)
    if not operations:
        return state.entered(before, ())
    print(f"{stack.name}: the last run ended before its time, in the middle of")
    for operation in operations:
        print(f"  {operation.kind} {operation.title}")
    sys.stdout.flush()
    if subprocess.run([CONFIRM, f"Recover {stack.name}"], cwd=stack.folder, check=False).returncode:
        raise RecoveryError(f"{stack.name} is not recovered")
    entered = state.entered(before, operations)
    with scratch(stack, entered) as copy:
        refreshed = _refreshed(copy, entered, operations)
        after = settled = state.settled(refreshed, entered, operations)
        half_installed = [
            each.urn for each, found in state.found(settled, operations) if state.is_half_installed(found, each)
        ]
        if half_installed:
            copy.replace(settled)
            copy.destroy(half_installed)
            after = copy.export()
    for operation in operations:
        print(f"  {operation.title}: {_outcome(operation, refreshed, settled, after)}")
    return after


def _refreshed(copy: Stack, entered: Deployment, operations: Sequence[Operation]) -> Deployment:
    """The state after a refresh, and after what was asked to go is gone. Raises RecoveryError where it stays."""
    deadline, deployment = time.monotonic() + DELETION_SECONDS, entered
    asked = [operation for operation, _ in state.found(deployment, operations)]
    while asked:
        copy.refresh([operation.urn for operation in asked])
        deployment = copy.export()
        asked = [each for each, found in state.found(deployment, asked) if state.is_terminating(found)]
        if asked and time.monotonic() > deadline:
            late = ", ".join(operation.title for operation in asked)
            raise RecoveryError(f"not gone in {DELETION_SECONDS} s: {late}; kubectl describe says what they wait for")
        if asked:
            time.sleep(PAUSE_SECONDS)
    return deployment


def _outcome(operation: Operation, refreshed: Deployment, settled: Deployment, after: Deployment) -> str:
    """By what was found, and the step at which it left the state."""
    for _, resource in state.found(refreshed, [operation]):
        if state.is_half_upgraded(resource):
            return f"half upgraded; before the next up: {state.way_out(resource)}"
        if not any(state.found(settled, [operation])):
            return "somebody else's, left alone"
        return "there" if any(state.found(after, [operation])) else "half installed, so removed"
    return "not there"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
