"""Reads the telemetry of each node from the exporter on the node. If telemetry is not known, the client gives the
reason.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial

from agents.kube.client import Api, Object
from agents.kube.nodes import ExcludedDevices, Node
from agents.kube.pods import Pod, pods_of
from agents.runtime.exposition import ExpositionError
from agents.runtime.http_client import get
from agents.runtime.items import Unjudged, judged
from agents.telemetry.device import Device
from agents.telemetry.reading import Reading, TelemetryError, Trouble, parse
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool, SeveralPoolsError
from tenancy.names import EXPORTER, LABEL_NAME, Names
from tenancy.units import MIB

# Two readings are the same reading if they are less than this many seconds apart.
_STEP_SECONDS = 1.0
_AT_ONCE = 16  # The number of exporters that are scraped at the same time. More threads cost more than they save.
EXPORTERS = {"labelSelector": f"{LABEL_NAME}={EXPORTER}"}


@dataclass(frozen=True, kw_only=True)
class NodeTelemetry(Reading):
    """The reading of one node of a pool.

    If some or all devices of the node are not known, `problem` is the reason. `excluded` also contains the devices that
    the node's annotation excludes. `read_at` is the time of the reading in monotonic seconds of the client. `repeated`
    is True if the last sample had the same reading.
    """

    pool: Pool
    node: str
    devices: tuple[Device, ...] = ()
    age_seconds: float = 0
    read_at: float = 0
    trouble: Trouble | None = None
    problem: str | None = None
    repeated: bool = False

    def offered_mib(self, device: Device) -> int:
        """Returns the maximum sum in MiB of the pods' requests on the device."""
        return 0 if device.uuid in self.excluded else self.pool.offered_mib(device.total_bytes // MIB)

    def is_new(self, before: "NodeTelemetry | None") -> bool:
        """Returns True if the exporter has read the devices again after the telemetry `before`.

        The same text twice is one reading, even if its age says otherwise.
        """
        if before is None:
            return True
        same = replace(before, read_at=self.read_at, repeated=self.repeated) == self
        return self.read_at - before.read_at > _STEP_SECONDS and not same


@dataclass(frozen=True, kw_only=True)
class Scraper:
    """Scrapes the exporters at the same time. `page` returns the body at a URL within seconds, or raises an error."""

    page: Callable[[str], bytes] = get

    def readings(self, urls: Iterable[str]) -> Iterator[tuple[str, Reading | Unjudged]]:
        """Yields each URL with its reading, or with the error, as soon as the exporter has answered."""
        threads = ThreadPoolExecutor(_AT_ONCE)
        try:
            asked = {threads.submit(judged, partial(self._reading, url)): url for url in urls}
            yield from ((asked[answer], answer.result()) for answer in as_completed(asked))
        finally:
            threads.shutdown(cancel_futures=True)  # SIGTERM must not wait for exporters that were not asked yet

    def _reading(self, url: str) -> Reading:
        return parse(self.page(url).decode("utf-8", errors="replace"))


def _missing(reading: Reading, pool: Pool) -> tuple[Trouble | None, str | None]:
    """Returns the kind and the message of the problem if some devices are not known. Returns (None, None) if all
    devices of the node are known.
    """
    shown = len(reading.devices) + len(reading.lost)
    problems = [str(each) for each in reading.lost]
    troubles = [each.trouble for each in reading.lost]
    if shown != pool.device_count:
        problems.append(f"{shown} devices are shown, pools.{pool.name}.device_count is {pool.device_count}")
        troubles.append(Trouble.PARTIAL)
    return (troubles[0], "; ".join(problems)) if problems else (None, None)


@dataclass(frozen=True)
class Exporter:
    """The address of the exporter on a node."""

    node: str
    address: str


def exporter_of(item: Object) -> Exporter | None:
    """Returns the running exporter of this Pod, or None if the Pod runs no exporter."""
    pod = Pod(item)
    there = pod.labels.get(LABEL_NAME) == EXPORTER and pod.running and not pod.terminating
    return Exporter(pod.node, pod.address) if there and pod.node and pod.address else None


def list_exporters(api: Api, namespace: str) -> tuple[Exporter, ...]:
    """Returns the running exporters in this namespace. Raises ApiError."""
    listed = map(exporter_of, api.items(pods_of(namespace), **EXPORTERS))
    return tuple(filter(None, listed))


def read(
    exporters: Iterable[Exporter],
    ledger: Ledger,
    nodes: Sequence[Node],
    *,
    port: int,
    scraper: Scraper,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[NodeTelemetry, ...]:
    """Returns the telemetry of the nodes in all pools that share memory.

    If a node matches several pools, its telemetry is not known.
    """
    addresses: dict[str, list[str]] = {}
    for each in exporters:
        addresses.setdefault(each.node, []).append(each.address)
    wanted, unowned = _by_pool(ledger, nodes)
    urls = {node.name: judged(partial(_url, addresses.get(node.name, ()), port)) for _, node in wanted}
    asked = dict.fromkeys(url for url in urls.values() if isinstance(url, str))
    found = {url: (reading, monotonic()) for url, reading in scraper.readings(asked)}

    def telemetry(pool: Pool, node: Node) -> NodeTelemetry:
        url = urls[node.name]
        reading, now = (url, 0.0) if isinstance(url, Unjudged) else found[url]
        if isinstance(reading, Unjudged):
            raise reading.error
        trouble, problem = _missing(reading, pool)
        excluded = reading.excluded | _excluded(node, reading.devices, ledger.names)
        return NodeTelemetry(
            pool=pool,
            node=node.name,
            read_at=now - reading.age_seconds,
            trouble=trouble,
            problem=problem,
            **vars(replace(reading, excluded=excluded)),
        )

    def judged_telemetry(pool: Pool, node: Node) -> NodeTelemetry:
        known = judged(lambda: telemetry(pool, node))
        if isinstance(known, Unjudged):
            return NodeTelemetry(pool=pool, node=node.name, trouble=_trouble(known.error), problem=known.why)
        return known

    return (*(judged_telemetry(pool, node) for pool, node in wanted), *unowned)


def _by_pool(ledger: Ledger, nodes: Iterable[Node]) -> tuple[list[tuple[Pool, Node]], list[NodeTelemetry]]:
    """Returns the nodes in pools that share memory, and the telemetry of each node that matches several pools."""
    wanted: list[tuple[Pool, Node]] = []
    unowned: list[NodeTelemetry] = []
    for node in nodes:
        try:
            pool = ledger.pool_of(node.labels)
        except SeveralPoolsError as error:
            shared = [pool for pool in error.pools if pool.sharing is Sharing.MEMORY]
            unowned += [
                NodeTelemetry(pool=pool, node=node.name, trouble=Trouble.UNOWNED, problem=str(error)) for pool in shared
            ]
            continue
        if pool is not None and pool.sharing is Sharing.MEMORY:
            wanted.append((pool, node))
    return wanted, unowned


def _url(addresses: Sequence[str], port: int) -> str:
    """Returns the URL of the only exporter on a node. Raises TelemetryError unless the node has exactly one
    exporter.
    """
    if len(addresses) != 1:
        raise TelemetryError(Trouble.MISSING, f"{len(addresses)} exporters run there, one is needed")
    host = f"[{addresses[0]}]" if ":" in addresses[0] else addresses[0]
    return f"http://{host}:{port}/metrics"


def _excluded(node: Node, devices: Iterable[Device], names: Names) -> frozenset[str]:
    """Returns the UUIDs of the devices that the node's annotation excludes.

    An invalid annotation excludes all devices, as in the extender.
    """
    try:
        out = ExcludedDevices.of(node.annotations, names)
    except ValueError:
        return frozenset(device.uuid for device in devices)
    return frozenset(device.uuid for device in devices if out.has(device.uuid, device.gpu))


def _trouble(error: Exception) -> Trouble:
    if isinstance(error, TelemetryError):
        return error.trouble
    return Trouble.PARTIAL if isinstance(error, ExpositionError) else Trouble.MISSING
