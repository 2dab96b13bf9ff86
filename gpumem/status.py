"""Implements `kubectl gpumem status`. Reports if each part of the platform works."""

import http.client
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from agents.kube.client import ApiError, Object
from gpumem.cluster import CLUSTER_QUEUES, ClusterSnapshot, age
from gpumem.paper import Paper, text_of_lines
from gpumem.report import DONE, NOT_KNOWN, STARTS, WAITS, said
from gpumem.rows import NodeRow, WholeRow
from gpumem.source import Source
from gpumem.who import Who, who
from tenancy.ledger import Pool
from tenancy.names import EXPORTER, KUEUE, LABEL_NAME, LABEL_PART_OF, PROJECT, RECONCILE, node_agent_namespace
from tenancy.seconds import SILENT_SECONDS
from tenancy.workload import ShapeError, condition, map_at, text_at, value_or

_OURS = f"{LABEL_PART_OF}={PROJECT}"
_LISTS = ("cronjobs", "deployments", "daemonsets", "clusterqueues")  # the names of the parts for unreadable lists


class State(StrEnum):
    WELL = "well"
    STARTING = "starting"
    UNKNOWN = "unknown"
    WRONG = "wrong"


# The exit codes of a report, by its worst part. The states are in the order of State.
CODES = dict(zip(State, (DONE, STARTS, NOT_KNOWN, WAITS), strict=True))


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the platform. `text` has the numbers, and the remedy if the part does not work."""

    name: str
    state: State
    text: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """The report. `fine` is True if every part works."""

    fine: bool
    parts: tuple[Part, ...]
    unknown: tuple[str, ...]
    observed: str = ""

    @property
    def worst(self) -> State:
        return max((part.state for part in self.parts), key=[*State].index)


def status(source: Source, cluster: ClusterSnapshot, system: str) -> Status:
    """Returns the report: a part for each workload, pool and queue that the ledger declares, and for others of ours.

    A part that the user may not read is unknown. A part that was made just now, and has not worked yet, is starting.
    """
    found, ledger, now = who(cluster), cluster.ledger, cluster.now
    nodes = node_agent_namespace(system)
    parts = [
        *_read(source, f"/apis/batch/v1/namespaces/{system}/cronjobs", lambda each: _cron_job(each, now)),
        *_read(source, f"/apis/apps/v1/namespaces/{system}/deployments", lambda each: _deployment(each, now)),
        *_read(source, f"/apis/apps/v1/namespaces/{nodes}/daemonsets", lambda each: _daemon_set(each, now)),
    ]
    declared = {*ledger.workloads, *([RECONCILE] if ledger.shared_pools else [])} - {KUEUE}
    parts += _absent(declared, parts)
    queues: list[Part] = []
    if ledger.queue_tenants:
        queues += _kueue(source, cluster)
        active = _read(source, CLUSTER_QUEUES, _cluster_queue, selector="")
        queues += active
        queues += _absent({_queue_name(each.queue) for each in ledger.quotas if not each.cohort}, active)
    every = (_ledger(cluster), *parts, *_pools(cluster, found), *queues)
    return Status(
        fine=all(part.state is State.WELL for part in every),
        parts=every,
        unknown=found.unknown,
        observed=ledger.observed,
    )


def _absent(declared: Iterable[str], parts: Sequence[Part]) -> list[Part]:
    """Returns a part for each declared object that is not there. If a list could not be read, nothing is absent."""
    if any(part.state is State.UNKNOWN and part.name in _LISTS for part in parts):
        return []
    missing = sorted({*declared} - {part.name for part in parts})
    return [
        Part(name=name, state=State.WRONG, text="it is declared, and is not there: run make up") for name in missing
    ]


def _kueue(source: Source, cluster: ClusterSnapshot) -> list[Part]:
    found = _read(
        source, "/apis/apps/v1/deployments", lambda each: _deployment(each, cluster.now), f"{LABEL_NAME}={KUEUE}"
    )
    if found or KUEUE in cluster.ledger.workloads:
        return found or _absent([KUEUE], ())
    text = f"no Deployment has the label {LABEL_NAME}={KUEUE}, so it is not known if Kueue runs"
    return [Part(name=KUEUE, state=State.UNKNOWN, text=text)]


def _read(source: Source, path: str, judge: Callable[[Object], Part], selector: str = _OURS) -> list[Part]:
    try:
        selected = {"labelSelector": selector} if selector else {}
        return [part for each in source.items(path, **selected) for part in _judged(each, judge)]
    except ApiError as error:
        if error.status == http.client.NOT_FOUND:  # The cluster does not even have the kind.
            return []
        return [Part(name=path.rpartition("/")[2], state=State.UNKNOWN, text=said(error))]


def _judged(found: Object, judge: Callable[[Object], Part]) -> list[Part]:
    try:
        return [judge(found)]
    except (ShapeError, ValueError) as error:
        return [Part(name=_name(found), state=State.UNKNOWN, text=str(error))]


def _name(found: Object) -> str:
    return str(map_at(found, "metadata").get("name"))


def _ledger(cluster: ClusterSnapshot) -> Part:
    ledger = cluster.ledger
    text = f"{len(ledger.pools)} pools, {len(ledger.seats)} seats, {len(ledger.on_demand)} on-demand workloads"
    return Part(name="ledger", state=State.WELL, text=text)


def _cron_job(found: Object, now: datetime) -> Part:
    name, last = _name(found), text_at(map_at(found, "status"), "lastSuccessfulTime")
    look = f"kubectl -n {found['metadata']['namespace']} get jobs,pods -l {LABEL_NAME}={name}"
    if map_at(found, "spec").get("suspend"):
        return Part(name=name, state=State.WRONG, text="its CronJob is suspended: set spec.suspend to false")
    if not last:
        return _early(found, now, f"no run has succeeded yet: {look}")
    seconds = (now - datetime.fromisoformat(last)).total_seconds()
    text = f"last successful run {age(seconds)} ago"
    if abs(seconds) > SILENT_SECONDS:
        return Part(name=name, state=State.WRONG, text=f"{text}: {look}")
    return Part(name=name, state=State.WELL, text=text)


def _early(found: Object, now: datetime, text: str) -> Part:
    """Returns a part that does not work: it is starting while it is so young that it may not have worked yet."""
    made = text_at(map_at(found, "metadata"), "creationTimestamp")
    seconds = (now - datetime.fromisoformat(made)).total_seconds() if made else SILENT_SECONDS
    if seconds < SILENT_SECONDS:
        return Part(name=_name(found), state=State.STARTING, text=f"made {age(seconds)} ago, {text}")
    return Part(name=_name(found), state=State.WRONG, text=text)


def _deployment(found: Object, now: datetime) -> Part:
    wanted = value_or(map_at(found, "spec"), "replicas", 1)
    return _ready(found, wanted, value_or(map_at(found, "status"), "readyReplicas", 0), now)


def _daemon_set(found: Object, now: datetime) -> Part:
    counts = map_at(found, "status")
    return _ready(found, value_or(counts, "desiredNumberScheduled", 0), value_or(counts, "numberReady", 0), now)


def _ready(found: Object, wanted: object, ready: object, now: datetime) -> Part:
    if not isinstance(wanted, int) or not isinstance(ready, int):
        raise ShapeError(f"the numbers of pods must be whole (got {wanted!r} and {ready!r})")
    text = f"{ready} of {wanted} pods ready"
    if ready < max(wanted, 1):
        look = f"kubectl -n {found['metadata']['namespace']} get pods -l {LABEL_NAME}={_name(found)}"
        return _early(found, now, f"{text}: {look}")
    return Part(name=_name(found), state=State.WELL, text=text)


def _queue_name(queue: str) -> str:
    return f"ClusterQueue {queue}"


def _cluster_queue(found: Object) -> Part:
    name = _queue_name(_name(found))
    active = condition(found, "Active")
    if active.get("status") == "True":
        return Part(name=name, state=State.WELL, text="active")
    return Part(
        name=name, state=State.WRONG, text=f"not active: {text_at(active, 'message') or 'Kueue has no verdict'}"
    )


def _pools(cluster: ClusterSnapshot, found: Who) -> Iterator[Part]:
    for pool in cluster.ledger.pools:
        shared = [row for row in found.nodes if row.pool == pool.name]
        whole = [row for row in found.whole if row.pool == pool.name]
        faults = [fault for row in shared for fault in _faults(row, pool)]
        faults += [fault for row in whole for fault in _whole_faults(row, pool)]
        there, blind = len(shared) + len(whole), _blind(cluster, shared)
        if there < pool.declared_nodes[0]:
            faults.insert(0, f"{there} of {pool.declared_nodes[0]} nodes are there")
        state = State.WRONG if faults else State.UNKNOWN if blind else State.WELL
        text = "; ".join([*faults, *blind]) or f"{there} nodes, {there * pool.device_count} devices"
        yield Part(name=f"pool {pool.name}", state=state, text=text)


def _blind(cluster: ClusterSnapshot, rows: Iterable[NodeRow]) -> list[str]:
    """Returns a sentence for each node of which the use must be measured, and is not known."""
    measured = {name for name, reading in cluster.measured.items() if not reading.problem}
    blind = [row.node for row in rows if row.node not in measured]
    if EXPORTER not in cluster.ledger.workloads:
        return []
    return [f"{node}: what is in use is not known" for node in blind]


def _whole_faults(row: WholeRow, pool: Pool) -> Iterator[str]:
    if row.unusable:
        yield f"{row.node} takes no new pod: {row.unusable}"
    elif row.offered and row.offered < pool.device_count:
        yield f"{row.node} advertises {row.offered} of {pool.device_count} GPUs"


def _faults(row: NodeRow, pool: Pool) -> Iterator[str]:
    if row.unusable:
        yield f"{row.node} takes no new pod: {row.unusable}"
    if row.devices and len(row.devices) < pool.device_count:
        yield f"{row.node} has {len(row.devices)} of {pool.device_count} devices"
    offered_mib = sum(each.offered_mib for each in row.devices)
    advertised_mib = offered_mib - row.unadvertised_mib
    if 0 < advertised_mib < min(offered_mib, pool.node_mib):
        yield f"{row.node} advertises {advertised_mib} of {min(offered_mib, pool.node_mib)} MiB"
    for device in row.devices:
        name = f"{row.node}, gpu {device.index}"
        if not device.healthy:
            yield f"{name} is unhealthy"
        if device.offered_mib < pool.device_mib:
            yield f"{name} offers {device.offered_mib} of the {pool.device_mib} MiB that the pool declares"
        if device.held_mib > device.offered_mib:
            yield f"{name} holds {device.held_mib} of {device.offered_mib} MiB"
        if device.measured_free_mib is not None and device.measured_free_mib < device.floor_mib:
            yield f"{name} has {device.measured_free_mib} MiB free, under the floor of {device.floor_mib}"


@text_of_lines
def status_text(report: Status, paper: Paper) -> Iterator[str]:
    yield from paper.wrapped(report.observed, alarm=True)
    yield from paper.table(("PART", "STATE", ""), [(part.name, part.state, part.text) for part in report.parts], "")
    yield ""
    yield from paper.unknown(report.unknown)
