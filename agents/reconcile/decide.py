"""What each node must advertise: the pure half of reconcile (record 0000).

Units: whole MiB of GPU memory. A key is never written as 0: the kubelet enforces 0 and drops an absent key
(pkg/kubelet/lifecycle/predicate.go), so a retired key is removed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from agents.kube.nodes import Node
from agents.reconcile.doubt import doubt_of
from agents.reconcile.labels import HOLD_SECONDS, UNCLAIMED_SECONDS, Shown, Verified, counted, shown_by
from agents.reconcile.slices import UNPUBLISHED, Published
from tenancy.ledger import Ledger, PlacementMode, Pool, SeveralPoolsError, Sharing, Source
from tenancy.names import (
    EVENT_ADVERTISED,
    EVENT_LABELS_GONE,
    EVENT_OVERBOUND,
    EVENT_REFUSED,
    EVENT_REMOVED,
    EVENT_SHORT,
    EVENT_SLICES_GONE,
    EVENT_UNREADABLE,
    EVENT_WITHHELD,
    Names,
)
from tenancy.quantity import QuantityError, canonical, whole


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What pods bound to a node request: whole MiB, and devices. `unreadable` says of which pods it is not known."""

    mib: int = 0
    devices: int = 0
    unreadable: tuple[str, ...] = ()


NOBODY = Bound()


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """Every node; by name of the node what is bound to it, what its ResourceSlices show, and what it showed when it was
    last verified, where there is any. `claimed`: the nodes whose devices claims have, or may be given. `now`: seconds
    since 1970."""

    nodes: tuple[Node, ...]
    bound: Mapping[str, Bound] = field(default_factory=dict)
    published: Mapping[str, Published] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()
    verified: Mapping[str, Verified] = field(default_factory=dict)
    now: int = 0


@dataclass(frozen=True, kw_only=True)
class NodePatch:
    """Write these values on the node; None removes the key. `bound_mib` is what pods bound to it request."""

    node: Node
    bound_mib: int
    gpumem_mib: int | None
    gpu_count: int | None
    reason: str
    note: str

    @property
    def warning(self) -> bool:
        return self.reason != EVENT_ADVERTISED


@dataclass(frozen=True, kw_only=True)
class NodeFinding:
    """What no write can mend. `blocking`: the node is not as the ledger wants it."""

    node: Node
    bound_mib: int
    reason: str
    note: str
    blocking: bool


Action = NodePatch | NodeFinding


def decide(ledger: Ledger, snapshot: ClusterState) -> tuple[Action, ...]:
    """What to write and what to report. A ledger without pools: the part is being retired."""
    return tuple(action for node in snapshot.nodes for action in _judge(ledger, node, snapshot))


def members(ledger: Ledger, pool: Pool, snapshot: ClusterState) -> tuple[Node, ...]:
    """The nodes that the pool's selector matches, by their labels as they count."""
    return tuple(node for node in snapshot.nodes if pool.matches(_counted(ledger, node, snapshot).labels))


def status_patch(names: Names, change: NodePatch) -> dict[str, object]:
    """The merge patch of nodes/status: both keys in both maps at once, a conflict if anybody wrote since."""
    values = {
        names.gpumem: None if change.gpumem_mib is None else canonical(change.gpumem_mib),
        names.gpu_count: None if change.gpu_count is None else canonical(change.gpu_count),
    }
    return {
        "metadata": {"resourceVersion": change.node.resource_version},
        "status": {"capacity": values, "allocatable": values},
    }


def _counted(ledger: Ledger, node: Node, snapshot: ClusterState) -> Shown:
    shows = shown_by(node, snapshot.published)
    return counted(ledger, shows, snapshot.verified.get(node.name), snapshot.now)


def _judge(ledger: Ledger, node: Node, snapshot: ClusterState) -> Iterator[Action]:
    names, known, counts = ledger.names, snapshot.verified.get(node.name), _counted(ledger, node, snapshot)
    bound = _no_less_than_shown(names, node, snapshot.bound.get(node.name, NOBODY))
    pool, doubt = _pool(ledger, node, counts, snapshot)
    yield from (
        _finding(node, bound, reason, note) for reason, note in _gone(shown_by(node, snapshot.published), counts)
    )
    for problem in bound.unreadable:
        yield _finding(
            node, bound, EVENT_UNREADABLE, f"{problem}: no less than before is advertised while it runs here"
        )
    if doubt is not None:
        yield _finding(node, bound, EVENT_REFUSED, doubt, blocking=True)
        change = _withholding(names, node, bound, doubt)
    elif pool is not None and (claims := _claims(pool, names.gpumem, node, counts, snapshot)):
        if pool.placement is PlacementMode.EXTENDER:
            yield _finding(node, bound, EVENT_WITHHELD, f"takes no new pod with {names.gpumem}: {claims}")
        change = _withholding(names, node, bound, claims)
    elif pool is not None and pool.sharing is Sharing.MEMORY:
        offers = _offer(pool, counts)
        change = _advertisement(pool, offers, node, bound)
        if offers.short:
            yield _finding(node, bound, EVENT_SHORT, offers.short)
        if bound.mib > offers.mib:
            yield _finding(node, bound, EVENT_OVERBOUND, _overbound(pool, offers, bound.mib))
    elif (left := known.pool(ledger) if known else None) is not None:
        change = _withholding(names, node, bound, f"its labels are no longer those of pool {left.name}")
    else:
        change = _removal(node, bound)
    wanted = {names.gpumem: change.gpumem_mib, names.gpu_count: change.gpu_count}
    if any(_amount(held, key) != value for key, value in wanted.items() for held in (node.capacity, node.allocatable)):
        yield change


def _pool(ledger: Ledger, node: Node, counts: Shown, snapshot: ClusterState) -> tuple[Pool | None, str | None]:
    """The node's pool, and why its capacity cannot be verified."""
    try:
        pool = ledger.pool_of(counts.labels)
    except SeveralPoolsError as error:
        return None, str(error)
    if pool is None or pool.sharing is not Sharing.MEMORY:
        return pool, None
    problem = snapshot.published.get(node.name, UNPUBLISHED).problem
    return pool, doubt_of(pool, node, counts, problem, ledger.names)


def _claims(pool: Pool, gpumem: str, node: Node, counts: Shown, snapshot: ClusterState) -> str | None:
    """Why its memory is for claims, or may still be; None where it is not. A node that advertises all that it has is
    one whose exporter offers claims nothing (docs/adr/0031)."""
    if pool.placement is None or pool.sharing is not Sharing.MEMORY:
        return None
    if pool.placement is PlacementMode.DRA:
        return f"pools.{pool.name}.placement is {pool.placement}: its memory is for claims"
    if node.name in snapshot.claimed:
        return "claims have devices here, or its ResourceSlice offers them some; it takes pods again when they are gone"
    advertised = min(_amount(held, gpumem) or 0 for held in (node.capacity, node.allocatable))
    known = snapshot.verified.get(node.name)
    if advertised >= _offer(pool, counts).mib or (known is not None and known.is_unclaimed):
        return None
    return f"it is not known yet that for {UNCLAIMED_SECONDS} s no claim had, or could have, its devices"


@dataclass(frozen=True, kw_only=True)
class _Offer:
    """What a verified node has for its pool; `short` says where that is less than the pool declares."""

    mib: int
    devices: int
    short: str = ""


def _offer(pool: Pool, counts: Shown) -> _Offer:
    """All that is declared; of a pool that goes by slices alone, each device for what it has."""
    if pool.source is not Source.SLICES or counts.devices is None:
        return _Offer(mib=pool.node_mib, devices=pool.device_count)
    mib, devices = pool.shown_mib(counts.devices), min(len(counts.devices), pool.device_count)
    short = "" if (mib, devices) == (pool.node_mib, pool.device_count) else _short(pool, counts.devices, mib)
    return _Offer(mib=mib, devices=devices, short=short)


def _no_less_than_shown(names: Names, node: Node, bound: Bound) -> Bound:
    """Where a pod's request cannot be read, what is shown is taken for what is bound: it is not lowered."""
    if not bound.unreadable:
        return bound
    mib, devices = (max(_amount(node.capacity, key) or 0, 0) for key in (names.gpumem, names.gpu_count))
    return replace(bound, mib=max(bound.mib, mib), devices=max(bound.devices, devices))


def _finding(node: Node, bound: Bound, reason: str, note: str, *, blocking: bool = False) -> NodeFinding:
    return NodeFinding(node=node, bound_mib=bound.mib, reason=reason, note=note, blocking=blocking)


def _removal(node: Node, bound: Bound) -> NodePatch:
    note = "no pool that shares memory has this node: its keys are removed"
    if bound.mib:
        note += f", although pods that request {bound.mib} MiB run here; they keep running without a budget"
    return NodePatch(node=node, bound_mib=bound.mib, gpumem_mib=None, gpu_count=None, reason=EVENT_REMOVED, note=note)


def _withholding(names: Names, node: Node, bound: Bound, doubt: str) -> NodePatch:
    """A capacity that cannot be verified takes nothing new: what is advertised falls to what runs here already."""
    held_mib, devices = (
        amount if amount and (key in node.capacity or key in node.allocatable) else None
        for key, amount in ((names.gpumem, bound.mib), (names.gpu_count, bound.devices))
    )
    note = f"advertises {held_mib or 'nothing'}, which is what runs here, until this is fixed: {doubt}"
    return NodePatch(
        node=node, bound_mib=bound.mib, gpumem_mib=held_mib, gpu_count=devices, reason=EVENT_WITHHELD, note=note
    )


def _advertisement(pool: Pool, offers: _Offer, node: Node, bound: Bound) -> NodePatch:
    wanted_mib, devices = max(offers.mib, bound.mib), max(offers.devices, bound.devices)
    note = f"advertises {wanted_mib} MiB on {devices} devices: pool {pool.name}"
    return NodePatch(
        node=node,
        bound_mib=bound.mib,
        gpumem_mib=wanted_mib,
        gpu_count=devices,
        reason=EVENT_ADVERTISED,
        note=note,
    )


def _gone(shows: Shown, counts: Shown) -> Iterator[tuple[str, str]]:
    """Reason and words of what counts though it is not shown any more."""
    wait = f"count for {HOLD_SECONDS // 60} minutes more, then nothing new is taken here: is"
    if counts.labels != shows.labels:
        gone = (f"{key}={value}" for key, value in sorted(counts.labels.items()) if shows.labels.get(key) != value)
        yield EVENT_LABELS_GONE, f"the labels {', '.join(gone)} went; they {wait} feature discovery running?"
    if counts.devices != shows.devices:
        sizes = ", ".join(map(str, counts.devices or ()))
        yield (
            EVENT_SLICES_GONE,
            f"the ResourceSlices that showed devices of {sizes} MiB went; they {wait} NVIDIA's DRA driver, or the "
            "exporter, running here?",
        )


def _overbound(pool: Pool, offers: _Offer, bound_mib: int) -> str:
    has = f"{offers.mib} here" if offers.short else f"{offers.mib}"
    return (
        f"pods that ask for {bound_mib} MiB run here, pool {pool.name} has {has}: no less than what runs is "
        f"advertised; lower a budget, move a pod or raise pools.{pool.name}"
    )


def _short(pool: Pool, devices: tuple[int, ...], mib: int) -> str:
    return (
        f"ResourceSlices show devices of {', '.join(map(str, devices))} MiB, pool {pool.name} declares "
        f"{pool.device_count} of {pool.memory_mib}: each counts for what it has, {mib} of {pool.node_mib} MiB; "
        f"lower pools.{pool.name}, give such nodes a pool of their own, or look at the node's devices"
    )


def _amount(held: Mapping[str, str], key: str) -> int | None:
    """The amount under `key`, by value: 14k is 14000. None where it is absent, -1 where it is no whole number."""
    if key not in held:
        return None
    try:
        return whole(held[key])
    except QuantityError:
        return -1
