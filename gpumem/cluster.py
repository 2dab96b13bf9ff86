"""Reads the cluster into the cache of the scheduler extender, so that all sums are the same as in the extender.

If an object cannot be read, the cache leaves it out, and `gaps` has the reason.
"""

import http.client
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from agents.extender.cache.cache import Cache
from agents.extender.cache.inventory import NodeDevices, devices_of
from agents.extender.cache.pod_info import Known, PodInfo, holder_of
from agents.kube.client import ApiError, Object
from agents.kube.fields import FieldError
from agents.kube.ledger import LedgerError, stored_ledger
from agents.kube.nodes import NODES, node_of
from agents.kube.pods import LIVE, PODS
from agents.kube.slices import SLICES
from agents.runtime.errors import AgentError
from agents.telemetry import client as telemetry
from agents.telemetry.client import NodeTelemetry, Scraper, exporter_of
from gpumem.measured import measured_devices, on_its_device
from gpumem.pods import WholePod
from gpumem.report import row, said
from gpumem.source import Source
from tenancy.ledger import Ledger, OnDemand
from tenancy.names import (
    EXPORTER,
    EXPORTER_PORT,
    GATE,
    GPU,
    KUEUE_API,
    LABEL_NAME,
    LEDGER,
    OPERATOR,
    node_agent_namespace,
)
from tenancy.units import MIB
from tenancy.workload import maps_at

_AT_ONCE = 16
CLUSTER_QUEUES = f"/apis/{KUEUE_API}/clusterqueues"


class NamespaceError(AgentError):
    """Raised when a namespace does not exist."""


@dataclass(frozen=True)
class GatedWorkload:
    """An on-demand workload.

    `state` is "open" while the Deployment has replicas, and "closed" while it has none. Without a Deployment, `state`
    is "no Deployment". If the user may not read the Deployment, `state` is "unknown".
    """

    name: str
    namespace: str
    deployment: str
    pool: str
    need_mib: int
    state: str


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    """The state of a cluster at one time.

    If the user may read the pods of only one namespace, `own` is that namespace. If the user may read the pods of all
    namespaces, `own` is None. The keys of `devices`, `nodes` and `measured` are the names of nodes. `pods` are the pods
    that have not ended. `gaps` lists the unknown facts, with the reasons.
    """

    ledger: Ledger
    now: datetime
    nodes: Mapping[str, Object]
    devices: Mapping[str, NodeDevices]
    pods: tuple[WholePod, ...]
    cache: Cache
    own: str | None = None
    measured: Mapping[str, NodeTelemetry] = field(default_factory=dict)
    gates: tuple[GatedWorkload, ...] = ()
    cluster_queues: tuple[Object, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Returns True if the user may read the pods of all namespaces."""
        return self.own is None

    def bound(self) -> Mapping[str, PodInfo]:
        """Returns the pods in the cache that hold GPU memory. The keys of the result are the UIDs of the pods."""
        return {pod.uid: pod for node in self.devices for pod in self.cache.node(node).pods.values()}


def read(source: Source, system: str, namespace: Callable[[], str]) -> ClusterSnapshot:
    """Reads the whole state of a cluster in parallel.

    If the user may not list the pods of all namespaces, the function reads only the pods of `namespace()`. The function
    raises ApiError and LedgerError.
    """
    gaps: list[str] = []
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        reading = threads.submit(ledger, source, system)
        nodes = threads.submit(lambda: [*source.items(NODES)])
        slices = threads.submit(lambda: [*source.items(SLICES)])
        pods = threads.submit(lambda: [*source.items(PODS, **LIVE)])
        queues = threads.submit(lambda: [*source.items(CLUSTER_QUEUES)])
        declared = threads.submit(source.get, f"/apis/batch/v1/namespaces/{system}/cronjobs/{GATE}")
        found_ledger = reading.result()
        known_nodes = {node["metadata"]["name"]: node for node in nodes.result()}
        measuring = threads.submit(_measured, source, system, found_ledger, known_nodes.values())
        items, own = _pods(source, pods, namespace, gaps)
        found_gates = _gates(source, declared, found_ledger, own, threads)
        measured = measuring.result()
        published = _published(slices, gaps)
        cluster_queues = _cluster_queues(queues, found_ledger, gaps)
    if isinstance(measured, str):
        gaps.append(f"what is in use is not known: {measured}")
        measured = {}
    devices = _devices(known_nodes.values(), published, found_ledger, measured)
    kept, held = _readable(items, found_ledger, gaps)
    if not found_ledger.places_by_device:
        held = [on_its_device(each, devices, measured) if isinstance(each, PodInfo) else each for each in held]
    return ClusterSnapshot(
        ledger=found_ledger,
        now=source.now or datetime.now(UTC),
        nodes=known_nodes,
        devices=devices,
        pods=tuple(kept),
        cache=_cache(found_ledger, devices.values(), held, measured.values()),
        own=own,
        measured=measured,
        gates=found_gates,
        cluster_queues=tuple(cluster_queues),
        gaps=tuple(gaps),
    )


def _readable(items: Iterable[Object], ledger: Ledger, gaps: list[str]) -> tuple[list[WholePod], list[Known]]:
    """Returns the pods with valid requests. Also returns the subset of these pods that hold GPU memory."""
    kept, held = [], []
    for item in items:
        pod = WholePod(item)
        try:
            found = holder_of(item, ledger.names)
            waiting = () if pod.node else (ledger.names.gpumem, ledger.names.gpu_count)
            for resource in (*waiting, GPU):
                pod.request(resource)  # an unreadable queue must raise its error here, and not later in a report
        except FieldError as error:
            gaps.append(f"is not counted: {error}")
            continue
        kept.append(pod)
        if found is not None:
            held.append(found)
    return kept, held


def _cache(
    ledger: Ledger, devices: Iterable[NodeDevices], held: Iterable[Known], measured: Iterable[NodeTelemetry]
) -> Cache:
    cache = Cache()
    cache.promise(ledger)
    cache.replace(devices, held, time.monotonic())
    for each in measured:
        if each.devices:
            free = {device.gpu: device.free_bytes // MIB for device in each.devices}
            cache.measure(each.node, free, each.read_at, each.uses, unknown=each.unknown_uses)
    return cache


def ledger(source: Source, system: str) -> Ledger:
    """Returns the ledger that the cluster stores. The function raises ApiError and LedgerError."""
    try:
        found = stored_ledger(source.get(f"/api/v1/namespaces/{system}/configmaps/{LEDGER}"), system)
    except ApiError as error:
        if error.status == http.client.NOT_FOUND:
            raise LedgerError(
                f"there is no ConfigMap {LEDGER} in {system}: name the stack's namespace (--system-namespace), or run "
                "make up"
            ) from None
        raise
    if found.deleting:
        raise LedgerError("the ledger is being deleted: nothing is placed; run make up")
    return found.ledger()


def check_namespace(source: Source, namespace: str) -> None:
    """Raises NamespaceError if the namespace does not exist. A user may lack the right to read the namespace."""
    try:
        source.get(f"/api/v1/namespaces/{quote(namespace, safe='')}")
    except ApiError as error:
        if error.status == http.client.NOT_FOUND:
            raise NamespaceError(f"there is no namespace {namespace}") from None
        if error.status != http.client.FORBIDDEN:
            raise


def _pods(
    source: Source, listing: "Future[list[Object]]", namespace: Callable[[], str], gaps: list[str]
) -> tuple[list[Object], str | None]:
    """Returns the pods that the user may read. If the user may read only one namespace, also returns this namespace.

    Raises ApiError.
    """
    try:
        return listing.result(), None
    except ApiError as error:
        if error.status != http.client.FORBIDDEN:
            raise
    own = namespace()
    gaps.append(
        f"the pods of other namespaces than {own} may not be read: shown are its own, and what is promised (the "
        f"ClusterRole {OPERATOR} shows all)"
    )
    return [*source.items(f"/api/v1/namespaces/{own}/pods", **LIVE)], own


def _cluster_queues(listing: "Future[list[Object]]", ledger: Ledger, gaps: list[str]) -> list[Object]:
    """Returns Kueue's ClusterQueues, if the stack has any. A cluster without Kueue has no ClusterQueues. Raises
    ApiError."""
    if not ledger.queue_tenants:
        listing.exception()
        return []
    try:
        return listing.result()
    except ApiError as error:
        if error.status not in (http.client.FORBIDDEN, http.client.NOT_FOUND):
            raise
        if error.status == http.client.FORBIDDEN:
            gaps.append(f"the queues are not known: {said(error)}")
        return []


def _published(listing: "Future[list[Object]]", gaps: list[str]) -> Mapping[str, Sequence[Object]]:
    """Returns the ResourceSlices of each node. Raises ApiError."""
    try:
        slices = listing.result()
    except ApiError as error:
        if error.status not in (http.client.FORBIDDEN, http.client.NOT_FOUND):
            raise
        gaps.append(f"the devices are not known: {said(error)}")
        slices = []
    by_node: dict[str, list[Object]] = {}
    for found in slices:
        by_node.setdefault(found["spec"].get("nodeName", ""), []).append(found)
    return by_node


def _devices(
    nodes: Iterable[Object],
    published: Mapping[str, Sequence[Object]],
    ledger: Ledger,
    measured: Mapping[str, NodeTelemetry],
) -> dict[str, NodeDevices]:
    found = {}
    for node in map(node_of, nodes):
        if any(pool.matches(node.labels) for pool in ledger.pools):
            slices, reading = published.get(node.name, ()), measured.get(node.name)
            by_reading = not ledger.places_by_device
            found[node.name] = (
                measured_devices(node, slices, ledger, reading) if by_reading else devices_of(node, slices, ledger)
            )
    return found


def _measured(source: Source, system: str, ledger: Ledger, nodes: Iterable[Object]) -> dict[str, NodeTelemetry] | str:
    """Returns the readings of each node, or the reason why the exporters cannot be read."""
    namespace = node_agent_namespace(system)
    try:
        listed = source.items(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{LABEL_NAME}={EXPORTER}")
        pods = [WholePod(item) for item in listed]
    except ApiError as error:
        return said(error)
    if not pods:
        return f"no exporter runs in {namespace}"
    by_address = {pod.address: pod for pod in pods}

    def ask(url: str) -> bytes:
        asked = urlsplit(url)
        pod = by_address[asked.hostname]
        return source.ask(namespace, pod.name, _port(pod), asked.path)

    readings = telemetry.read(
        filter(None, map(exporter_of, (pod.item for pod in pods))),
        ledger,
        [node_of(node) for node in nodes],
        port=1,  # The port has no effect, because `ask` finds the port of each pod.
        scraper=Scraper(page=ask),
    )
    return {each.node: each for each in readings}


def _port(pod: WholePod) -> int:
    ports = [port for each in maps_at(pod.spec, "containers") for port in maps_at(each, "ports")]
    return int(ports[0]["containerPort"]) if ports else EXPORTER_PORT


def _gates(
    source: Source, declaring: "Future[Object]", ledger: Ledger, own: str | None, threads: Executor
) -> tuple[GatedWorkload, ...]:
    """Returns the on-demand workloads with the names and the states of their Deployments.

    The names of the Deployments come from the gate's CronJob. Without the gate's CronJob, the function assumes that
    each Deployment has the name of its workload.
    """
    with_deployment = _declared_gates(declaring.result)

    def gate(each: OnDemand) -> GatedWorkload:
        deployment = with_deployment.get((each.tenant, each.name), each.name)
        state = _state(source, each.tenant, deployment)
        return row(GatedWorkload, each, namespace=each.tenant, deployment=deployment, state=state)

    return tuple(threads.map(gate, [each for each in ledger.on_demand if own in (None, each.tenant)]))


def _declared_gates(read_cron_job: Callable[[], Object]) -> Mapping[tuple[str, str], str]:
    """Returns the Deployment of each on-demand workload, by its namespace and name, as the gate's CronJob names them.

    If the CronJob cannot be read, returns no Deployments.
    """
    try:
        cron_job = read_cron_job()
        (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        (value,) = (each["value"] for each in container["env"] if each["name"] == "GATES")
        return {(each["namespace"], each["name"]): each["deployment"] for each in json.loads(value)}
    except (AgentError, LookupError, TypeError, ValueError):
        return {}


def _state(source: Source, namespace: str, deployment: str) -> str:
    try:
        found = source.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}")
    except ApiError as error:
        return "no Deployment" if error.status == http.client.NOT_FOUND else "unknown"
    return "closed" if (found.get("spec") or {}).get("replicas") == 0 else "open"


def age(seconds: float) -> str:
    """Returns the age in the format of kubectl: 42s, 7m, 3h, 2d."""
    for size, unit in ((86400, "d"), (3600, "h"), (120, "m")):
        if seconds >= size:
            return f"{int(seconds // (60 if unit == 'm' else size))}{unit}"
    return f"{max(int(seconds), 0)}s"
