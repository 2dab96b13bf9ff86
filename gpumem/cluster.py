"""The cluster as the scheduler's extender counts it, from lists of the API: by its own cache, never by sums of ours.

What may not be read, or does not answer, is left out, and a line says what is not known and why.
"""

import http.client
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import SLICES
from agents.extender.cache.inventory import NodeDevices, devices_of
from agents.extender.cache.pod_info import PodInfo, holder
from agents.gate import config as gates
from agents.gate.config import GateConfig
from agents.kube.client import ApiError, Object
from agents.kube.ledger import LedgerError, stored_ledger
from agents.kube.nodes import NODES, node_of
from agents.kube.pods import LIVE, PODS, Pod, PodError
from agents.runtime.errors import AgentError
from agents.telemetry import client as telemetry
from agents.telemetry.client import NodeTelemetry
from gpumem.kubectl import ApiReader
from tenancy.decode import DecodeError
from tenancy.ledger import Ledger, OnDemand
from tenancy.names import EXPORTER, GATE, GPU, LABEL_NAME, LEDGER, node_agent_namespace
from tenancy.units import MIB
from tenancy.workload import maps_at

_AT_ONCE = 16


@dataclass(frozen=True)
class GatedWorkload:
    """An on-demand workload. `state` is that of its Deployment: open, closed, no Deployment, or unknown, because it may
    not be read."""

    name: str
    namespace: str
    deployment: str
    pool: str
    need_mib: int
    state: str


@dataclass(frozen=True, kw_only=True)
class ClusterSnapshot:
    """What was read. `own` is the one namespace whose pods may be read, None where all may be. `devices` and `nodes`
    are by the node's name, `measured` likewise; `pods` have not ended. `gaps` say what is not known, and why."""

    ledger: Ledger
    now: datetime
    nodes: Mapping[str, Object]
    devices: Mapping[str, NodeDevices]
    pods: tuple[Pod, ...]
    cache: Cache
    own: str | None = None
    measured: Mapping[str, NodeTelemetry] = field(default_factory=dict)
    gates: tuple[GatedWorkload, ...] = ()
    gaps: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether every pod is known, so that what is free is."""
        return self.own is None

    def bound(self) -> Mapping[str, PodInfo]:
        """The pods that hold GPU memory, by uid, as the cache has them."""
        return {pod.uid: pod for node in self.devices for pod in self.cache.pods(node)}


def read(
    source: ApiReader, system: str, namespace: Callable[[], str], *, with_measured: bool = True
) -> ClusterSnapshot:
    """Everything, in parallel. `namespace` is whose pods are read where not all may be.

    Raises ApiError and LedgerError.
    """
    gaps: list[str] = []
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        reading = threads.submit(ledger, source, system)
        nodes = threads.submit(lambda: [*source.items(NODES)])
        slices = threads.submit(lambda: [*source.items(SLICES)])
        pods = threads.submit(lambda: [*source.items(PODS, **LIVE)])
        declared = threads.submit(source.get, f"/apis/batch/v1/namespaces/{system}/cronjobs/{GATE}")
        found_ledger = reading.result()
        known_nodes = {node["metadata"]["name"]: node for node in nodes.result()}
        measuring = (
            threads.submit(_measured, source, system, found_ledger, known_nodes.values()) if with_measured else None
        )
        items, own = _pods(source, pods, namespace, gaps)
        found_gates = _gates(source, declared, found_ledger, own, threads)
        measured = measuring.result() if measuring else {}
        devices = _devices(known_nodes.values(), slices, found_ledger, gaps)
    if isinstance(measured, str):
        gaps.append(f"what is in use is not known: {measured}")
        measured = {}
    return of(
        found_ledger,
        now=source.now or datetime.now(UTC),
        nodes=known_nodes,
        devices=devices,
        pods=items,
        own=own,
        measured=measured,
        gates=found_gates,
        gaps=gaps,
    )


def of(
    ledger: Ledger,
    *,
    now: datetime,
    nodes: Mapping[str, Object],
    devices: Mapping[str, NodeDevices],
    pods: Iterable[Object],
    own: str | None = None,
    measured: Mapping[str, NodeTelemetry] | None = None,
    gates: Sequence[GatedWorkload] = (),
    gaps: Iterable[str] = (),
) -> ClusterSnapshot:
    """The cluster of these objects."""
    said, held, kept = [*gaps], [], []
    for item in pods:
        pod = Pod(item)
        try:
            found = holder(item, ledger.names)
            waiting = () if pod.node else (ledger.names.gpumem, ledger.names.gpu_count)  # of others the holder is asked
            for resource in (*waiting, GPU):
                pod.request(resource)  # whoever asks for it later can read it
        except PodError as error:
            said.append(f"is not counted: {error}")
            continue
        kept.append(pod)
        if found is not None:
            held.append(found)
    cache = Cache()
    cache.replace(devices.values(), held, time.monotonic())
    for each in (measured or {}).values():
        if each.devices:
            free = {device.gpu: device.free_bytes // MIB for device in each.devices}
            cache.measure(each.node, free, each.read_at, each.uses, unknown=each.unknown_uses)
    return ClusterSnapshot(
        ledger=ledger,
        now=now,
        nodes=nodes,
        devices=devices,
        pods=tuple(kept),
        cache=cache,
        own=own,
        measured=measured or {},
        gates=tuple(gates),
        gaps=tuple(said),
    )


def ledger(source: ApiReader, system: str) -> Ledger:
    """The stored ledger. Raises ApiError and LedgerError."""
    try:
        found = stored_ledger(source.get(f"/api/v1/namespaces/{system}/configmaps/{LEDGER}"), system)
    except ApiError as error:
        if error.status == http.client.NOT_FOUND:
            raise LedgerError(
                f"there is no ConfigMap {LEDGER} in {system}: name the stack's namespace (--system-namespace), or run "
                "pulumi up"
            ) from None
        raise
    if found.deleting:
        raise LedgerError("the ledger is being deleted: nothing is placed; run pulumi up")
    return found.ledger()


def _pods(
    source: ApiReader, listing: "Future[list[Object]]", namespace: Callable[[], str], gaps: list[str]
) -> tuple[list[Object], str | None]:
    """The pods that may be read, and in which namespace alone. Raises ApiError."""
    try:
        return listing.result(), None
    except ApiError as error:
        if error.status != http.client.FORBIDDEN:
            raise
    own = namespace()
    gaps.append(f"the pods of other namespaces than {own} may not be read: shown are its own, and what is promised")
    return [*source.items(f"/api/v1/namespaces/{own}/pods", **LIVE)], own


def _devices(
    nodes: Iterable[Object], listing: "Future[list[Object]]", ledger: Ledger, gaps: list[str]
) -> dict[str, NodeDevices]:
    """Of the nodes in the ledger's pools. Raises ApiError."""
    try:
        slices = listing.result()
    except ApiError as error:
        if error.status not in (http.client.FORBIDDEN, http.client.NOT_FOUND):
            raise
        gaps.append(f"the devices are not known: {error}")
        slices = []
    by_node: dict[str, list[Object]] = {}
    for found in slices:
        by_node.setdefault(found["spec"].get("nodeName", ""), []).append(found)
    owned = [node for node in nodes if any(pool.matches(node["metadata"].get("labels") or {}) for pool in ledger.pools)]
    return {
        node["metadata"]["name"]: devices_of(node, by_node.get(node["metadata"]["name"], ()), ledger) for node in owned
    }


def _measured(
    source: ApiReader, system: str, ledger: Ledger, nodes: Iterable[Object]
) -> dict[str, NodeTelemetry] | str:
    """By node; a sentence where the exporters may not be asked."""
    namespace = node_agent_namespace(system)
    try:
        exporters = [Pod(item) for item in source.items(_of(namespace), labelSelector=f"{LABEL_NAME}={EXPORTER}")]
    except ApiError as error:
        return str(error)
    if not exporters:
        return f"no exporter runs in {namespace}"
    by_address = {pod.status.get("podIP"): pod for pod in exporters}

    def ask(url: str) -> bytes:
        asked = urlsplit(url)
        pod = by_address[asked.hostname]
        return source.ask(namespace, pod.name, _port(pod), asked.path)

    readings = telemetry.read(
        source,
        ledger,
        [node_of(node) for node in nodes],
        namespace=namespace,
        port=1,  # each pod's own says its own
        get=ask,
    )
    return {each.node: each for each in readings}


def _of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def _port(pod: Pod) -> int:
    """That its first container names."""
    ports = [port for each in maps_at(pod.spec, "containers") for port in maps_at(each, "ports")]
    return int(ports[0]["containerPort"]) if ports else 9401


def _gates(
    source: ApiReader, declaring: "Future[Object]", ledger: Ledger, own: str | None, threads: Executor
) -> tuple[GatedWorkload, ...]:
    """As the gate has them; where that may not be read, as the ledger has: a Deployment of the workload's name."""
    with_deployment = {(gate.namespace, gate.name): gate.deployment for gate in declared_gates(declaring.result)}

    def gate(each: OnDemand) -> GatedWorkload:
        deployment = with_deployment.get((each.tenant, each.name), each.name)
        return GatedWorkload(
            name=each.name,
            namespace=each.tenant,
            deployment=deployment,
            pool=each.pool,
            need_mib=each.need_mib,
            state=_state(source, each.tenant, deployment),
        )

    return tuple(threads.map(gate, [each for each in ledger.on_demand if own in (None, each.tenant)]))


def declared_gates(read_cron_job: Callable[[], Object]) -> tuple[GateConfig, ...]:
    """What the gate's CronJob declares; none where it is not there, or may not be read."""
    try:
        cron_job = read_cron_job()
        (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        (value,) = (each["value"] for each in container["env"] if each["name"] == "GATES")
        return gates.declared(value)
    except (AgentError, DecodeError, LookupError, ValueError):
        return ()


def _state(source: ApiReader, namespace: str, deployment: str) -> str:
    try:
        found = source.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}")
    except ApiError as error:
        return "no Deployment" if error.status == http.client.NOT_FOUND else "unknown"
    return "closed" if (found.get("spec") or {}).get("replicas") == 0 else "open"


def age(seconds: float) -> str:
    """As kubectl writes it: 42s, 7m, 3h, 2d."""
    for size, unit in ((86400, "d"), (3600, "h"), (120, "m")):
        if seconds >= size:
            return f"{int(seconds // (60 if unit == 'm' else size))}{unit}"
    return f"{max(int(seconds), 0)}s"
