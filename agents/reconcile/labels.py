"""Stores the labels and devices that last verified a node, because labels and ResourceSlices may be missing for
minutes.

GPU feature discovery removes its labels during a restart. The kubelet removes a DRA driver's ResourceSlices during the
driver's restart. An upgrade of the NVIDIA driver removes both the labels and the ResourceSlices. A journal keeps the
labels and devices between runs. Times are whole seconds since 1970.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agents.kube.device_slices import UNPUBLISHED, PublishedDevices
from agents.kube.journal import JournalError
from agents.kube.nodes import Node
from tenancy.choices import Sharing, Source
from tenancy.decode import DecodeError, decode
from tenancy.ledger import Ledger, Pool, SeveralPoolsError
from tenancy.names import LABEL_GPU_COUNT, LABEL_GPU_MEMORY

# The time during which missing labels still count. An upgrade of the NVIDIA driver may take minutes.
HOLD_SECONDS = 600
_SHOWN = (LABEL_GPU_MEMORY, LABEL_GPU_COUNT)


@dataclass(frozen=True, kw_only=True)
class NodeEvidence:
    """A node's labels, and the MiB of each device in its ResourceSlices, the largest first.

    If the devices are not known, `devices` is None. `problem` is then the reason, or None if there are no
    ResourceSlices.
    """

    labels: Mapping[str, str]
    devices: tuple[int, ...] | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class VerifiedEvidence:
    """The labels and devices that last verified a node, and the time since which they are missing."""

    labels: Mapping[str, str]
    missing_since: int | None = None
    devices: tuple[int, ...] | None = None

    def lapsed(self, now: int) -> bool:
        """Returns True if labels and devices have been missing for at least HOLD_SECONDS, and no longer count."""
        return self.missing_since is not None and now - self.missing_since >= HOLD_SECONDS

    def pool(self, ledger: Ledger) -> Pool | None:
        """Returns the memory pool of these labels, or None if the ledger no longer has such a pool."""
        return _memory_pool(ledger, self.labels)


def evidence_of(node: Node, slices: Mapping[str, PublishedDevices]) -> NodeEvidence:
    found = slices.get(node.name, UNPUBLISHED)
    return NodeEvidence(labels=node.labels, devices=found.devices, problem=found.problem)


def number_in_label(labels: Mapping[str, str], label: str) -> int | None:
    """Returns the number in a label of GPU feature discovery, or None if the label is missing or its value is not a
    number.
    """
    value = labels.get(label, "")
    return int(value) if value.isascii() and value.isdigit() else None


def is_labelled(shows: NodeEvidence) -> bool:
    """Returns True if the labels of GPU feature discovery show the devices."""
    return None not in (number_in_label(shows.labels, label) for label in _SHOWN)


def fill_in_missing(ledger: Ledger, shows: NodeEvidence, verified: VerifiedEvidence | None, now: int) -> NodeEvidence:
    """Adds the last verified labels and devices where they have been missing for less than HOLD_SECONDS.

    Present device labels and ResourceSlices are not changed. If the present labels and devices verify the node for a
    pool, nothing is added.
    """
    if verified is None or verified.lapsed(now) or verified.pool(ledger) is None or _evidence(ledger, shows):
        return shows
    gone = {key: value for key, value in verified.labels.items() if key not in _SHOWN or key not in shows.labels}
    devices = verified.devices if shows.devices is None else shows.devices
    return replace(shows, labels={**shows.labels, **gone}, devices=devices)


def remember_verified(
    ledger: Ledger,
    nodes: Iterable[Node],
    before: Mapping[str, VerifiedEvidence],
    now: int,
    slices: Mapping[str, PublishedDevices] | None = None,
) -> dict[str, VerifiedEvidence]:
    """Returns the verified labels and devices by node. The nodes were read at `now`.

    `slices` has the published devices by node. Drops deleted nodes, and nodes that no longer have a declared pool.
    Drops a node without capacity after its missing labels have ceased to count.
    """
    after = {}
    for node in nodes:
        evidence, known = _evidence(ledger, evidence_of(node, slices or {})), before.get(node.name)
        if evidence is not None:
            after[node.name] = evidence
        elif known is not None and known.pool(ledger) is not None:
            # `since` is at most `now`, because a later time from a wrong clock would prolong the wait.
            since = now if known.missing_since is None else min(known.missing_since, now)
            entry = replace(known, missing_since=since)
            keys = {ledger.names.gpumem, ledger.names.gpu_count}
            if not entry.lapsed(now) or keys & {*node.capacity, *node.allocatable}:
                after[node.name] = entry
    return after


def to_journal(known: Mapping[str, VerifiedEvidence]) -> dict[str, object]:
    """Returns the content of the journal, with lists in place of tuples."""
    return {name: _entry(verified) for name, verified in known.items()}


def _entry(verified: VerifiedEvidence) -> dict[str, object]:
    devices = {} if verified.devices is None else {"devices": [*verified.devices]}
    return {"labels": verified.labels, "missing_since": verified.missing_since, **devices}


def from_journal(content: Mapping[str, object]) -> dict[str, VerifiedEvidence]:
    """Reads the journal's content. Raises JournalError."""
    try:
        return {name: decode(VerifiedEvidence, entry, name, ignored=[]) for name, entry in content.items()}
    except DecodeError as error:
        raise JournalError(
            f"what nodes showed cannot be read: {error}; delete the journal's key to start over"
        ) from None


def _evidence(ledger: Ledger, shows: NodeEvidence) -> VerifiedEvidence | None:
    """Returns the present labels and devices if they verify the node for one memory pool, else None."""
    pool = _memory_pool(ledger, shows.labels)
    if pool is None:
        return None
    by_labels = pool.source is not Source.SLICES and is_labelled(shows)
    devices = shows.devices if pool.source is not Source.LABELS else None
    if not by_labels and devices is None:
        return None
    keys = (*pool.node_selector, *(_SHOWN if by_labels else ()))
    return VerifiedEvidence(labels={key: shows.labels[key] for key in keys}, devices=devices)


def _memory_pool(ledger: Ledger, labels: Mapping[str, str]) -> Pool | None:
    try:
        pool = ledger.pool_of(labels)
    except SeveralPoolsError:
        return None
    return pool if pool is not None and pool.sharing is Sharing.MEMORY else None
