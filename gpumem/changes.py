"""Implements `kubectl gpumem changes`.

Lists the platform's acts and findings, from the agents' Events and from the journals of the watchdog and the gate.
"""

import http.client
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.kube.client import ApiError
from agents.kube.journal import JournalError, content_of
from agents.kube.nodes import NODES
from gpumem.cluster import ledger as read_ledger
from gpumem.evidence import SeenEvent, seen_event
from gpumem.paper import Paper, text_of_lines
from gpumem.report import rfc3339, row, said
from gpumem.source import Source
from gpumem.who import check_pool
from tenancy import names
from tenancy.decode import decode
from tenancy.ledger import Ledger, OnDemand, Seat, Unbudgeted

_CONTROLLERS = (names.RECONCILE, names.WATCHDOG, names.GATE, names.GUARD, names.SCHEDULER)
_REASONS = frozenset(value for name, value in vars(names).items() if name.startswith("EVENT_"))
_SCALED = "Scaled"
# The reasons of the Events that the agents write about the acts in their journals.
_SAME = {
    names.EVENT_RECYCLED: (names.EVENT_RECYCLED,),
    _SCALED: (names.EVENT_GATE_OPENED, names.EVENT_GATE_CLOSED),
}
_SAME_SECONDS = 60.0  # the maximum time between an entry in a journal and its Event
_NEVER = datetime.fromtimestamp(0, UTC)
_MOST_CHARACTERS = 300  # the maximum length of a text in the report


@dataclass(frozen=True, kw_only=True)
class Change:
    """An act or a finding of the platform.

    `what` is the reason of an Event. `what` is `Scaled` if only the gate's journal has the change. `namespace` is None
    for a node. `source` is `event`, or the name of the journal's ConfigMap.
    """

    at: str
    what: str
    kind: str
    namespace: str | None
    name: str
    text: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The report. `changes` has the newest change last.

    `recycles_since` is the time of the oldest recycle in the watchdog's journal, or None if the journal has none.
    """

    since: str
    recycles_since: str | None
    changes: tuple[Change, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _Act:
    """A change with its exact time. An entry of a journal has the UIDs of its objects, and can have a node."""

    at: datetime
    what: str
    kind: str
    namespace: str
    name: str
    text: str
    source: str = "event"
    uids: frozenset[str] = frozenset()
    node: str = ""


@dataclass(frozen=True)
class _Recycled:
    """A recycle in the watchdog's journal. `workload` is namespace/kind/name."""

    at: datetime
    workload: str
    pods: tuple[str, ...] = ()
    node: str = ""
    overruled: bool = False


@dataclass(frozen=True)
class _ScaledTo:
    """An on-demand workload in the gate's journal."""

    uid: str
    replicas: int
    changed_at: int | None = None


def changes(
    source: Source,
    system: str,
    seconds: float,
    *,
    namespace: str | None,
    pool: str | None,
    own: Callable[[], str],
) -> Changes:
    """Returns the changes of the last `seconds`.

    If the user may not list the Events of all namespaces, the report has the Events of `own()`. Raises ApiError,
    LedgerError and UnknownNameError.
    """
    ledger = read_ledger(source, system)
    check_pool(ledger, pool)
    gaps: list[str] = []
    with ThreadPoolExecutor(len(_CONTROLLERS) + 2) as threads:
        journals = threads.submit(_journals, source, system, ledger, gaps)
        events = _events(source, threads, namespace, own, gaps)
        nodes = [*source.items(NODES)] if pool else []
        entries = journals.result()
    now = source.now or datetime.now(UTC)
    begin = now - timedelta(seconds=seconds)
    known = [*map(_of_event, events), *(each for each in entries if not _has_event(each, events))]
    tenants = _tenants(ledger, pool)
    members = {
        node["metadata"]["name"]
        for node in nodes
        for each in ledger.pools
        if each.name == pool and each.matches(node["metadata"].get("labels") or {})
    }

    def is_shown(act: _Act) -> bool:
        in_pool = act.node in members if act.node else act.namespace in tenants
        return act.at >= begin and namespace in (None, act.namespace) and (pool is None or in_pool)

    shown = sorted(filter(is_shown, known), key=lambda act: act.at)
    recycles = [each.at for each in entries if each.what == names.EVENT_RECYCLED]
    return Changes(
        since=rfc3339(begin),
        recycles_since=rfc3339(min(recycles)) if recycles else None,
        changes=tuple(map(_change, shown)),
        unknown=tuple(gaps),
    )


def _change(act: _Act) -> Change:
    text = act.text if len(act.text) <= _MOST_CHARACTERS else f"{act.text[: _MOST_CHARACTERS - 1]}…"
    return row(Change, act, at=rfc3339(act.at), namespace=act.namespace or None, text=text)


def _tenants(ledger: Ledger, pool: str | None) -> set[str]:
    queues = {each.queue for each in ledger.quotas if each.pool == pool}
    users: tuple[Seat | OnDemand | Unbudgeted, ...] = (*ledger.seats, *ledger.on_demand, *ledger.unbudgeted)
    return {each.tenant for each in users if each.pool == pool} | {
        each.tenant for each in ledger.local_queues if each.queue in queues
    }


def _events(
    source: Source, threads: Executor, namespace: str | None, own: Callable[[], str], gaps: list[str]
) -> list[SeenEvent]:
    """Returns the agents' Events in the namespace, or in all namespaces. Raises ApiError."""
    path = f"/api/v1/namespaces/{namespace}/events" if namespace else "/api/v1/events"

    def listed(controller: str) -> list[SeenEvent]:
        return [*map(seen_event, source.items(path, fieldSelector=f"reportingComponent={controller}"))]

    try:
        found = [each for events in threads.map(listed, _CONTROLLERS) for each in events]
    except ApiError as error:
        if namespace or error.status != http.client.FORBIDDEN:
            raise
        gaps.append(f"the Events of other namespaces than {own()}: {said(error)}")
        return _events(source, threads, own(), own, gaps)
    return [each for each in found if each.at and each.reason in _REASONS]


def _journals(source: Source, system: str, ledger: Ledger, gaps: list[str]) -> list[_Act]:
    """Returns the entries of the journals. A journal without a ConfigMap has no entries."""
    found: list[_Act] = []
    for agent, entries_of in ((names.WATCHDOG, _of_watchdog), (names.GATE, _of_gate)):
        name = names.journal(agent)
        try:
            content = content_of(source.get(f"/api/v1/namespaces/{system}/configmaps/{name}"))
            found += [*entries_of(content, name, ledger)]
        except ApiError as error:
            if error.status != http.client.NOT_FOUND:
                gaps.append(f"the journal {name}: {said(error)}")
        except (JournalError, ValueError, OverflowError, OSError) as error:
            gaps.append(f"the journal {name}: {error}")
    return found


def _of_watchdog(content: Mapping[str, Any], journal: str, _: Ledger) -> Iterator[_Act]:
    for done in decode(tuple[_Recycled, ...], content.get("recycled", ()), "recycled", ignored=[]):
        namespace, kind, name = (*done.workload.split("/", 2), "", "")[:3]
        text = f"recycled on {done.node}" if done.node else "recycled"
        yield _Act(
            at=done.at.astimezone(UTC),
            what=names.EVENT_RECYCLED,
            kind=kind.lower(),
            namespace=namespace,
            name=name,
            text=f"{text}, although a PodDisruptionBudget refused its eviction" if done.overruled else text,
            source=journal,
            uids=frozenset(done.pods),
            node=done.node,
        )


def _of_gate(content: Mapping[str, Any], journal: str, ledger: Ledger) -> Iterator[_Act]:
    tenants = {each.name: each.tenant for each in ledger.on_demand}
    for name, each in content.items():
        entry = decode(_ScaledTo, each, name, ignored=[])
        if entry.changed_at is not None:
            yield _Act(
                at=datetime.fromtimestamp(entry.changed_at, UTC),
                what=_SCALED,
                kind="on-demand workload",
                namespace=tenants.get(name, ""),
                name=name,
                text=f"has {entry.replicas} replicas since then, by the gate or by others",
                source=journal,
                uids=frozenset((entry.uid,)),
            )


def _of_event(event: SeenEvent) -> _Act:
    kind, _, name = event.about.partition("/")
    node = name if kind == "node" else ""
    at = (event.at or _NEVER).astimezone(UTC)
    return _Act(at=at, what=event.reason, kind=kind, namespace=event.namespace, name=name, text=event.note, node=node)


def _has_event(entry: _Act, events: Iterable[SeenEvent]) -> bool:
    return any(
        event.reason in _SAME[entry.what]
        and event.namespace == entry.namespace
        and (not entry.uids or event.uid in entry.uids)
        and event.at is not None
        and abs((event.at - entry.at).total_seconds()) <= _SAME_SECONDS
        for event in events
    )


@text_of_lines
def changes_text(report: Changes, paper: Paper) -> Iterator[str]:
    rows = [
        (each.at, each.what, f"{each.namespace}/{each.name}" if each.namespace else each.name, each.text)
        for each in report.changes
    ]
    yield from paper.table(("TIME", "WHAT", "ABOUT", "TEXT"), rows, indent="")
    if not rows:
        yield f"nothing is known since {report.since}"
    yield ""
    reach = f" The watchdog's journal has all recycles since {report.recycles_since}." if report.recycles_since else ""
    yield from paper.wrapped(
        f"Kubernetes keeps Events for 1 hour by default, so older changes can be missing.{reach} The gate's journal "
        "has only the last change of each on-demand workload."
    )
    yield from paper.unknown(report.unknown)
