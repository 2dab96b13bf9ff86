"""Decides whether the gate owns the replicas of a Deployment. The gate owns the replicas until somebody or something
else changes their number.

Times are whole seconds since 1970.
"""

from dataclasses import dataclass, replace

from agents.gate.deployments import Deployment

# After each of its acts, a run ends within this many seconds (components/base/agent.py).
UNDER_WAY_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """The number of replicas to which the gate has last scaled a Deployment. `changed_at` is the time when the gate
    scaled the Deployment.

    `idle_since` is the time when the workload's demand ended. `generation` is the Deployment's generation before the
    gate scaled it. While the generation is the same, the Deployment's spec is unchanged.
    """

    uid: str
    generation: int
    replicas: int
    changed_at: int | None = None
    idle_since: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """The owner of the replicas of a Deployment. The owner is the gate if `other` is None. `entry` is the new journal
    entry of the Deployment.

    `under_way` is True while the API does not yet show the result of the gate's last act. `unreadable` is the error of
    the API server if the Deployment could not be read.
    """

    entry: JournalEntry | None
    other: str | None = None
    under_way: bool = False
    unreadable: str | None = None

    @property
    def own(self) -> bool:
        return self.other is None and not self.under_way and self.unreadable is None


def ownership_of(found: Deployment, entry: JournalEntry | None, scaler: str | None, now: int) -> Ownership:
    """Returns the current owner of the Deployment's replicas.

    `scaler` is an autoscaler of the Deployment. `entry` is the journal entry, or None if the gate sees the Deployment
    for the first time.
    """
    if entry is not None and entry.uid != found.uid:
        entry = None  # somebody has deleted the Deployment and created a new one with the same name
    other = _other(found, entry, scaler)
    if other is not None:
        return Ownership(entry=entry, other=other)
    if entry is None:
        return Ownership(entry=JournalEntry(uid=found.uid, generation=found.generation, replicas=found.replicas))
    if entry.replicas == found.replicas:
        return Ownership(entry=entry)
    if entry.generation == found.generation and 0 <= now - (entry.changed_at or 0) < UNDER_WAY_SECONDS:
        return Ownership(entry=entry, under_way=True)
    return Ownership(entry=follow(found, entry, now))


def follow(found: Deployment, entry: JournalEntry, now: int) -> JournalEntry:
    """Returns the journal entry with the current number of replicas of the Deployment. If the number of replicas has
    changed, `changed_at` is the current time.
    """
    if entry.replicas == found.replicas:
        return entry
    return replace(entry, generation=found.generation, replicas=found.replicas, changed_at=now, idle_since=None)


def _other(found: Deployment, entry: JournalEntry | None, scaler: str | None) -> str | None:
    by = found.scaled_by or "somebody"
    if scaler is not None:
        return f"{scaler} scales it"
    if found.seats:
        return f"its pods ask for {', '.join(found.seats)}: a seat and a gate would count them twice"
    if found.replicas > 1:
        return f"{by} scaled it to {found.replicas}; a gate knows 0 and 1"
    if entry is None or entry.replicas == found.replicas or entry.generation == found.generation:
        return None
    return f"{by} scaled it to {found.replicas} after the gate left it at {entry.replicas}"
