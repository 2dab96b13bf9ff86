"""Repairs the state of a stack after a Pulumi run was killed. If the state is clean, the recovery changes and prints
nothing.

The recovery works on a copy of the state. At the end, the copy replaces the state in one step. Therefore the operator
can run the recovery again if it is killed.
"""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import yaml

from stacks.recovery import rollout, state
from stacks.recovery.cli import Stack, scratch_copy
from stacks.recovery.lock import is_folder, locks, remove_torn_attributes
from stacks.recovery.state import Deployment, Operation

DELETION_SECONDS = 300
PAUSE_SECONDS = 2
# With more operations than this, the recovery prints numbers of objects instead of a line for each object.
MOST_LINES = 20
_THERE, _NOT_THERE = "there", "not there"


class RecoveryError(Exception):
    """Raised if the operator must act before the recovery. The message describes the
    action. Before this error, the recovery does not change the state."""


def recover(stack: Stack, confirm: Callable[[], None]) -> Deployment:
    """Repairs the state of the stack and removes its stale lock. Returns the state.

    Calls `confirm` before it reads or deletes objects of the cluster. The function raises RecoveryError and CliError.
    """
    locked, before = is_locked_by_the_dead(stack), stack.export()
    plan = rollout.read(stack, before)
    after = None if plan is None and state.is_clean(before) else _put_right(stack, before, plan, confirm)
    if after is not None:
        locked = is_locked_by_the_dead(stack)
        if stack.export() != before:
            raise RecoveryError(f"another run has changed the state of {stack.name} during this recovery; run it again")
    if locked:  # Until this line, the stale lock has prevented other runs on the stack.
        stack.unlock()
        print(f"{stack.name}: unlocked")
    if after is not None:
        stack.replace(after)
    if plan is not None:
        rollout.remove(stack)
    return before if after is None else stack.export()


def is_locked_by_the_dead(stack: Stack) -> bool:
    """Returns True if the stack has locks of processes that have ended.

    If the stack has stale locks, deletes incomplete attribute files. If the process of a lock still runs or is unknown,
    raises RecoveryError.
    """
    project = yaml.safe_load((stack.folder / "Pulumi.yaml").read_text(encoding="utf-8"))["name"]
    held = locks(stack.backend, project, stack.name)
    for lock in held:
        if not lock.is_stale:
            raise _in_use(stack, str(lock))
    if held:
        remove_torn_attributes(stack.backend, project, stack.name)
    return bool(held)


def _refuse_if_in_use(stack: Stack) -> None:
    """Raises RecoveryError if a backend that is no folder has a lock of the stack. The process of such a lock can run
    on any machine."""
    holder = None if is_folder(stack.backend) else stack.lock_holder()
    if holder:
        raise _in_use(stack, holder)


def _in_use(stack: Stack, holder: str) -> RecoveryError:
    backend = shlex.quote(stack.backend)
    cancel = f"PULUMI_BACKEND_URL={backend} .toolchain/bin/pulumi cancel --stack {stack.name}"
    return RecoveryError(f"{stack.name} is in use by {holder}. Wait; or, if you know that it is gone: {cancel}")


def _put_right(stack: Stack, before: Deployment, plan: rollout.Plan | None, confirm: Callable[[], None]) -> Deployment:
    """Returns a state that agrees with the cluster. Uninstalls a half-installed chart.

    `plan` is the plan of a rollout that was killed before it saved its state.
    """
    _refuse_if_in_use(stack)
    every = state.interrupted(before) if plan is None else state.planned(plan, before)
    operations = [operation for operation in every if operation.is_of_kubernetes]
    if not operations:
        return state.with_creations(before, ())
    print(f"{stack.name}: the last run ended before its time, in the middle of")
    _print_operations(operations)
    sys.stdout.flush()
    confirm()
    entered = state.with_creations(before, every)
    with scratch_copy(stack, entered) as copy:
        refreshed = _refreshed(copy, entered, operations)
        after = settled = state.without_foreign(refreshed, entered, every)
        half_installed = [
            each.urn
            for each, found in state.with_resources(settled, operations)
            if state.is_half_installed(found, each)
        ]
        if half_installed:
            _refuse_if_in_use(stack)  # A run that had only begun has locked the stack by now.
            copy.replace(settled)
            copy.destroy(half_installed)
            after = copy.export()
    _print_outcomes([*_outcomes(operations, refreshed, settled, after)])
    return after


def _print_operations(operations: Sequence[Operation]) -> None:
    if len(operations) <= MOST_LINES:
        for operation in operations:
            print(f"  {operation.kind} {operation.title}")
        return
    for kind, count in Counter(operation.kind for operation in operations).items():
        print(f"  {kind} {count} objects")


def _print_outcomes(outcomes: Sequence[tuple[Operation, str]]) -> None:
    counted = Counter(outcome for _, outcome in outcomes)
    usual = [] if len(outcomes) <= MOST_LINES else [each for each in (_THERE, _NOT_THERE) if counted[each]]
    for outcome in usual:
        print(f"  {counted[outcome]} objects: {outcome}")
    for operation, outcome in outcomes:
        if outcome not in usual:
            print(f"  {operation.title}: {outcome}")


def _refreshed(copy: Stack, entered: Deployment, operations: Sequence[Operation]) -> Deployment:
    """Refreshes the objects of the interrupted operations until none of these objects is terminating.

    Returns the state after the refresh. Raises RecoveryError if an object still terminates after DELETION_SECONDS.
    """
    deadline, deployment = time.monotonic() + DELETION_SECONDS, entered
    asked = [operation for operation, _ in state.with_resources(deployment, operations)]
    while asked:
        copy.refresh([operation.urn for operation in asked])
        deployment = copy.export()
        asked = [each for each, found in state.with_resources(deployment, asked) if state.is_terminating(found)]
        if asked and time.monotonic() > deadline:
            late = ", ".join(operation.title for operation in asked)
            raise RecoveryError(f"not gone in {DELETION_SECONDS} s: {late}; kubectl describe says what they wait for")
        if asked:
            time.sleep(PAUSE_SECONDS)
    return deployment


def _outcomes(
    operations: Sequence[Operation], refreshed: Deployment, settled: Deployment, after: Deployment
) -> Iterator[tuple[Operation, str]]:
    """Yields each operation with the result of the recovery for its object.

    The recovery computes the three states one after the other. The result depends on the first state in which the
    object is missing.
    """
    found = {each.urn: resource for each, resource in state.with_resources(refreshed, operations)}
    ours = {each.urn for each, _ in state.with_resources(settled, operations)}
    left = {each.urn for each, _ in state.with_resources(after, operations)}
    for operation in operations:
        resource = found.get(operation.urn)
        if resource is None:
            yield operation, _NOT_THERE
        elif state.is_half_upgraded(resource):
            yield operation, f"half upgraded; before the next up: {state.deletion_command(resource)}"
        elif operation.urn not in ours:
            yield operation, "somebody else's, left alone"
        else:
            yield operation, _THERE if operation.urn in left else "half installed, so removed"
