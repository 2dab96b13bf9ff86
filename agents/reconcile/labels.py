"""What a node was last verified by, labels or ResourceSlices: while that is gone, it counts as it was, for a while.

Feature discovery takes its labels off while it restarts, the kubelet a driver's slices while that does, and an
operator's driver upgrade both for minutes. What was shown is kept in a journal, so that the wait goes on across runs.
Times are whole seconds since 1970.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from agents.kube.journal import JournalError
from agents.kube.nodes import Node
from agents.reconcile.slices import UNPUBLISHED, Published
from tenancy.decode import DecodeError, decode
from tenancy.ledger import Ledger, PlacementMode, Pool, SeveralPoolsError, Sharing, Source
from tenancy.names import LABEL_GPU_COUNT, LABEL_GPU_MEMORY, OLD_VIEW_SECONDS, UNSEEN_SECONDS

# A driver upgrade of NVIDIA's operator takes its labels off for as long as the driver is built and loaded: minutes.
HOLD_SECONDS = 600
# An exporter's last write may land so late, and claims be given by the slice as it was then so much later.
UNCLAIMED_SECONDS = 2 * OLD_VIEW_SECONDS
_SHOWN = (LABEL_GPU_MEMORY, LABEL_GPU_COUNT)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a node shows: its labels, and MiB of each device by ResourceSlices, the largest first; None where those do
    not tell."""

    labels: Mapping[str, str]
    devices: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What a node of a memory pool showed when it was last verified, as in Shown, and since when it does not."""

    labels: Mapping[str, str]
    missing_since: int | None = None
    devices: tuple[int, ...] | None = None
    # Where pools say who places on them: from when, and until when, each pass found that it was the extender's pool and
    # that no claim had, or could have, its devices.
    unclaimed_since: int | None = None
    unclaimed_until: int | None = None

    @property
    def is_unclaimed(self) -> bool:
        """Whether that was for so long that nobody goes by an older view."""
        if self.unclaimed_since is None or self.unclaimed_until is None:
            return False
        return self.unclaimed_until - self.unclaimed_since >= UNCLAIMED_SECONDS

    def lapsed(self, now: int) -> bool:
        """Whether it has been gone for so long that it counts no more."""
        return self.missing_since is not None and now - self.missing_since >= HOLD_SECONDS

    def pool(self, ledger: Ledger) -> Pool | None:
        """The memory pool that these labels belong to; None where the ledger does not declare it any more."""
        try:
            pool = ledger.pool_of(self.labels)
        except SeveralPoolsError:
            return None
        return pool if pool is not None and pool.sharing is Sharing.MEMORY else None


def shown_by(node: Node, slices: Mapping[str, Published]) -> Shown:
    """What the node shows now."""
    return Shown(labels=node.labels, devices=slices.get(node.name, UNPUBLISHED).devices)


def shown(labels: Mapping[str, str], label: str) -> int | None:
    """The number that feature discovery shows; None where it is missing or no number."""
    value = labels.get(label, "")
    return int(value) if value.isascii() and value.isdigit() else None


def is_labelled(shows: Shown) -> bool:
    """Whether feature discovery's labels show the devices."""
    return None not in (shown(shows.labels, label) for label in _SHOWN)


def counted(ledger: Ledger, shows: Shown, verified: Verified | None, now: int) -> Shown:
    """What a node shows, as it counts: what its pool and its devices are known by stays for a while after it went.

    A device label that is there counts as it is, and so do slices, and another memory pool that verifies the node.
    """
    if verified is None or verified.lapsed(now) or verified.pool(ledger) is None or _evidence(ledger, shows):
        return shows
    gone = {key: value for key, value in verified.labels.items() if key not in _SHOWN or key not in shows.labels}
    return Shown(labels={**shows.labels, **gone}, devices=verified.devices if shows.devices is None else shows.devices)


def remember(
    ledger: Ledger,
    nodes: Iterable[Node],
    before: Mapping[str, Verified],
    now: int,
    slices: Mapping[str, Published] | None = None,
    *,
    claimed: Collection[str] = (),
) -> dict[str, Verified]:
    """What is known of the nodes after they were seen at `now`, `slices` by their names, `claimed` as in ClusterState.
    Forgotten is who is gone,
    whose pool is not declared any more, and who has nothing left to take off."""
    after = {}
    for node in nodes:
        evidence, known = _evidence(ledger, shown_by(node, slices or {})), before.get(node.name)
        if evidence is not None:
            after[node.name] = _unclaimed(ledger, evidence, known, now, claimed=node.name in claimed)
        elif known is not None and known.pool(ledger) is not None:
            # Not later than now: what a clock ahead of this one wrote would hold for as long as it was ahead.
            since = now if known.missing_since is None else min(known.missing_since, now)
            entry = replace(known, missing_since=since, unclaimed_since=None, unclaimed_until=None)
            keys = {ledger.names.gpumem, ledger.names.gpu_count}
            if not entry.lapsed(now) or keys & {*node.capacity, *node.allocatable}:
                after[node.name] = entry
    return after


def _unclaimed(ledger: Ledger, seen: Verified, before: Verified | None, now: int, *, claimed: bool) -> Verified:
    """Passes too far apart begin again: between them a node can have been offered to claims and taken back. So does a
    clock that went back."""
    pool = seen.pool(ledger)
    if claimed or pool is None or pool.placement is not PlacementMode.EXTENDER:
        return seen
    since, until = (before.unclaimed_since, before.unclaimed_until) if before else (None, None)
    if since is None or until is None or not 0 <= now - until <= UNSEEN_SECONDS:
        return replace(seen, unclaimed_since=now, unclaimed_until=now)
    return replace(seen, unclaimed_since=since, unclaimed_until=now)


def to_journal(known: Mapping[str, Verified]) -> dict[str, object]:
    """The content of the journal."""
    return {name: _entry(verified) for name, verified in known.items()}


def _entry(verified: Verified) -> dict[str, object]:
    """Slices only where they count: a journal of labels stays as it was. Lists, as JSON reads them back."""
    entry: dict[str, object] = {"labels": verified.labels, "missing_since": verified.missing_since}
    devices = {} if verified.devices is None else {"devices": [*verified.devices]}
    span = {"unclaimed_since": verified.unclaimed_since, "unclaimed_until": verified.unclaimed_until}
    return {**entry, **devices, **({} if verified.unclaimed_since is None else span)}


def from_journal(content: Mapping[str, object]) -> dict[str, Verified]:
    """Raises JournalError."""
    try:
        return {name: decode(Verified, entry, name, ignored=[]) for name, entry in content.items()}
    except DecodeError as error:
        raise JournalError(
            f"what nodes showed cannot be read: {error}; delete the journal's key to start over"
        ) from None


def _evidence(ledger: Ledger, shows: Shown) -> Verified | None:
    """What puts the node into one memory pool and shows its devices, as the pool wants it shown; None where nothing
    does."""
    try:
        pool = ledger.pool_of(shows.labels)
    except SeveralPoolsError:
        return None
    if pool is None or pool.sharing is not Sharing.MEMORY:
        return None
    by_labels = pool.source is not Source.SLICES and is_labelled(shows)
    devices = shows.devices if pool.source is not Source.LABELS else None
    if not by_labels and devices is None:
        return None
    keys = (*pool.node_selector, *(_SHOWN if by_labels else ()))
    return Verified(labels={key: shows.labels[key] for key in keys}, devices=devices)
