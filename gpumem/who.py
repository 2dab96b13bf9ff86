"""Implements `kubectl gpumem who`.

Reports the free memory of each pool, the pods on each device with their budgets and use, the waiting pods, and the
on-demand workloads. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agents.extender.cache.node_info import DeviceUsage, NodeInfo
from agents.extender.cache.pod_info import PodInfo
from agents.runtime.errors import AgentError
from agents.telemetry.client import NodeTelemetry
from gpumem.cluster import ClusterSnapshot, GatedWorkload, age
from gpumem.nodes import advertised_mib, closed_nodes, held_mib
from gpumem.pods import WholePod
from gpumem.pools import PoolRow, WholePoolRow, pool_rows, whole_pool_rows
from gpumem.queues import QueueRow, queue_rows
from gpumem.report import row
from gpumem.rows import DeviceRow, Holder, NodeRow, WholeRow
from tenancy.choices import Sharing
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.recycle import overshoot_mib
from tenancy.devices.waiting import seats_for
from tenancy.ledger import Ledger, Pool
from tenancy.names import GPU
from tenancy.units import MIB


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Selects the part of the cluster that the report shows.

    A field of the selection that is None selects everything. `uids` are the UIDs of the pods to show.
    """

    namespace: str | None = None
    node: str | None = None
    pool: str | None = None
    uids: frozenset[str] | None = None

    def takes(self, node: str, pool: str | None) -> bool:
        return self.node in (None, node) and self.pool in (None, pool)

    def takes_pod(self, namespace: str, uid: str) -> bool:
        return self.namespace in (None, namespace) and (self.uids is None or uid in self.uids)


EVERYTHING = Filter()


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A pod that requests GPU memory and is not on a node yet."""

    namespace: str
    name: str
    mib: int
    gpus: int
    seat: str | None
    age: str


@dataclass(frozen=True, kw_only=True)
class Who:
    """The report of `kubectl gpumem who`.

    `scope` is the only namespace in the report, or None for all namespaces. `pools`, `whole_pools` and `queues` are
    empty if the filter selects a node or pods. `own` is the tenant that the user asks about, or None.
    `own_budget_mib` is the sum of this tenant's seats. `own_held_mib` is the sum that the tenant's pods hold.
    """

    scope: str | None
    own: str | None
    own_budget_mib: int | None
    own_held_mib: int | None
    pools: tuple[PoolRow, ...]
    whole_pools: tuple[WholePoolRow, ...]
    nodes: tuple[NodeRow, ...]
    whole: tuple[WholeRow, ...]
    waiting: tuple[Waiting, ...]
    gates: tuple[GatedWorkload, ...]
    queues: tuple[QueueRow, ...]
    unknown: tuple[str, ...]
    observed: str = ""


class UnknownNameError(AgentError):
    """Raised when a flag names an object that does not exist. The message of the error lists the possible names."""


def check_pool(ledger: Ledger, pool: str | None) -> None:
    """Raises UnknownNameError if the ledger has no such pool."""
    _check("--pool", pool, [each.name for each in ledger.pools], "pool of the ledger")


def check(cluster: ClusterSnapshot, wanted: Filter) -> None:
    """Raises UnknownNameError if the pool or the node of the filter does not exist."""
    check_pool(cluster.ledger, wanted.pool)
    nodes = [
        name
        for name, node in sorted(cluster.nodes.items())
        if any(pool.matches(node["metadata"].get("labels") or {}) for pool in cluster.ledger.pools)
    ]
    _check("--node", wanted.node, nodes, "node of a pool")


def _check(flag: str, name: str | None, known: Sequence[str], kind: str) -> None:
    if name is not None and name not in known:
        raise UnknownNameError(f"{flag} {name!r} is no {kind}; these are: {', '.join(known) or 'none'}")


def who(cluster: ClusterSnapshot, wanted: Filter = EVERYTHING) -> Who:
    """Returns the report on all nodes of the ledger's pools."""
    gaps, closed = [*cluster.gaps], closed_nodes(cluster)
    nodes, whole = _nodes(cluster, wanted, closed), tuple(_whole_devices(cluster, wanted, closed))
    for row_of_node in nodes:
        reading = cluster.measured.get(row_of_node.node)
        if reading is not None and reading.problem:
            gaps.append(f"{row_of_node.node}: what is in use: {reading.problem}")
    narrow = bool(wanted.node or wanted.uids is not None)
    everybody = _nodes(cluster, Filter(pool=wanted.pool), closed) if wanted.namespace else nodes
    own = cluster.own or wanted.namespace
    return Who(
        observed=cluster.ledger.observed,
        scope=cluster.own,
        own=own,
        own_budget_mib=None if own is None else cluster.ledger.budget_mib(own),
        own_held_mib=None
        if own is None
        else sum(pod.request.total_mib for pod in cluster.bound().values() if pod.namespace == own),
        pools=() if narrow else tuple(pool_rows(cluster, wanted.pool, everybody)),
        whole_pools=() if narrow else tuple(whole_pool_rows(cluster, wanted.pool, whole)),
        nodes=nodes,
        whole=whole,
        waiting=tuple(_waiting(cluster, wanted)),
        gates=tuple(
            each
            for each in cluster.gates
            if wanted.namespace in (None, each.namespace) and wanted.pool in (None, each.pool) and not narrow
        ),
        queues=() if narrow else _queues(cluster, wanted.pool, gaps),
        unknown=tuple(gaps),
    )


def _nodes(cluster: ClusterSnapshot, wanted: Filter, closed: Mapping[str, str]) -> tuple[NodeRow, ...]:
    holders = _Holders(cluster, wanted, closed)
    shared = {pool.name for pool in cluster.ledger.shared_pools}
    rows = []
    for node in cluster.cache.snapshot():
        pool = node.inventory.pool if node.inventory else None
        known = node.devices or node.adrift or pool in shared
        if known and wanted.takes(node.node, pool):
            rows.append(holders.node(node))
    return tuple(rows)


def _queues(cluster: ClusterSnapshot, pool: str | None, gaps: list[str]) -> tuple[QueueRow, ...]:
    """Returns the GPUs of each ClusterQueue. If a queue cannot be read, the function adds a sentence to `gaps`."""
    rows, problems = queue_rows(cluster.cluster_queues, cluster.ledger, pool)
    gaps.extend(problems)
    return rows


def _device(
    usage: DeviceUsage,
    reading: NodeTelemetry | None,
    floor_mib: int,
    kept_mib: int,
    pods: Iterable[Holder],
    *,
    most_mib: int,
) -> DeviceRow:
    """Returns the row of a device. `most_mib` is the most that the device's node has for new pods."""
    seen = next((each for each in reading.devices if each.uuid == usage.uuid), None) if reading else None
    return row(
        DeviceRow,
        usage,
        offered_mib=usage.mib,
        free_mib=max(min(usage.offered_mib - usage.held_mib, most_mib), 0),
        room_mib=min(usage.room_mib, most_mib),
        kept_mib=kept_mib,
        measured_used_mib=seen.used_bytes // MIB if seen else None,
        floor_mib=floor_mib,
        pods=tuple(pods),
    )


def _whole_devices(cluster: ClusterSnapshot, wanted: Filter, closed: Mapping[str, str]) -> Iterator[WholeRow]:
    by_node: dict[str, list[WholePod]] = {}
    for pod in cluster.pods:
        if pod.node and not pod.ended:
            by_node.setdefault(pod.node, []).append(pod)
    for name, node in sorted(cluster.nodes.items()):
        pool = _whole_pool(cluster, node["metadata"].get("labels") or {})
        if pool is None or not wanted.takes(name, pool.name):
            continue
        offered = ((node.get("status") or {}).get("allocatable") or {}).get(GPU)
        users = [pod for pod in by_node.get(name, ()) if pod.request(GPU)]
        yield WholeRow(
            node=name,
            pool=pool.name,
            offered=None if offered is None else int(offered),
            held=sum(pod.request(GPU) for pod in users),
            pods=tuple(sorted(str(pod) for pod in users if wanted.takes_pod(pod.namespace, pod.uid))),
            unusable=closed.get(name),
        )


def _whole_pool(cluster: ClusterSnapshot, labels: Mapping[str, str]) -> Pool | None:
    mine = [pool for pool in cluster.ledger.pools if pool.matches(labels)]
    return mine[0] if len(mine) == 1 and mine[0].sharing is Sharing.WHOLE else None


class _Holders:
    """Finds the pods on the devices of one cluster."""

    def __init__(self, cluster: ClusterSnapshot, wanted: Filter, closed: Mapping[str, str]) -> None:
        self._cluster = cluster
        self._closed = closed
        self._wanted = wanted
        self._bound = cluster.bound()
        self._pods = {pod.uid: pod for pod in cluster.pods}
        self._seats: dict[tuple[str, MemoryRequest, str | None, str], str | None] = {}

    def node(self, node: NodeInfo) -> NodeRow:
        reading, devices = self._cluster.measured.get(node.node), node.inventory
        floor_mib, pool = (devices.floor_mib, devices.pool) if devices else (0, None)
        unusable = self._closed.get(node.node, devices.unusable if devices else None)
        advertised = advertised_mib(self._cluster, node.node) if devices else 0
        most_mib = 0 if unusable else max(advertised - held_mib(self._cluster, node.node), 0)
        return NodeRow(
            node=node.node,
            pool=pool,
            unusable=unusable,
            devices=tuple(
                _device(
                    each,
                    reading,
                    floor_mib,
                    node.absent.get(each.index, 0),
                    self._on(each, pool, reading),
                    most_mib=most_mib,
                )
                for each in node.devices
            ),
            unadvertised_mib=max(sum(each.mib for each in node.devices) - advertised, 0),
            adrift=tuple(self._holder(pod, pool, None, None) for pod in node.adrift if self._is_shown(pod)),
        )

    def _on(self, usage: DeviceUsage, pool: str | None, reading: NodeTelemetry | None) -> Iterator[Holder]:
        """Yields the pods that hold memory of the device, the largest first.

        Pods that use the device without holding memory come last.
        """
        pods = sorted(usage.pods, key=lambda pod: (-pod.request.mib, pod.namespace, pod.name))
        yield from (self._holder(pod, pool, usage.uuid, reading) for pod in pods if self._is_shown(pod))
        holding = {pod.uid for pod in usage.pods}
        for use in sorted(reading.uses if reading else (), key=lambda use: -use.used_bytes):
            if use.uuid == usage.uuid and use.uid not in holding and self._wanted.takes_pod(use.namespace, use.uid):
                used_mib = use.used_bytes // MIB
                yield Holder(
                    namespace=use.namespace,
                    name=use.pod,
                    uid=use.uid,
                    seat=None,
                    declared_mib=0,
                    used_mib=used_mib,
                    over_mib=used_mib,
                    capped=None,
                    state="unbudgeted" if use.pod else "unknown",
                )

    def _holder(self, held: PodInfo, pool: str | None, uuid: str | None, reading: NodeTelemetry | None) -> Holder:
        used = self._used(held.uid, reading)
        over_mib = None
        if used is not None and uuid is not None:
            over_mib = overshoot_mib(used=used, device=uuid, declared_mib=held.request.total_mib, placed_on=held.uuids)
        return Holder(
            namespace=held.namespace,
            name=held.name,
            uid=held.uid,
            seat=self.seat(held.uid, pool),
            declared_mib=held.request.mib,
            used_mib=None if used is None else used.get(uuid or "", 0),
            over_mib=over_mib,
            capped=self._capped(held.uid, reading),
            state=self._state(held),
        )

    def seat(self, uid: str, pool: str | None) -> str | None:
        pod, held = self._pods.get(uid), self._bound.get(uid)
        if pod is None or held is None:
            return None
        key = pod.namespace, held.request, pool, held.seat
        if key not in self._seats:
            candidates = seats_for(self._cluster.ledger, pod.namespace, held.request, label=held.seat)
            seats = [each for each in candidates if each.pool == pool]
            self._seats[key] = min(seats, key=lambda seat: seat.gpumem_mib).name if seats else None
        return self._seats[key]

    def _used(self, uid: str, reading: NodeTelemetry | None) -> dict[str, int] | None:
        """Returns the pod's MiB on each device, or None if the use of the node's pods is unknown."""
        if reading is None or not reading.devices or reading.unknown_uses:
            return None
        return {use.uuid: use.used_bytes // MIB for use in reading.uses if use.uid == uid}

    def _capped(self, uid: str, reading: NodeTelemetry | None) -> str | None:
        if reading is None or not reading.pool.caps:
            return None
        mine = [each for each in reading.caps if each.uid == uid]
        return next((each.why_not for each in mine if each.why_not), "") if mine else "it has not been read back"

    def _state(self, held: PodInfo) -> str:
        pod = self._pods.get(held.uid)
        if pod is None:
            return str(held.state)
        if pod.terminating:
            return "terminating"
        return "running" if pod.running else str(pod.status.get("phase") or held.state).lower()

    def _is_shown(self, held: PodInfo) -> bool:
        return self._wanted.takes_pod(held.namespace, held.uid)


def _waiting(cluster: ClusterSnapshot, wanted: Filter) -> Iterator[Waiting]:
    """Yields the waiting pods, the oldest first. If the filter selects a node, yields no pods."""
    if wanted.node:
        return
    mine = [pod for pod in cluster.pods if not pod.node and not pod.ended and wanted.takes_pod(pod.namespace, pod.uid)]
    for pod in sorted(mine, key=lambda pod: (pod.created, str(pod))):
        total_mib = pod.request(cluster.ledger.names.gpumem)
        if not total_mib:
            continue
        gpus = max(pod.request(cluster.ledger.names.gpu_count), 1)
        request = MemoryRequest(-(-total_mib // gpus), gpus)
        fitting = seats_for(cluster.ledger, pod.namespace, request, label=pod.seat_label(cluster.ledger.names))
        if wanted.pool and wanted.pool not in {seat.pool for seat in fitting}:
            continue
        yield Waiting(
            namespace=pod.namespace,
            name=pod.name,
            mib=total_mib,
            gpus=gpus,
            seat=min(fitting, key=lambda seat: seat.gpumem_mib).name if fitting else None,
            age=age((cluster.now - pod.created).total_seconds()),
        )
