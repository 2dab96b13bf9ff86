"""Decides whether the gate owns a Deployment's replicas. The gate owns the replicas until something else changes their
number.

Times are whole seconds since 1970.
"""

from dataclasses import dataclass, replace

from agents.gate.deployments import Deployment

# After this time, the run that began an act has ended (components/base/agent.py).
UNDER_WAY_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """The replicas that the gate last gave its Deployment. `changed_at` is the time of this act.

    `idle_since` is the time since which there has been no demand. `generation` is the Deployment's generation before
    the act. While the generation is the same, the Deployment's spec is unchanged.
    """

    uid: str
    generation: int
    replicas: int
    changed_at: int | None = None
    idle_since: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """The owner of a Deployment's replicas: the gate, or `other`. `entry` is the new journal entry.

    `under_way` is True while the result of the gate's last act is not visible yet. `unreadable` is the error of the API
    if the Deployment could not be read.
    """

    entry: JournalEntry | None
    other: str | None = None
    under_way: bool = False
    unreadable: str | None = None

    @property
    def own(self) -> bool:
        return self.other is None and not self.under_way and self.unreadable is None


def ownership_of(found: Deployment, entry: JournalEntry | None, scaler: str | None, now: int) -> Ownership:
    """Returns the current owner of the replicas.

    `scaler` is an autoscaler of the Deployment. `entry` is the journal entry, or None for a Deployment that the gate
    sees for the first time.
    """
    if entry is not None and entry.uid != found.uid:
        entry = None  # somebody deleted the Deployment and created one with the same name
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
    """Returns the entry with the Deployment's current replicas. If the replicas differ, `changed_at` is now."""
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
