"""Records what a rollout plans to change, before the first change (docs/adr/0042).

During a rollout with a record, Pulumi writes its state only at the end. After a kill, the record names every object
that the rollout may have changed.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolchain.recovery import state
from toolchain.recovery.cli import Stack
from toolchain.recovery.lock import SCHEME, backend_folder
from toolchain.recovery.state import Deployment

SKIP_CHECKPOINTS = "PULUMI_SKIP_CHECKPOINTS"
# In a plan, this text stands for a value that only the update knows (Pulumi, sdk/go/common/resource).
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

Plan = Mapping[str, Any]


def path(stack: Stack) -> Path:
    """Returns the file of the record. The file is in the folder of a `file://` backend, or else in the project."""
    return (backend_folder(stack.backend) or stack.folder / ".state") / f"{stack.name}.rollout.json"


def environment(stack: Stack, plan: Plan, before: Deployment) -> Mapping[str, str]:
    """Returns the environment variables of a rollout with a record.

    Pulumi writes its state at each step if the operator has set the variable. It also does so in a remote backend,
    because a record on this machine would be lost together with the machine. The third case is a plan that lacks the
    name of an object.
    """
    is_named = not any(_UNKNOWN in each.identity for each in state.planned(plan, before) if each.is_of_kubernetes)
    if SKIP_CHECKPOINTS in stack.environment or not stack.backend.startswith(SCHEME) or not is_named:
        return {}
    return {SKIP_CHECKPOINTS: "true"}


def write(stack: Stack, plan: Plan, before: Deployment) -> None:
    """Writes the record to the disk. `before` is the stack's state."""
    file = path(stack)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as opened:
        json.dump({"before": saved_at(before), "plan": plan}, opened)
        opened.flush()
        os.fsync(opened.fileno())
    fresh.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def read(stack: Stack, now: Deployment) -> Plan | None:
    """Returns the plan of a rollout that was killed, or None if the last rollout has saved its state."""
    try:
        record = json.loads(path(stack).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    plan: Plan = record["plan"]
    return plan if record["before"] == saved_at(now) else None


def remove(stack: Stack) -> None:
    path(stack).unlink(missing_ok=True)


def saved_at(deployment: Deployment) -> str:
    """Returns the time at which Pulumi saved the state; empty for the state of a new stack."""
    return str((deployment.get("deployment") or {}).get("manifest", {}).get("time", ""))
