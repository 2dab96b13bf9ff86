"""Stores the labels and devices with which reconcile last verified each node. Labels and ResourceSlices of a node may
be missing for minutes.

GPU feature discovery removes its labels during a restart. The kubelet removes the ResourceSlices of a DRA driver while
the driver restarts. An upgrade of NVIDIA's driver removes the labels and the ResourceSlices of a node. A journal keeps
the labels and devices from one run to the next. All times are whole seconds since 1970.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

from agents.kube.device_slices import UNPUBLISHED, PublishedDevices
from agents.kube.journal import JournalError
from agents.kube.nodes import Node
from tenancy.choices import Sharing, Source
from tenancy.decode import DecodeError, decode
from tenancy.ledger import Ledger, Pool, SeveralPoolsError
from tenancy.names import LABEL_GPU_COUNT, LABEL_GPU_MEMORY

# The seconds for which reconcile uses a node's last labels instead of missing labels. An upgrade of NVIDIA's driver can
# take minutes.
HOLD_SECONDS = 600
_MOST_DIGITS = 15  # The maximum number of digits in a label of GPU feature discovery.
_SHOWN = (LABEL_GPU_MEMORY, LABEL_GPU_COUNT)


@dataclass(frozen=True, kw_only=True)
class NodeEvidence:
    """A node's labels, and the MiB of each device in the node's ResourceSlices, with the largest first.

    If the devices are not known, `devices` is None and `problem` is the reason. If the node has no ResourceSlices,
    `devices` and `problem` are None.
    """

    labels: Mapping[str, str]
    devices: tuple[int, ...] | None = None
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class VerifiedEvidence:
    """The labels and devices with which a node was last verified. `missing_since` is the time when labels or devices
    were first missing.
    """

    labels: Mapping[str, str]
    missing_since: int | None = None
    devices: tuple[int, ...] | None = None

    def lapsed(self, now: int) -> bool:
        """Returns True if labels or devices of the node have been missing for at least HOLD_SECONDS. After
        HOLD_SECONDS, reconcile no longer uses the stored labels and devices.
        """
        return self.missing_since is not None and now - self.missing_since >= HOLD_SECONDS

    def pool(self, ledger: Ledger) -> Pool | None:
        """Returns the memory-sharing pool that these labels select, or None if the ledger no longer has the pool."""
        return _memory_pool(ledger, self.labels)


def evidence_of(node: Node, slices: Mapping[str, PublishedDevices]) -> NodeEvidence:
    found = slices.get(node.name, UNPUBLISHED)
    return NodeEvidence(labels=node.labels, devices=found.devices, problem=found.problem)


def number_in_label(labels: Mapping[str, str], label: str) -> int | None:
    """Returns the number in a label of GPU feature discovery, or None if the label is missing or has no number."""
    value = labels.get(label, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS else None


def is_labelled(shows: NodeEvidence) -> bool:
    """Returns True if the labels of GPU feature discovery show the node's devices."""
    return None not in (number_in_label(shows.labels, label) for label in _SHOWN)


def fill_in_missing(ledger: Ledger, shows: NodeEvidence, verified: VerifiedEvidence | None, now: int) -> NodeEvidence:
    """Adds the last verified labels and devices to `shows` if they have been missing for less than HOLD_SECONDS.

    Labels and ResourceSlices that the node still has stay unchanged. If the node's present labels and devices verify
    the node for a pool, nothing is added.
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
    """Returns the verified labels and devices of each node. The nodes were read at the time `now`.

    `slices` maps each node to its published devices. The result leaves out deleted nodes, and nodes that no longer
    belong to a declared pool. After HOLD_SECONDS without its labels, a node without capacity is left out too.
    """
    found = {node.name: _remembered(ledger, node, before.get(node.name), now, slices or {}) for node in nodes}
    return {name: each for name, each in found.items() if each is not None}


def _remembered(
    ledger: Ledger, node: Node, known: VerifiedEvidence | None, now: int, slices: Mapping[str, PublishedDevices]
) -> VerifiedEvidence | None:
    evidence = _evidence(ledger, evidence_of(node, slices))
    if evidence is not None or known is None or known.pool(ledger) is None:
        return evidence
    # `since` is at most `now`, because a later time from a wrong clock would prolong the wait.
    since = now if known.missing_since is None else min(known.missing_since, now)
    entry = replace(known, missing_since=since)
    keys = {ledger.names.gpumem, ledger.names.gpu_count}
    return entry if not entry.lapsed(now) or keys & {*node.capacity, *node.allocatable} else None


def to_journal(known: Mapping[str, VerifiedEvidence]) -> dict[str, object]:
    return {name: asdict(verified) for name, verified in known.items()}


def from_journal(content: Mapping[str, object]) -> dict[str, VerifiedEvidence]:
    """Reads the content of the journal. Raises JournalError."""
    try:
        return {name: decode(VerifiedEvidence, entry, name, ignored=[]) for name, entry in content.items()}
    except DecodeError as error:
        raise JournalError(
            f"what nodes showed cannot be read: {error}; delete the journal's key to start over"
        ) from None


def _evidence(ledger: Ledger, shows: NodeEvidence) -> VerifiedEvidence | None:
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
