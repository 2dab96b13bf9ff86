"""Gathers the reports on the page of `kubectl gpumem board`: `status`, `changes`, `who`, and `why` for what waits."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agents.kube.client import Object
from agents.runtime.errors import AgentError
from gpumem import cluster
from gpumem.changes import Change, changes
from gpumem.cluster import ClusterSnapshot
from gpumem.evidence import KINDS, gather, is_pending, readable
from gpumem.pods import Workload
from gpumem.report import said
from gpumem.source import ReadOnce, Source
from gpumem.status import Status, status
from gpumem.who import Filter, Waiting, Who, who
from gpumem.why import Answer, why
from tenancy.names import KUEUE_API
from tenancy.workload import maps_at

# The most waiting pods and workloads with a reason. A reason needs the lists of Events and ReplicaSets of a namespace.
_MOST_EXPLAINED = 20
_ACTS_SECONDS = 3600  # Kubernetes keeps Events for an hour.


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A pod or a workload that waits. `asks` is its request and its age. `answer` is None if its reason is unknown."""

    about: str
    asks: str = ""
    answer: Answer | None = None


@dataclass(frozen=True, kw_only=True)
class Board:
    """The reports on the cluster at the time `at`. `named` is False if the reports have no names of pods.

    `acts` has what the platform did in the last hour, the newest first.
    """

    at: datetime
    status: Status
    acts: tuple[Change, ...]
    who: Who
    waits: tuple[Wait, ...]
    named: bool = True


def read(source: Source, system: str, namespace: Callable[[], str], only: str | None = None) -> Board:
    """Reads the cluster. With `only`, the reports have only the pods of this namespace. Raises AgentError."""
    found = cluster.read(source, system, namespace)
    pods = {f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}": pod.item for pod in found.pods}
    once, gaps, own = ReadOnce(source, pods), list[str](), only or found.own
    users = who(found, Filter(namespace=own))
    waiting = [(Workload(row.namespace, "pod", row.name), _asks(row)) for row in users.waiting]
    waiting += [(target, "") for target in _queued(once, found, own, gaps)]
    waits = []
    for number, (target, asks) in enumerate(waiting):
        answer = _answer(once, found, target, system, gaps) if number < _MOST_EXPLAINED else None
        waits.append(Wait(about=str(target), asks=asks, answer=answer))
    acts, judged = _acts(once, system, own, gaps), status(once, found, system)
    users = replace(users, unknown=tuple(dict.fromkeys((*users.unknown, *gaps))))
    return Board(at=source.now or datetime.now(UTC), status=judged, acts=acts, who=users, waits=tuple(waits))


def _acts(source: Source, system: str, own: str | None, gaps: list[str]) -> tuple[Change, ...]:
    try:
        found = changes(source, system, _ACTS_SECONDS, namespace=own, pool=None, own=lambda: own or system)
    except AgentError as error:
        gaps.append(f"what the platform did: {said(error)}")
        return ()
    gaps += found.unknown
    return found.changes[::-1]


def without_names(board: Board) -> Board:
    """Returns the board with sums in place of pods, for readers without the right to see pods of other tenants.

    A sentence about an unknown fact can have the name of a pod, so the board has only the number of these sentences.
    """
    titles = Counter(each.answer.title if each.answer else "the reason is not known" for each in board.waits)
    users = replace(
        board.who,
        nodes=tuple(
            replace(node, adrift=(), devices=tuple(replace(each, pods=()) for each in node.devices))
            for node in board.who.nodes
        ),
        whole=tuple(replace(each, pods=()) for each in board.who.whole),
        waiting=(),
        gates=(),
        unknown=(f"{len(board.who.unknown)} facts",) if board.who.unknown else (),
    )
    waits = tuple(Wait(about=f"{count} x {title}") for title, count in sorted(titles.items()))
    return replace(board, who=users, waits=waits, acts=(), named=False)


def _asks(row: Waiting) -> str:
    gpus = f" on {row.gpus} devices" if row.gpus > 1 else ""
    return f"{row.mib} MiB{gpus}, for {row.age}"


def _queued(once: ReadOnce, found: ClusterSnapshot, own: str | None, gaps: list[str]) -> list[Workload]:
    """Returns the work in Kueue's queues that has no pods. Adds sentences about unreadable work to `gaps`."""
    path = f"/apis/{KUEUE_API}{f'/namespaces/{own}' if own else ''}/workloads"
    try:
        listed = [*once.items(path)] if found.ledger.queue_tenants else []
    except AgentError as error:
        gaps.append(f"the work in queues is not known: {error}")
        return []
    return [*filter(None, (_owner(each) for each in readable(listed, gaps) if is_pending(each)))]


def _owner(workload: Object) -> Workload | None:
    """Returns the object for which Kueue has the Workload. For a pod, returns None."""
    for each in maps_at(workload["metadata"], "ownerReferences"):
        kind = str(each.get("kind")).lower()
        if each.get("controller") and kind in KINDS and kind != "pod":
            return Workload(workload["metadata"]["namespace"], kind, str(each.get("name")))
    return None


def _answer(once: ReadOnce, found: ClusterSnapshot, target: Workload, system: str, gaps: list[str]) -> Answer | None:
    """Returns the first reason of the target, as `kubectl gpumem why` shows it."""
    try:
        report = why(gather(once, found, target, system))
    except Exception as error:  # noqa: BLE001 (one workload must not end the reports on all others)
        gaps.append(f"the reason of {target}: {error}")
        return None
    gaps += report.unknown
    return report.answers[0]
