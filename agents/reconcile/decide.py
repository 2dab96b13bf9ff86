"""Decides how much gpumem each node must advertise. Units: whole MiB of GPU memory.

reconcile removes a retired key instead of writing the amount 0. If the amount of a key is 0, the kubelet rejects pods
that request the key. If a key is absent, the kubelet ignores the request for the key
(pkg/kubelet/lifecycle/predicate.go).

A node advertises as much gpu-count as gpumem. Each pod takes at least 1 MiB of each of its devices, so gpu-count is
never used up before gpumem. The number of devices is no limit for gpu-count: several pods share a device.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from agents.kube.device_slices import PublishedDevices
from agents.kube.nodes import Node
from agents.reconcile.doubt import doubt_of
from agents.reconcile.labels import HOLD_SECONDS, NodeEvidence, VerifiedEvidence, evidence_of, fill_in_missing
from agents.runtime.items import Unjudged, judged
from tenancy import names
from tenancy.choices import Sharing, Source
from tenancy.ledger import Ledger, Pool, SeveralPoolsError
from tenancy.names import Names
from tenancy.quantity import QuantityError, canonical, whole


@dataclass(frozen=True, kw_only=True)
class BoundRequests:
    """The MiB that all pods bound to one node request together. `unreadable` has an error message for each pod with an
    invalid request.
    """

    mib: int = 0
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """The state of all nodes, as reconcile reads it. `bound` maps the name of each node to the requests of its bound
    pods.

    `published` maps the name of each node to the devices in its ResourceSlices. `verified` maps the name of each node
    to the labels and devices with which the node was last verified. `now` is the time in seconds since 1970.
    """

    nodes: tuple[Node, ...]
    bound: Mapping[str, BoundRequests] = field(default_factory=dict)
    published: Mapping[str, PublishedDevices] = field(default_factory=dict)
    verified: Mapping[str, VerifiedEvidence] = field(default_factory=dict)
    now: int = 0


@dataclass(frozen=True, kw_only=True)
class NodePatch:
    """The amount that reconcile must write to a node's gpumem and gpu-count. The amount None removes both keys.
    `bound_mib` is the sum of the bound pods' requests.
    """

    node: Node
    bound_mib: int
    gpumem_mib: int | None
    reason: str
    note: str


@dataclass(frozen=True, kw_only=True)
class NodeFinding:
    """A problem that reconcile reports but cannot solve. If a problem is `blocking`, reconcile does not advertise the
    capacity of the node.
    """

    node: Node
    bound_mib: int
    reason: str
    note: str
    blocking: bool = False


Action = NodePatch | NodeFinding


def decide(ledger: Ledger, snapshot: ClusterState) -> tuple[Action, ...]:
    """Returns the values to write to the nodes, and the problems to report. If the ledger has no pools, removes all
    keys from all nodes.
    """
    return tuple(action for node in snapshot.nodes for action in _actions(ledger, node, snapshot))


def pool_nodes(ledger: Ledger, pool: Pool, snapshot: ClusterState) -> tuple[Node, ...]:
    """Returns the nodes of the pool. If labels of a node are missing, they count as present for HOLD_SECONDS."""
    return tuple(node for node in snapshot.nodes if pool.matches(_counted(ledger, node, snapshot).labels))


def status_patch(keys: Names, change: NodePatch) -> dict[str, object]:
    """Returns the merge patch for the node's nodes/status.

    The patch writes the keys gpumem and gpu-count together. The patch fails with a conflict if the node has changed.
    """
    amount = None if change.gpumem_mib is None else canonical(change.gpumem_mib)
    values = {keys.gpumem: amount, keys.gpu_count: amount}
    return {
        "metadata": {"resourceVersion": change.node.resource_version},
        "status": {"capacity": values, "allocatable": values},
    }


def _counted(ledger: Ledger, node: Node, snapshot: ClusterState) -> NodeEvidence:
    return fill_in_missing(
        ledger, evidence_of(node, snapshot.published), snapshot.verified.get(node.name), snapshot.now
    )


def _actions(ledger: Ledger, node: Node, snapshot: ClusterState) -> tuple[Action, ...]:
    """Returns the actions on one node. reconcile writes nothing to a node that it cannot judge."""
    found = judged(lambda: tuple(_judge(ledger, node, snapshot)))
    if not isinstance(found, Unjudged):
        return found
    note = f"cannot be judged, so it stays as it is: {found.why}"
    return (NodeFinding(node=node, bound_mib=0, reason=names.EVENT_UNREADABLE, note=note, blocking=True),)


def _judge(ledger: Ledger, node: Node, snapshot: ClusterState) -> Iterator[Action]:
    keys, known, counts = ledger.names, snapshot.verified.get(node.name), _counted(ledger, node, snapshot)
    bound = _no_less_than_shown(keys, node, snapshot.bound.get(node.name, BoundRequests()))
    finding = partial(NodeFinding, node=node, bound_mib=bound.mib)
    for reason, note in _gone(evidence_of(node, snapshot.published), counts):
        yield finding(reason=reason, note=note)
    for problem in bound.unreadable:
        note = f"{problem}: no less than before is advertised while it runs here"
        yield finding(reason=names.EVENT_UNREADABLE, note=note)
    pool, doubt = _pool(ledger, node, counts)
    if doubt is not None:
        yield finding(reason=names.EVENT_REFUSED, note=doubt, blocking=True)
        change = _withholding(keys, node, bound, doubt)
    elif pool is not None:
        offers = _offer(pool, counts)
        change = _advertisement(pool, offers, node, bound)
        if offers.short:
            yield finding(reason=names.EVENT_SHORT, note=offers.short)
        if bound.mib > offers.mib:
            yield finding(reason=names.EVENT_OVERBOUND, note=_overbound(pool, offers, bound.mib))
    elif (left := known.pool(ledger) if known else None) is not None:
        change = _withholding(keys, node, bound, f"its labels are no longer those of pool {left.name}")
    else:
        change = _removal(node, bound)
    shown = (_amount(held, key) for held in (node.capacity, node.allocatable) for key in (keys.gpumem, keys.gpu_count))
    if any(amount != change.gpumem_mib for amount in shown):
        yield change


def _pool(ledger: Ledger, node: Node, counts: NodeEvidence) -> tuple[Pool | None, str | None]:
    """Returns the node's pool if the pool shares memory, or None. If the node's capacity cannot be verified, also
    returns the reason.
    """
    try:
        pool = ledger.pool_of(counts.labels)
    except SeveralPoolsError as error:
        return None, str(error)
    if pool is None or pool.sharing is not Sharing.MEMORY:
        return None, None
    return pool, doubt_of(pool, node, counts, ledger.names)


@dataclass(frozen=True, kw_only=True)
class _Offer:
    """The capacity of a verified node. `short` is a message if the node's capacity is below its declared capacity, or
    "".
    """

    mib: int
    devices: int
    short: str = ""


def _offer(pool: Pool, counts: NodeEvidence) -> _Offer:
    """Returns the capacity that the node's pool declares. For a pool with `source: slices`, returns the sum of the
    memory of the node's devices.
    """
    if pool.source is not Source.SLICES or counts.devices is None:
        return _Offer(mib=pool.node_mib, devices=pool.device_count)
    mib, devices = pool.shown_mib(counts.devices), min(len(counts.devices), pool.device_count)
    short = "" if (mib, devices) == (pool.node_mib, pool.device_count) else _short(pool, counts.devices, mib)
    return _Offer(mib=mib, devices=devices, short=short)


def _no_less_than_shown(keys: Names, node: Node, bound: BoundRequests) -> BoundRequests:
    """Returns `bound`.

    If a pod's request is invalid, returns at least the amount that the node advertises now, so that reconcile does not
    lower it.
    """
    if not bound.unreadable:
        return bound
    return replace(bound, mib=max(bound.mib, _amount(node.capacity, keys.gpumem) or 0))


def _removal(node: Node, bound: BoundRequests) -> NodePatch:
    note = "no pool that shares memory has this node: its keys are removed"
    if bound.mib:
        note += f", although pods that request {bound.mib} MiB run here; they keep running without a budget"
    return NodePatch(node=node, bound_mib=bound.mib, gpumem_mib=None, reason=names.EVENT_REMOVED, note=note)


def _withholding(keys: Names, node: Node, bound: BoundRequests, doubt: str) -> NodePatch:
    """Returns a patch that lowers the advertised amount to the sum of the bound pods' requests. After a patch to this
    sum, an unverified node takes no new pod.
    """
    is_shown = keys.gpumem in node.capacity or keys.gpumem in node.allocatable
    held_mib = bound.mib if bound.mib and is_shown else None
    note = f"advertises {held_mib or 'nothing'}, which is what runs here, until this is fixed: {doubt}"
    return NodePatch(node=node, bound_mib=bound.mib, gpumem_mib=held_mib, reason=names.EVENT_WITHHELD, note=note)


def _advertisement(pool: Pool, offers: _Offer, node: Node, bound: BoundRequests) -> NodePatch:
    mib = max(offers.mib, bound.mib)
    note = f"advertises {mib} MiB on {offers.devices} devices: pool {pool.name}"
    return NodePatch(node=node, bound_mib=bound.mib, gpumem_mib=mib, reason=names.EVENT_ADVERTISED, note=note)


def _gone(shows: NodeEvidence, counts: NodeEvidence) -> Iterator[tuple[str, str]]:
    """Yields the reason and the message of an Event while reconcile uses old labels or ResourceSlices instead of
    missing ones.
    """
    wait = f"count for {HOLD_SECONDS // 60} minutes more, then nothing new is taken here: is"
    if counts.labels != shows.labels:
        gone = (f"{key}={value}" for key, value in sorted(counts.labels.items()) if shows.labels.get(key) != value)
        yield names.EVENT_LABELS_GONE, f"the labels {', '.join(gone)} went; they {wait} feature discovery running?"
    if counts.devices != shows.devices:
        sizes = ", ".join(map(str, counts.devices or ()))
        yield (
            names.EVENT_SLICES_GONE,
            f"the ResourceSlices that showed devices of {sizes} MiB went; they {wait} NVIDIA's DRA driver, or the "
            "exporter, running here?",
        )


def _overbound(pool: Pool, offers: _Offer, bound_mib: int) -> str:
    if pool.has_room_for_nodes:
        remedy = f"lower a budget, or move a pod to another node; if there is none, raise pools.{pool.name}.nodes"
    else:
        remedy = f"lower a budget, or end a pod, because pools.{pool.name} selects this node alone"
    return (
        f"The pods on this node ask for {bound_mib} MiB, and pool {pool.name} has {offers.mib} here. What runs stays "
        f"advertised, and no new pod starts here; {remedy}"
    )


def _short(pool: Pool, devices: tuple[int, ...], mib: int) -> str:
    return (
        f"ResourceSlices show devices of {', '.join(map(str, devices))} MiB, pool {pool.name} declares "
        f"{pool.device_count} of {pool.memory_mib}: each counts for what it has, {mib} of {pool.node_mib} MiB; "
        f"lower pools.{pool.name}, give such nodes a pool of their own, or check the node's devices"
    )


def _amount(held: Mapping[str, str], key: str) -> int | None:
    """Returns the amount of `key` as a number, such as 14000 for 14k.

    Returns None if the key is absent, and -1 if its value is not a whole number.
    """
    if key not in held:
        return None
    try:
        return whole(held[key])
    except QuantityError:
        return -1
