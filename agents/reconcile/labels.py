"""The labels by which a node was last verified: while they are gone, the node counts as it was, for a while.

Feature discovery takes its labels off while it restarts, and an operator's driver upgrade for minutes. What they showed
is kept in a journal, so that the wait goes on across runs. Times are whole seconds since 1970.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from agents.kube.journal import JournalError
from agents.kube.nodes import Node
from tenancy.decode import DecodeError, decode
from tenancy.ledger import Ledger, Pool, SeveralPoolsError, Sharing
from tenancy.names import LABEL_GPU_COUNT, LABEL_GPU_MEMORY

# A driver upgrade of NVIDIA's operator takes its labels off for as long as the driver is built and loaded: minutes.
HOLD_SECONDS = 600
_SHOWN = (LABEL_GPU_MEMORY, LABEL_GPU_COUNT)


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What a node of a memory pool showed when it was last verified, and since when it does not."""

    labels: Mapping[str, str]
    missing_since: int | None = None

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


def shown(labels: Mapping[str, str], label: str) -> int | None:
    """The number that feature discovery shows; None where it is missing or no number."""
    value = labels.get(label, "")
    return int(value) if value.isascii() and value.isdigit() else None


def counted(ledger: Ledger, node: Node, verified: Verified | None, now: int) -> Mapping[str, str]:
    """The node's labels as they count: those of its pool and of its devices stay for a while after they went.

    A device label that is there counts as it is, and so does another memory pool that verifies the node.
    """
    if verified is None or verified.lapsed(now) or verified.pool(ledger) is None or _evidence(ledger, node):
        return node.labels
    gone = {key: value for key, value in verified.labels.items() if key not in _SHOWN or key not in node.labels}
    return {**node.labels, **gone}


def remember(ledger: Ledger, nodes: Iterable[Node], before: Mapping[str, Verified], now: int) -> dict[str, Verified]:
    """What is known of the nodes after they were seen at `now`. Forgotten is who is gone, whose pool is not declared
    any more, and who has nothing left to take off."""
    after = {}
    for node in nodes:
        evidence, known = _evidence(ledger, node), before.get(node.name)
        if evidence is not None:
            after[node.name] = Verified(labels=evidence)
        elif known is not None and known.pool(ledger) is not None:
            # Not later than now: what a clock ahead of this one wrote would hold for as long as it was ahead.
            since = now if known.missing_since is None else min(known.missing_since, now)
            entry = Verified(labels=known.labels, missing_since=since)
            keys = {ledger.names.gpumem, ledger.names.gpu_count}
            if not entry.lapsed(now) or keys & {*node.capacity, *node.allocatable}:
                after[node.name] = entry
    return after


def to_journal(known: Mapping[str, Verified]) -> dict[str, object]:
    """The content of the journal."""
    return {name: asdict(entry) for name, entry in known.items()}


def from_journal(content: Mapping[str, object]) -> dict[str, Verified]:
    """Raises JournalError."""
    try:
        return {name: decode(Verified, entry, name, ignored=[]) for name, entry in content.items()}
    except DecodeError as error:
        raise JournalError(
            f"what nodes showed cannot be read: {error}; delete the journal's key to start over"
        ) from None


def _evidence(ledger: Ledger, node: Node) -> dict[str, str] | None:
    """The labels that put the node into one memory pool and show its devices; None where they do not."""
    try:
        pool = ledger.pool_of(node.labels)
    except SeveralPoolsError:
        return None
    if pool is None or pool.sharing is not Sharing.MEMORY or None in (shown(node.labels, label) for label in _SHOWN):
        return None
    return {key: node.labels[key] for key in (*pool.node_selector, *_SHOWN)}
