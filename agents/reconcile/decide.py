"""What each node must advertise: the pure half of reconcile (record 0000).

Units: whole MiB of GPU memory. A key is never written as 0: the kubelet enforces 0 and drops an absent key
(pkg/kubelet/lifecycle/predicate.go), so a retired key is removed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agents.kube.nodes import Node
from tenancy.ledger import Ledger, Pool, SeveralPoolsError, Sharing
from tenancy.names import (
    EVENT_ADVERTISED,
    EVENT_OVERBOUND,
    EVENT_REFUSED,
    EVENT_REMOVED,
    EVENT_WITHHELD,
    LABEL_GPU_COUNT,
    LABEL_GPU_MEMORY,
    Names,
)
from tenancy.quantity import QuantityError, canonical, whole


@dataclass(frozen=True, kw_only=True)
class ClusterState:
    """Every node, and by name of the node what the pods bound to it request; nodes without such pods are absent."""

    nodes: tuple[Node, ...]
    bound_mib: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Change:
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


Action = Change | NodeFinding


def decide(ledger: Ledger, snapshot: ClusterState) -> tuple[Action, ...]:
    """What to write and what to report. A ledger without pools: the part is being retired."""
    return tuple(
        action for node in snapshot.nodes for action in _judge(ledger, node, snapshot.bound_mib.get(node.name, 0))
    )


def members(pool: Pool, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes that the pool's selector matches."""
    return tuple(node for node in nodes if pool.matches(node.labels))


def status_patch(names: Names, change: Change) -> dict[str, object]:
    """The merge patch of nodes/status: both keys in both maps at once, a conflict if anybody wrote since."""
    values = {
        names.gpumem: None if change.gpumem_mib is None else canonical(change.gpumem_mib),
        names.gpu_count: None if change.gpu_count is None else canonical(change.gpu_count),
    }
    return {
        "metadata": {"resourceVersion": change.node.resource_version},
        "status": {"capacity": values, "allocatable": values},
    }


def _judge(ledger: Ledger, node: Node, bound_mib: int) -> Iterator[Action]:
    names, pool, doubt = ledger.names, None, None
    try:
        pool = ledger.pool_of(node.labels)
    except SeveralPoolsError as error:
        doubt = str(error)
    if pool is not None and pool.sharing is Sharing.MEMORY:
        doubt = _doubt(pool, node)
    if doubt is not None:
        yield NodeFinding(node=node, bound_mib=bound_mib, reason=EVENT_REFUSED, note=doubt, blocking=True)
        change = _withholding(names, node, bound_mib, doubt)
    elif pool is None or pool.sharing is not Sharing.MEMORY:
        change = _removal(node, bound_mib)
    else:
        change = _advertisement(pool, node, bound_mib)
        if bound_mib > pool.node_mib:
            yield NodeFinding(
                node=node, bound_mib=bound_mib, reason=EVENT_OVERBOUND, note=_overbound(pool, bound_mib), blocking=False
            )
    wanted = {names.gpumem: change.gpumem_mib, names.gpu_count: change.gpu_count}
    if any(_amount(held, key) != value for key, value in wanted.items() for held in (node.capacity, node.allocatable)):
        yield change


def _removal(node: Node, bound_mib: int) -> Change:
    note = "no pool that shares memory has this node: its keys are removed"
    if bound_mib:
        note += f", although pods that request {bound_mib} MiB run here; they keep running without a budget"
    return Change(node=node, bound_mib=bound_mib, gpumem_mib=None, gpu_count=None, reason=EVENT_REMOVED, note=note)


def _withholding(names: Names, node: Node, bound_mib: int, doubt: str) -> Change:
    """A capacity that cannot be verified takes nothing new: what is advertised falls to what runs here already."""
    advertised = names.gpumem in node.capacity or names.gpumem in node.allocatable
    held_mib = bound_mib if advertised and bound_mib else None
    note = f"advertises {held_mib or 'nothing'}, which is what runs here, until this is fixed: {doubt}"
    return Change(node=node, bound_mib=bound_mib, gpumem_mib=held_mib, gpu_count=None, reason=EVENT_WITHHELD, note=note)


def _advertisement(pool: Pool, node: Node, bound_mib: int) -> Change:
    wanted_mib = max(pool.node_mib, bound_mib)
    note = f"advertises {wanted_mib} MiB on {pool.device_count} devices: pool {pool.name}"
    return Change(
        node=node,
        bound_mib=bound_mib,
        gpumem_mib=wanted_mib,
        gpu_count=pool.device_count,
        reason=EVENT_ADVERTISED,
        note=note,
    )


def _overbound(pool: Pool, bound_mib: int) -> str:
    return (
        f"pods that ask for {bound_mib} MiB run here, pool {pool.name} has {pool.node_mib}: no less than what runs is "
        f"advertised; lower a budget, move a pod or raise pools.{pool.name}"
    )


def _doubt(pool: Pool, node: Node) -> str | None:
    """Why the node's capacity cannot be verified, and what to change; None when it can."""
    unknown, short = [], []
    for label, declared in ((LABEL_GPU_MEMORY, pool.memory_mib), (LABEL_GPU_COUNT, pool.device_count)):
        shown = _shown(node, label)
        if shown is None:
            unknown.append(label)
        elif shown < declared:
            short.append(f"{label} shows {shown}, {declared} declared")
    if unknown:
        return (
            f"the label {' and '.join(unknown)} is missing or not a number: pool {pool.name} cannot be verified; "
            "is GPU feature discovery running here?"
        )
    return f"{'; '.join(short)}: lower pools.{pool.name} or look at the node's devices" if short else None


def _shown(node: Node, label: str) -> int | None:
    value = node.labels.get(label, "")
    return int(value) if value.isascii() and value.isdigit() else None


def _amount(held: Mapping[str, str], key: str) -> int | None:
    """The amount under `key`, by value: 14k is 14000. None where it is absent, -1 where it is no whole number."""
    if key not in held:
        return None
    try:
        return whole(held[key])
    except QuantityError:
        return -1
