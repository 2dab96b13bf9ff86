"""Implements `kubectl gpumem status`. Reports if each part of the platform works."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from agents.kube.client import ApiError, Object
from agents.kube.kubectl import Kubectl
from gpumem.cluster import ClusterSnapshot, age
from gpumem.paper import Paper, text_of_lines
from gpumem.rows import NodeRow
from gpumem.who import Who, who
from tenancy.choices import Sharing
from tenancy.names import KUEUE, LABEL_NAME, LABEL_PART_OF, PROJECT, RECONCILE, node_agent_namespace
from tenancy.seconds import SILENT_SECONDS
from tenancy.workload import ShapeError, condition, map_at, text_at, value_or

_OURS = f"{LABEL_PART_OF}={PROJECT}"


class State(StrEnum):
    WELL = "well"
    WRONG = "wrong"
    UNKNOWN = "unknown"


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


def status(source: Kubectl, cluster: ClusterSnapshot, system: str) -> Status:
    """Returns the report. A part that the user may not read is unknown."""
    found = who(cluster)
    agents = [
        *_read(
            source, f"/apis/batch/v1/namespaces/{system}/cronjobs", _OURS, lambda each: _cron_job(each, cluster.now)
        ),
        *_read(source, f"/apis/apps/v1/namespaces/{system}/deployments", _OURS, _deployment),
        *_read(source, f"/apis/apps/v1/namespaces/{node_agent_namespace(system)}/daemonsets", _OURS, _daemon_set),
    ]
    known = {part.name for part in agents}
    if cluster.ledger.shared_pools and RECONCILE not in known and not any(p.state is State.UNKNOWN for p in agents):
        remedy = f"no CronJob {RECONCILE} in {system}: no node advertises GPU memory; run make up"
        agents.append(Part(name=RECONCILE, state=State.WRONG, text=remedy))
    queues = []
    if cluster.ledger.queue_tenants:
        queues += _read(source, "/apis/apps/v1/deployments", f"{LABEL_NAME}={KUEUE}", _deployment)
        queues += [part for queue in cluster.cluster_queues for part in _judged(queue, _cluster_queue)]
    parts = (_ledger(cluster), *agents, *_pools(cluster, found), *queues)
    return Status(
        fine=all(part.state is State.WELL for part in parts),
        parts=parts,
        unknown=found.unknown,
        observed=cluster.ledger.observed,
    )


def _read(source: Kubectl, path: str, selector: str, judge: Callable[[Object], Part]) -> list[Part]:
    try:
        return [part for each in source.items(path, labelSelector=selector) for part in _judged(each, judge)]
    except ApiError as error:
        return [Part(name=path.rpartition("/")[2], state=State.UNKNOWN, text=str(error))]


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
        return Part(name=name, state=State.WRONG, text=f"no run has succeeded yet: {look}")
    seconds = (now - datetime.fromisoformat(last)).total_seconds()
    text = f"last successful run {age(seconds)} ago"
    if abs(seconds) > SILENT_SECONDS:
        return Part(name=name, state=State.WRONG, text=f"{text}: {look}")
    return Part(name=name, state=State.WELL, text=text)


def _deployment(found: Object) -> Part:
    wanted = value_or(map_at(found, "spec"), "replicas", 1)
    return _ready(found, wanted, value_or(map_at(found, "status"), "readyReplicas", 0))


def _daemon_set(found: Object) -> Part:
    counts = map_at(found, "status")
    return _ready(found, value_or(counts, "desiredNumberScheduled", 0), value_or(counts, "numberReady", 0))


def _ready(found: Object, wanted: object, ready: object) -> Part:
    if not isinstance(wanted, int) or not isinstance(ready, int):
        raise ShapeError(f"the numbers of pods must be whole (got {wanted!r} and {ready!r})")
    text = f"{ready} of {wanted} pods ready"
    if ready < max(wanted, 1):
        look = f"kubectl -n {found['metadata']['namespace']} get pods -l {LABEL_NAME}={_name(found)}"
        return Part(name=_name(found), state=State.WRONG, text=f"{text}: {look}")
    return Part(name=_name(found), state=State.WELL, text=text)


def _cluster_queue(found: Object) -> Part:
    name = f"ClusterQueue {_name(found)}"
    active = condition(found, "Active")
    if active.get("status") == "True":
        return Part(name=name, state=State.WELL, text="active")
    return Part(
        name=name, state=State.WRONG, text=f"not active: {text_at(active, 'message') or 'Kueue has no verdict'}"
    )


def _pools(cluster: ClusterSnapshot, found: Who) -> Iterator[Part]:
    for pool in cluster.ledger.pools:
        if pool.sharing is Sharing.MEMORY:
            rows = [row for row in found.nodes if row.pool == pool.name]
            there, faults = len(rows), list(_faults(rows))
        else:
            whole = [row for row in found.whole if row.pool == pool.name]
            there, faults = len(whole), [f"{row.node} advertises no GPU" for row in whole if row.offered is None]
        if there < pool.declared_nodes[0]:
            faults.insert(0, f"{there} of {pool.declared_nodes[0]} nodes are there")
        text = "; ".join(faults) or f"{there} nodes, {there * pool.device_count} devices"
        yield Part(name=f"pool {pool.name}", state=State.WRONG if faults else State.WELL, text=text)


def _faults(rows: Iterable[NodeRow]) -> Iterator[str]:
    for row in rows:
        if row.unusable:
            yield f"{row.node} takes no new pod: {row.unusable}"
        for device in row.devices:
            name = f"{row.node}, gpu {device.index}"
            if not device.healthy:
                yield f"{name} is unhealthy"
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
