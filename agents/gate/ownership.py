"""Finds the owner of a Deployment's replicas: the gate, until something else changes the replicas.

Times are whole seconds since 1970.
"""

from dataclasses import dataclass, replace

from agents.gate.deployments import Deployment

# The run that began an act has ended after this time (components/base/agent.py).
UNDER_WAY_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """The state in which a gate left its Deployment, and since when there has been no demand.

    `generation` is the Deployment's generation when `replicas` was decided. While it is the same, nobody has changed
    the spec.
    """

    uid: str
    generation: int
    replicas: int
    changed_at: int | None = None
    idle_since: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """The gate owns the replicas unless `other` names another owner. `entry` is what the journal should hold.

    `under_way` is True while the gate has begun to scale and the result is not visible yet. `unreadable` is the API's
    error.
    """

    entry: JournalEntry | None
    other: str | None = None
    under_way: bool = False
    unreadable: str | None = None

    @property
    def own(self) -> bool:
        return self.other is None and not self.under_way and self.unreadable is None


def ownership_of(found: Deployment, entry: JournalEntry | None, scaler: str | None, now: int) -> Ownership:
    """Returns the owner now. `scaler` scales the Deployment by itself.

    `entry` is the journal's, None at first sight.
    """
    if entry is not None and entry.uid != found.uid:
        entry = None  # the old Deployment was deleted, and a new one has the same name
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
    """Returns the entry with the replicas that the Deployment has. If they differ, the entry counts as changed now."""
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
