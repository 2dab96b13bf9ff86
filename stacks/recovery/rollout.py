"""Records what a rollout or a removal plans to change, before the first change (docs/adr/0042).

With a record, Pulumi writes its state only at the end. After a kill, the record names every object that the killed
command may have changed. The record is the state of a stack of its own, in the same backend. Therefore another machine
can recover the stack.
"""

import base64
import gzip
import json
import os
from collections.abc import Mapping
from typing import Any

from stacks.recovery import state
from stacks.recovery.cli import Stack, in_project
from stacks.recovery.lock import is_folder
from stacks.recovery.state import Deployment

_SKIP_CHECKPOINTS = "PULUMI_SKIP_CHECKPOINTS"
_PROJECT = "gpu-tenancy-rollouts"
_SCHEMES = ("file://", "s3://", "gs://", "azblob://")
# In a plan, this text stands for a value that only the update knows (Pulumi, sdk/go/common/resource).
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

Plan = Mapping[str, Any]


def environment(stack: Stack, plan: Plan, before: Deployment) -> Mapping[str, str]:
    """Returns the environment variables of a rollout with a record.

    Pulumi keeps its checkpoints if the operator has set the variable, or if the backend is Pulumi Cloud. Pulumi also
    keeps its checkpoints if the plan lacks the name of an object.
    """
    is_named = not any(_UNKNOWN in each.identity for each in state.planned(plan, before) if each.is_of_kubernetes)
    return state_at_the_end(stack) if _has_record(stack) and is_named else {}


def state_at_the_end(stack: Stack) -> Mapping[str, str]:
    """Returns the environment variables of a run that writes the state only at the end."""
    return {} if _SKIP_CHECKPOINTS in stack.environment else {_SKIP_CHECKPOINTS: "true"}


def removal(before: Deployment) -> Plan:
    """Returns the plan of the removal of all resources of the state."""
    resources = before["deployment"].get("resources") or []
    return {"resourcePlans": {each["urn"]: {"steps": ["delete"]} for each in resources}}


def write(stack: Stack, plan: Plan, before: Deployment) -> None:
    """Writes the record into the backend. `before` is the stack's state."""
    if not _has_record(stack):
        return
    packed = base64.b64encode(gzip.compress(json.dumps(plan).encode())).decode()
    _replace(stack, {"before": saved_at(before), "plan": packed})
    if is_folder(stack.backend):
        os.sync()


def read(stack: Stack, now: Deployment) -> Plan | None:
    """Returns the plan of a rollout that has begun and has not saved its state, or None."""
    if not _has_record(stack):
        return None
    with in_project(stack, _PROJECT) as records:
        found = records.export()["deployment"].get("resources") or [{}]
    record = found[0].get("outputs", {})
    if record.get("before") != saved_at(now):
        return None
    plan: Plan = json.loads(gzip.decompress(base64.b64decode(record["plan"])))
    return plan


def remove(stack: Stack) -> None:
    _replace(stack, {})


def saved_at(deployment: Deployment) -> str:
    """Returns the time at which Pulumi saved the state; empty for the state of a new stack."""
    return str((deployment.get("deployment") or {}).get("manifest", {}).get("time", ""))


def _has_record(stack: Stack) -> bool:
    """Returns True if the backend is a folder or a bucket. Pulumi Cloud writes no whole state at each step."""
    return stack.backend.startswith(_SCHEMES)


def _replace(stack: Stack, record: Mapping[str, str]) -> None:
    root = "pulumi:pulumi:Stack"
    urn = f"urn:pulumi:{stack.name}::{_PROJECT}::{root}::{_PROJECT}-{stack.name}"
    holder = {"urn": urn, "type": root, "custom": False, "outputs": record}
    with in_project(stack, _PROJECT) as records:
        records.unlock()  # A run that was killed here leaves its lock.
        records.replace({"version": 3, "deployment": {"manifest": {}, "resources": [holder]}})
