"""What the exporters measure, node by node, or the reason why nothing is known there."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from agents.api import Api
from agents.device import Device
from agents.errors import AgentError
from agents.exposition import ExpositionError
from agents.fetch import fetch
from agents.nodes import Node
from agents.reading import PodUse, TelemetryError, Trouble, parse
from tenancy.ledger import Pool, Sharing
from tenancy.names import EXPORTER, LABEL_NAME
from tenancy.selector import matches

# Two readings less than this apart are one, asked for twice.
_STEP_SECONDS = 1.0
# Exporters asked at the same time, so that one that hangs delays none of the others.
_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True)
class NodeTelemetry:
    """The devices of a pool's node, or the trouble and the problem for which nothing is known of them.

    `uses` is who uses them; None where that is not wholly known, for `uses_problem`. `read_at` is when the exporter
    read them, on the scale of the reader's monotonic clock. `repeated`: it was read before the last sample, too.
    """

    pool: Pool
    node: str
    devices: tuple[Device, ...] = ()
    uses: tuple[PodUse, ...] | None = None
    uses_problem: str | None = None
    age_seconds: float = 0
    read_at: float = 0
    trouble: Trouble | None = None
    problem: str | None = None
    repeated: bool = False

    def stands_still(self, before: "NodeTelemetry | None") -> bool:
        """Whether nothing in it differs from the answer `before`, not even its age: then it may be that very answer."""
        return before is not None and _content(before) == _content(self)

    def is_new(self, before: "NodeTelemetry | None") -> bool:
        """Whether the exporter has read the devices since the answer `before`."""
        return before is None or (self.read_at - before.read_at > _STEP_SECONDS and not self.stands_still(before))


def _content(reading: NodeTelemetry) -> object:
    return reading.age_seconds, reading.devices, reading.uses, reading.problem


@dataclass(frozen=True, kw_only=True)
class _Exporters:
    """Where the exporters are, by node, and how they are asked."""

    addresses: Mapping[str, Sequence[str]]
    port: int
    get: Callable[[str], bytes]
    monotonic: Callable[[], float]

    def ask(self, pool: Pool, node: str) -> NodeTelemetry:
        try:
            return self._ask(pool, node)
        except AgentError as error:
            return NodeTelemetry(pool=pool, node=node, trouble=_trouble(error), problem=str(error))

    def _ask(self, pool: Pool, node: str) -> NodeTelemetry:
        addresses = self.addresses.get(node, ())
        if len(addresses) != 1:
            raise TelemetryError(Trouble.MISSING, f"{len(addresses)} exporters run there, one is needed")
        host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
        reading = parse(self.get(f"http://{host}:{self.port}/metrics").decode("utf-8", errors="replace"))
        if len(reading.devices) != pool.device_count:
            raise TelemetryError(
                Trouble.PARTIAL,
                f"{len(reading.devices)} devices are shown, pools.{pool.name}.device_count is {pool.device_count}",
            )
        return NodeTelemetry(pool=pool, node=node, read_at=self.monotonic() - reading.age_seconds, **vars(reading))


def read(
    api: Api,
    pools: Iterable[Pool],
    nodes: Sequence[Node],
    *,
    namespace: str,
    port: int,
    get: Callable[[str], bytes] = fetch,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[NodeTelemetry, ...]:
    """The telemetry of every node of every memory pool, by the exporters in `namespace`. Raises ApiError."""
    exporters = _Exporters(addresses=_addresses(api, namespace), port=port, get=get, monotonic=monotonic)
    wanted = [
        (pool, node.name)
        for pool in pools
        if pool.sharing is Sharing.MEMORY
        for node in nodes
        if matches(pool.node_selector, node.labels)
    ]
    if len(wanted) < 2:
        return tuple(exporters.ask(pool, node) for pool, node in wanted)
    with ThreadPoolExecutor(min(len(wanted), _AT_ONCE)) as threads:
        return tuple(threads.map(lambda each: exporters.ask(*each), wanted))


def _addresses(api: Api, namespace: str) -> Mapping[str, Sequence[str]]:
    """Addresses of the running exporters by node."""
    addresses: dict[str, list[str]] = {}
    for pod in api.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{LABEL_NAME}={EXPORTER}"):
        status = pod.get("status") or {}
        running = status.get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        if running and status.get("podIP"):
            addresses.setdefault(pod["spec"]["nodeName"], []).append(status["podIP"])
    return addresses


def _trouble(error: AgentError) -> Trouble:
    if isinstance(error, TelemetryError):
        return error.trouble
    return Trouble.PARTIAL if isinstance(error, ExpositionError) else Trouble.MISSING
