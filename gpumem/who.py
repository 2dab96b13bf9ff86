"""who: which pod has how much of which device, declared and in use; who waits; which gates are open. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agents.extender.cache.snapshot import DeviceUsage, NodeUsage, Share
from agents.kube.pods import Pod
from agents.runtime.errors import AgentError
from agents.telemetry.client import NodeTelemetry
from gpumem.cluster import ClusterSnapshot, GatedWorkload, age
from tenancy.devices.allocate import Ask
from tenancy.devices.recycle import overshoot_mib
from tenancy.devices.waiting import seats_for
from tenancy.ledger import Ledger, Pool, Sharing
from tenancy.names import GPU
from tenancy.units import MIB


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What is shown; None is everything. `device` is an index or a UUID."""

    namespace: str | None = None
    node: str | None = None
    pool: str | None = None
    device: str | None = None

    def takes(self, node: str, pool: str | None) -> bool:
        return self.node in (None, node) and self.pool in (None, pool)

    def takes_device(self, index: int, uuid: str) -> bool:
        return self.device in (None, str(index), uuid)


EVERYTHING = Filter()


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A pod on a device: what it has there by the ledger, and in use; `over_mib`, beyond its budget, is as the watchdog
    and the Events count it. What is None is not known; `seat` is None for who has none. `capped` is None where its pool
    caps nobody, else "" or why not. `state` is the pod's phase, `terminating`, `unbudgeted`: it declares nothing, or
    `unknown`: no pod is known whose process that is."""

    namespace: str
    name: str
    uid: str
    seat: str | None
    declared_mib: int
    used_mib: int | None
    over_mib: int | None
    capped: str | None
    state: str


@dataclass(frozen=True, kw_only=True)
class DeviceRow:
    """`free_mib` is what a pod without a seat could have now, as /inspect has it; `room_mib` is what the ledger has
    left, which a seat gets. `measured_*` are None where nothing is measured. To who may read his own pods alone, they
    are all that is held."""

    index: int
    uuid: str
    offered_mib: int
    held_mib: int
    room_mib: int
    free_mib: int
    measured_used_mib: int | None
    measured_free_mib: int | None
    floor_mib: int
    healthy: bool
    excluded: bool
    pods: tuple[Holder, ...]


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """`unusable` is why it takes no new pod; `adrift` are pods whose device is gone."""

    node: str
    pool: str | None
    unusable: str | None
    devices: tuple[DeviceRow, ...]
    adrift: tuple[Holder, ...]


@dataclass(frozen=True, kw_only=True)
class WholeRow:
    """A node whose devices are handed out whole. `offered` is None where the node advertises none."""

    node: str
    pool: str
    offered: int | None
    held: int
    pods: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A pod that asks for GPU memory and is on no node."""

    namespace: str
    name: str
    mib: int
    gpus: int
    seat: str | None
    age: str


@dataclass(frozen=True, kw_only=True)
class GateRow:
    """An on-demand workload; `state` is open, closed, no Deployment, or unknown: it may not be read."""

    namespace: str
    name: str
    pool: str
    need_mib: int
    state: str


@dataclass(frozen=True, kw_only=True)
class Who:
    """`scope` is the one namespace whose pods are known, None for all."""

    scope: str | None
    nodes: tuple[NodeRow, ...]
    whole: tuple[WholeRow, ...]
    waiting: tuple[Waiting, ...]
    gates: tuple[GateRow, ...]
    unknown: tuple[str, ...]


class PoolError(AgentError):
    """There is no such pool; the message names those that there are."""


def check_pool(ledger: Ledger, pool: str | None) -> None:
    """Raises PoolError where one is named that is not there."""
    pools = [each.name for each in ledger.pools]
    if pool is not None and pool not in pools:
        raise PoolError(f"--pool {pool!r} is no pool of the ledger; these are: {', '.join(pools) or 'none'}")


def who(cluster: ClusterSnapshot, wanted: Filter = EVERYTHING) -> Who:
    """Everything on the nodes of the ledger's pools."""
    holders = _Holders(cluster, wanted)
    shared = {pool.name for pool in cluster.ledger.shared_pools}
    rows, gaps = [], [*cluster.gaps]
    for usage in cluster.cache.snapshot():
        pool = cluster.devices[usage.node].pool if usage.node in cluster.devices else None
        known = usage.devices or usage.adrift or (usage.unusable and pool in shared)
        if not known or not wanted.takes(usage.node, pool):
            continue
        rows.append(holders.node(usage))
        reading = cluster.measured.get(usage.node)
        if reading is not None and reading.problem:
            gaps.append(f"{usage.node}: what is in use: {reading.problem}")
    return Who(
        scope=cluster.own,
        nodes=tuple(rows),
        whole=tuple(whole_devices(cluster, wanted)),
        waiting=tuple(_waiting(cluster, wanted)),
        gates=tuple(
            _gate(each)
            for each in cluster.gates
            if wanted.namespace in (None, each.namespace)
            and wanted.pool in (None, each.pool)
            and not (wanted.node or wanted.device)
        ),
        unknown=tuple(gaps),
    )


def device_row(usage: DeviceUsage, reading: NodeTelemetry | None, floor_mib: int, pods: Iterable[Holder]) -> DeviceRow:
    """A device, with these pods on it."""
    seen = next((each for each in reading.devices if each.uuid == usage.uuid), None) if reading else None
    return DeviceRow(
        index=usage.index,
        uuid=usage.uuid,
        offered_mib=usage.mib,
        held_mib=usage.held_mib,
        room_mib=max((usage.mib if usage.healthy and not usage.excluded else 0) - usage.held_mib, 0),
        free_mib=usage.free_mib,
        measured_used_mib=seen.used_bytes // MIB if seen else None,
        measured_free_mib=usage.measured_free_mib,
        floor_mib=floor_mib,
        healthy=usage.healthy,
        excluded=usage.excluded,
        pods=tuple(pods),
    )


def whole_devices(cluster: ClusterSnapshot, wanted: Filter = EVERYTHING) -> Iterator[WholeRow]:
    """The nodes of the pools that hand out devices whole; nothing where pods of others are not known."""
    by_node: dict[str, list[Pod]] = {}
    for pod in cluster.pods:
        if pod.node and not pod.ended:
            by_node.setdefault(pod.node, []).append(pod)
    for name, node in sorted(cluster.nodes.items()):
        pool = _whole_pool(cluster, node["metadata"].get("labels") or {})
        if pool is None or not wanted.takes(name, pool.name):
            continue
        offered = ((node.get("status") or {}).get("allocatable") or {}).get(GPU)
        users = {str(pod): pod.request(GPU) for pod in by_node.get(name, ()) if pod.request(GPU)}
        yield WholeRow(
            node=name,
            pool=pool.name,
            offered=None if offered is None else int(offered),
            held=sum(users.values()),
            pods=tuple(sorted(each for each in users if _is_of(each.partition("/")[0], wanted))),
        )


def _whole_pool(cluster: ClusterSnapshot, labels: Mapping[str, str]) -> Pool | None:
    mine = [pool for pool in cluster.ledger.pools if pool.matches(labels)]
    return mine[0] if len(mine) == 1 and mine[0].sharing is Sharing.WHOLE else None


class _Holders:
    """Who is on the devices of one cluster."""

    def __init__(self, cluster: ClusterSnapshot, wanted: Filter) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._bound = cluster.bound()
        self._pods = {pod.uid: pod for pod in cluster.pods}
        self._seats: dict[tuple[str, Ask, str | None], str | None] = {}

    def node(self, usage: NodeUsage) -> NodeRow:
        reading, devices = self._cluster.measured.get(usage.node), self._cluster.devices.get(usage.node)
        floor_mib = devices.floor_mib if devices else 0
        pool = devices.pool if devices else usage.pool
        return NodeRow(
            node=usage.node,
            pool=pool,
            unusable=usage.unusable,
            devices=tuple(
                device_row(each, reading, floor_mib, self._on(each, pool, reading))
                for each in usage.devices
                if self._wanted.takes_device(each.index, each.uuid)
            ),
            adrift=tuple(self._holder(share, pool, None, None) for share in usage.adrift if self._is_shown(share)),
        )

    def _on(self, usage: DeviceUsage, pool: str | None, reading: NodeTelemetry | None) -> Iterator[Holder]:
        """By falling size: those who hold of it, then those who use it and hold nothing."""
        shares = sorted(usage.shares, key=lambda share: (-share.mib, share.namespace, share.name))
        yield from (self._holder(share, pool, usage.uuid, reading) for share in shares if self._is_shown(share))
        holding = {share.uid for share in usage.shares}
        for use in sorted(reading.uses if reading else (), key=lambda use: -use.used_bytes):
            if use.uuid == usage.uuid and use.uid not in holding and _is_of(use.namespace, self._wanted):
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

    def _holder(self, share: Share, pool: str | None, uuid: str | None, reading: NodeTelemetry | None) -> Holder:
        used = self._used(share.uid, reading)
        held = self._bound.get(share.uid)
        declared_mib = held.ask.total_mib if held else share.mib
        over_mib = None
        if used is not None and uuid is not None:
            over_mib = overshoot_mib(used=used, device=uuid, declared_mib=declared_mib)
        return Holder(
            namespace=share.namespace,
            name=share.name,
            uid=share.uid,
            seat=self.seat(share.uid, pool),
            declared_mib=share.mib,
            used_mib=None if used is None else used.get(uuid or "", 0),
            over_mib=over_mib,
            capped=self._capped(share.uid, reading),
            state=self._state(share),
        )

    def seat(self, uid: str, pool: str | None) -> str | None:
        """The smallest seat of the pool that the pod keeps within."""
        pod, held = self._pods.get(uid), self._bound.get(uid)
        if pod is None or held is None:
            return None
        key = pod.namespace, held.ask, pool
        if key not in self._seats:
            seats = [each for each in seats_for(self._cluster.ledger, *key[:2]) if each.pool == pool]
            self._seats[key] = min(seats, key=lambda seat: seat.gpumem_mib).name if seats else None
        return self._seats[key]

    def _used(self, uid: str, reading: NodeTelemetry | None) -> dict[str, int] | None:
        """MiB by device; None where who uses what is not known of any of the node's devices."""
        if reading is None or not reading.devices or reading.unknown_uses:
            return None
        return {use.uuid: use.used_bytes // MIB for use in reading.uses if use.uid == uid}

    def _capped(self, uid: str, reading: NodeTelemetry | None) -> str | None:
        if reading is None or not reading.pool.caps:
            return None
        mine = [each for each in reading.caps if each.uid == uid]
        return next((each.why_not for each in mine if each.why_not), "") if mine else "it has not been read back"

    def _state(self, share: Share) -> str:
        pod = self._pods.get(share.uid)
        if pod is None:
            return str(share.standing)
        if pod.terminating:
            return "terminating"
        return "running" if pod.running else str(pod.status.get("phase") or share.standing).lower()

    def _is_shown(self, share: Share) -> bool:
        return _is_of(share.namespace, self._wanted)


def _is_of(namespace: str, wanted: Filter) -> bool:
    return wanted.namespace in (None, namespace)


def _waiting(cluster: ClusterSnapshot, wanted: Filter) -> Iterator[Waiting]:
    """The oldest first; of one node, or device, nobody waits."""
    if wanted.node or wanted.device:
        return
    mine = [pod for pod in cluster.pods if not pod.node and not pod.ended and _is_of(pod.namespace, wanted)]
    for pod in sorted(mine, key=lambda pod: (pod.created, str(pod))):
        total_mib = pod.request(cluster.ledger.names.gpumem)
        if not total_mib:
            continue
        gpus = max(pod.request(cluster.ledger.names.gpu_count), 1)
        fitting = [seat for seat in cluster.ledger.seats_of(pod.namespace) if total_mib <= seat.gpumem_mib]
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


def _gate(gate: GatedWorkload) -> GateRow:
    return GateRow(
        namespace=gate.namespace,
        name=gate.name,
        pool=gate.pool,
        need_mib=gate.need_mib,
        state=gate.state,
    )
