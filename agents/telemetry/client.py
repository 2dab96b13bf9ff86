"""The exporters' client: what each node's exporter measures, or why that is not known."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from agents.kube.client import Lister
from agents.kube.nodes import Node, excluded
from agents.kube.pods import Pod
from agents.runtime.errors import AgentError
from agents.runtime.exposition import ExpositionError
from agents.runtime.http_client import fetch
from agents.telemetry.device import Device
from agents.telemetry.reading import ContainerCap, LostDevice, PodUse, Reading, TelemetryError, Trouble, parse
from tenancy.ledger import Ledger, Pool, SeveralPoolsError, Sharing
from tenancy.names import EXPORTER, LABEL_NAME, Names
from tenancy.units import MIB

# Two readings less than this apart are one, asked for twice.
_STEP_SECONDS = 1.0
# Exporters asked at the same time, so that one that hangs delays none of the others.
_AT_ONCE = 64
# After this no more of them are asked: the readings of those that answered must not grow stale meanwhile.
_ROUND_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class NodeTelemetry:
    """The devices of a pool's node of which something is known. `problem` is why nothing is known of the node, or where
    there are `devices`, why nothing is known of others: of those in `lost`, or of some that are not shown.

    `uses`, `unknown_uses` and `caps` are as in a Reading. `excluded` are the UUIDs of devices that take no new pod, by
    their fault or by the node's annotation. `read_at` is when the exporter read them, on the scale of the reader's
    monotonic clock. `repeated`: it was read before the last sample, too.
    """

    pool: Pool
    node: str
    devices: tuple[Device, ...] = ()
    uses: tuple[PodUse, ...] = ()
    unknown_uses: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[LostDevice, ...] = ()
    excluded: frozenset[str] = frozenset()
    caps: tuple[ContainerCap, ...] = ()
    age_seconds: float = 0
    read_at: float = 0
    trouble: Trouble | None = None
    problem: str | None = None
    repeated: bool = False

    def offered_mib(self, device: Device) -> int:
        """What the device may hand out in all."""
        return 0 if device.uuid in self.excluded else self.pool.offered_mib(device.total_bytes // MIB)

    def stands_still(self, before: "NodeTelemetry | None") -> bool:
        """Whether nothing in it differs from the answer `before`, not even its age: then it may be that very answer."""
        return before is not None and _content(before) == _content(self)

    def is_new(self, before: "NodeTelemetry | None") -> bool:
        """Whether the exporter has read the devices since the answer `before`."""
        return before is None or (self.read_at - before.read_at > _STEP_SECONDS and not self.stands_still(before))


def _content(reading: NodeTelemetry) -> object:
    return reading.age_seconds, reading.devices, reading.uses, reading.unknown_uses, reading.problem


@dataclass(frozen=True, kw_only=True)
class _Exporters:
    """Where the exporters are, by node, and how they are asked."""

    addresses: Mapping[str, Sequence[str]]
    names: Names
    port: int
    get: Callable[[str], bytes]
    monotonic: Callable[[], float]
    until: float

    def ask(self, pool: Pool, node: Node) -> NodeTelemetry:
        try:
            if self.monotonic() > self.until:
                raise TelemetryError(Trouble.MISSING, "not asked: too many exporters before it did not answer")
            found = self._ask(pool, node.name)
        except AgentError as error:
            return NodeTelemetry(pool=pool, node=node.name, trouble=_trouble(error), problem=str(error))
        return replace(found, excluded=found.excluded | _excluded(node, found.devices, self.names))

    def _ask(self, pool: Pool, node: str) -> NodeTelemetry:
        addresses = self.addresses.get(node, ())
        if len(addresses) != 1:
            raise TelemetryError(Trouble.MISSING, f"{len(addresses)} exporters run there, one is needed")
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        reading = parse(self.get(f"http://{host}:{self.port}/metrics").decode("utf-8", errors="replace"))
        trouble, problem = _missing(reading, pool)
        return NodeTelemetry(
            pool=pool,
            node=node,
            read_at=self.monotonic() - reading.age_seconds,
            trouble=trouble,
            problem=problem,
            **vars(reading),
        )


def _missing(reading: Reading, pool: Pool) -> tuple[Trouble | None, str | None]:
    """The trouble and the problem with devices of which nothing is known."""
    shown = len(reading.devices) + len(reading.lost)
    problems = [str(each) for each in reading.lost]
    troubles = [each.trouble for each in reading.lost]
    if shown != pool.device_count:
        problems.append(f"{shown} devices are shown, pools.{pool.name}.device_count is {pool.device_count}")
        troubles.append(Trouble.PARTIAL)
    return (troubles[0], "; ".join(problems)) if problems else (None, None)


def read(
    api: Lister,
    ledger: Ledger,
    nodes: Sequence[Node],
    *,
    namespace: str,
    port: int,
    get: Callable[[str], bytes] = fetch,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[NodeTelemetry, ...]:
    """The telemetry of every node of every memory pool, by the exporters in `namespace`. Of a node that several pools
    match nothing is known: no pool's floor is its. Raises ApiError."""
    addresses = _addresses(api, namespace)
    until = monotonic() + _ROUND_SECONDS
    exporters = _Exporters(
        addresses=addresses, names=ledger.names, port=port, get=get, monotonic=monotonic, until=until
    )
    wanted: list[tuple[Pool, Node]] = []
    unowned: list[NodeTelemetry] = []
    for node in nodes:
        try:
            pool = ledger.pool_of(node.labels)
        except SeveralPoolsError as error:
            unowned += _unowned(node, error)
            continue
        if pool is not None and pool.sharing is Sharing.MEMORY:
            wanted.append((pool, node))
    if len(wanted) < 2:
        return (*(exporters.ask(pool, node) for pool, node in wanted), *unowned)
    with ThreadPoolExecutor(min(len(wanted), _AT_ONCE)) as threads:
        return (*threads.map(lambda each: exporters.ask(*each), wanted), *unowned)


def _excluded(node: Node, devices: Iterable[Device], names: Names) -> frozenset[str]:
    """All of them where the node's annotation cannot be read: then placement takes no device of it either."""
    try:
        out = excluded(node.annotations, names)
    except ValueError:
        return frozenset(device.uuid for device in devices)
    return frozenset(device.uuid for device in devices if device.gpu in out)


def _unowned(node: Node, error: SeveralPoolsError) -> Iterator[NodeTelemetry]:
    """Nothing, for each of the pools that share memory: what decides on a pool must know of the node."""
    for pool in error.pools:
        if pool.sharing is Sharing.MEMORY:
            yield NodeTelemetry(pool=pool, node=node.name, trouble=Trouble.UNOWNED, problem=str(error))


def _addresses(api: Lister, namespace: str) -> Mapping[str, Sequence[str]]:
    """Addresses of the running exporters by node."""
    addresses: dict[str, list[str]] = {}
    path = f"/api/v1/namespaces/{namespace}/pods"
    for pod in map(Pod, api.items(path, labelSelector=f"{LABEL_NAME}={EXPORTER}")):
        address = pod.status.get("podIP")
        if pod.running and not pod.terminating and pod.node and address:
            addresses.setdefault(pod.node, []).append(address)
    return addresses


def _trouble(error: AgentError) -> Trouble:
    if isinstance(error, TelemetryError):
        return error.trouble
    return Trouble.PARTIAL if isinstance(error, ExpositionError) else Trouble.MISSING
