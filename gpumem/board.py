"""Gathers the reports on the page of `kubectl gpumem board`: `who`, `free`, and `why` for everything that waits."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from agents.kube.client import Object
from agents.runtime.errors import AgentError
from gpumem import cluster
from gpumem.cluster import ClusterSnapshot
from gpumem.evidence import KINDS, WorkloadRef, gather, is_pending, readable
from gpumem.free import Free, free
from gpumem.source import ReadOnce, Source
from gpumem.who import Filter, Who, who
from gpumem.why import Answer, why
from tenancy.names import KUEUE_API
from tenancy.workload import maps_at

# The most waiting pods and workloads with a reason. A reason needs the lists of Events and ReplicaSets of a namespace.
_MOST_EXPLAINED = 20


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A pod or a workload that waits. `asks` is its request and its age. `answer` is None if its reason is unknown."""

    about: str
    asks: str = ""
    answer: Answer | None = None


@dataclass(frozen=True, kw_only=True)
class Board:
    """The reports on the cluster at the time `at`. `named` is False if the reports have no names of pods."""

    at: datetime
    who: Who
    free: Free
    waits: tuple[Wait, ...]
    named: bool = True


def read(source: Source, system: str, namespace: Callable[[], str], only: str | None = None) -> Board:
    """Reads the cluster. With `only`, the reports have only the pods of this namespace. Raises AgentError."""
    found = cluster.read(source, system, namespace)
    pods = {f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}": pod.item for pod in found.pods}
    once, gaps, own = ReadOnce(source, pods), dict[str, None](), only or found.own
    users = who(found, Filter(namespace=own))
    waiting = [*_pods(users), *_queued(once, found, own, gaps)]
    waits = [
        replace(wait, answer=_answer(once, found, target, system, gaps) if number < _MOST_EXPLAINED else None)
        for number, (target, wait) in enumerate(waiting)
    ]
    unknown = tuple(dict.fromkeys((*users.unknown, *gaps)))
    at = source.now or datetime.now(UTC)
    return Board(at=at, who=replace(users, unknown=unknown), free=free(found), waits=tuple(waits))


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
    return replace(board, who=users, waits=waits, named=False)


def _pods(users: Who) -> Iterator[tuple[WorkloadRef, Wait]]:
    for row in users.waiting:
        gpus = f" on {row.gpus} devices" if row.gpus > 1 else ""
        target = WorkloadRef("pod", row.namespace, row.name)
        yield target, Wait(about=str(target), asks=f"{row.mib} MiB{gpus}, for {row.age}")


def _queued(
    once: ReadOnce, found: ClusterSnapshot, own: str | None, gaps: dict[str, None]
) -> Iterator[tuple[WorkloadRef, Wait]]:
    """Yields the work in Kueue's queues that has no pods."""
    scope, problems = f"/namespaces/{own}" if own else "", list[str]()
    try:
        listed = once.items(f"/apis/{KUEUE_API}{scope}/workloads") if found.ledger.queue_tenants else ()
        pending = [each for each in readable(listed, problems) if is_pending(each)]
    except AgentError as error:
        pending, problems = [], [f"the work in queues is not known: {error}"]
    gaps.update(dict.fromkeys(problems))
    for target in filter(None, map(_owner, pending)):
        yield target, Wait(about=str(target))


def _owner(workload: Object) -> WorkloadRef | None:
    """Returns the object for which Kueue has the Workload. For a pod, returns None."""
    metadata = workload["metadata"]
    owners = [(str(each.get("kind")).lower(), each) for each in maps_at(metadata, "ownerReferences")]
    found = [(kind, each) for kind, each in owners if each.get("controller") and kind in KINDS and kind != "pod"]
    return WorkloadRef(found[0][0], metadata["namespace"], str(found[0][1].get("name"))) if found else None


def _answer(
    once: ReadOnce, found: ClusterSnapshot, target: WorkloadRef, system: str, gaps: dict[str, None]
) -> Answer | None:
    """Returns the first reason of the target, as `kubectl gpumem why` shows it."""
    try:
        report = why(gather(once, found, target, system))
    except Exception as error:  # noqa: BLE001 (one workload must not end the reports on all others)
        gaps[f"the reason of {target}: {error}"] = None
        return None
    gaps.update(dict.fromkeys(report.unknown))
    return report.answers[0]
