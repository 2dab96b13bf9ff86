"""Replays recorded use of GPU memory with a stack, with the agents' real code in a simulated cluster.

The recording gives the use of each pod. The replay shows which pods the agents recycle, start and stop, and which pods
wait. A recycled pod starts its life again, until the recording has the replica's next pod. If a recorded pod was over
its budget when it ended, the replay assumes that the watchdog had recycled the pod. In the replay, such a pod runs on
until the simulated watchdog recycles the pod.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agents.gate.config import GateConfig, declared
from simulation.history import Owner, owners, recorded_pods
from simulation.replay_record import WARM_SECONDS, RecordedEvent, TimeBelowFloor
from simulation.replayed import ReplayedCluster
from simulation.stack import Stack
from tenancy.names import GATE
from tenancy.pod_history import PodHistory


@dataclass(frozen=True, kw_only=True)
class Played:
    """The result of a replay. `short_seconds` has, by workload, the seconds during which a process lacked memory within
    its budget.
    """

    begin: datetime
    end: datetime
    happened: tuple[RecordedEvent, ...]
    floors: tuple[TimeBelowFloor, ...]
    short_seconds: dict[str, int]
    notes: tuple[str, ...]


def gates_of(stack: Stack) -> tuple[GateConfig, ...]:
    """Returns the demand gate's settings for each on-demand workload of the stack."""
    return declared(stack.environ.get(GATE, {}).get("GATES", "[]"))


def owners_of(stack: Stack) -> list[Owner]:
    """Returns the stack's seats and its on-demand workloads."""
    return owners(stack.ledger, gates_of(stack))


def play(pods: Sequence[PodHistory], stack: Stack, *, before: Stack | None = None) -> Played:
    """Replays the recording of at least one pod with the stack. `before` is the stack of the recording, if the
    recording has a different stack.

    A workload without a recording uses no memory. A workload that `before` does not declare is new, and uses its whole
    budget.
    """
    others = owners_of(before) if before else []
    first = min(pod.samples[0][0] for pod in pods)
    last = max(pod.samples[-1][0] for pod in pods)
    found = recorded_pods(pods, stack.ledger, gates_of(stack), others)
    begin = first - first % 60 - WARM_SECONDS
    seen = {name for name, rows in found.lives.items() if rows}
    new = {owner.name for owner in owners_of(stack)} - {owner.name for owner in others} - seen if before else set()
    cluster = ReplayedCluster(_with_gates(stack, seen | new), found, new, begin)
    try:
        cluster.run(last - begin)
        cluster.close()
    finally:
        cluster.world.end()
    refused = [
        RecordedEvent(
            at=datetime.fromtimestamp(min(life.begin for life in lives), UTC),
            what="refused",
            workload=name,
            seconds=round(sum(life.seconds for life in lives)),
        )
        for name, lives in found.refused.items()
    ]
    record = cluster.record
    return Played(
        begin=datetime.fromtimestamp(first, UTC),
        end=datetime.fromtimestamp(last, UTC),
        happened=tuple(sorted([*record.happened, *refused], key=lambda each: each.at)),
        floors=tuple(record.floors),
        short_seconds=dict(sorted(record.short_seconds.items())),
        notes=tuple(found.notes),
    )


def _with_gates(stack: Stack, names: Collection[str]) -> Stack:
    if GATE not in stack.environ:
        return stack
    variables = stack.environ[GATE]
    kept = [gate for gate in json.loads(variables["GATES"]) if gate["deployment"] in names]
    return replace(stack, environ={**stack.environ, GATE: {**variables, "GATES": json.dumps(kept)}})
