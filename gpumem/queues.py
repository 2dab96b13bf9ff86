"""Reports the GPUs of Kueue's ClusterQueues: the used, borrowed and borrowable GPUs. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agents.kube.client import Object
from tenancy.ledger import Ledger, QueueQuota
from tenancy.names import GPU
from tenancy.quantity import QuantityError, whole
from tenancy.workload import ShapeError, map_at, maps_at, text_at, value_or


@dataclass(frozen=True, kw_only=True)
class QueueRow:
    """The GPUs of a ClusterQueue in one flavor.

    `used` includes `borrowed`. `free` is the idle quota of the queue itself. `borrowable` is the idle quota of the
    cohort that the queue may borrow. `lent` is the sum that the other queues of the cohort borrow. `waiting` counts the
    workloads of all flavors.
    """

    queue: str
    cohort: str
    flavor: str
    nominal: int
    used: int
    borrowed: int
    lent: int
    free: int
    borrowable: int
    waiting: int


@dataclass(frozen=True)
class _Usage:
    """The state of a ClusterQueue: its cohort, its waiting workloads, and its GPUs by flavor (used, borrowed)."""

    cohort: str
    waiting: int
    gpus: Mapping[str, tuple[int, int]]


def queue_rows(
    queues: Iterable[Object], ledger: Ledger, pool: str | None = None
) -> tuple[tuple[QueueRow, ...], tuple[str, ...]]:
    """Returns a row for each ClusterQueue with GPUs, and a line for each unreadable ClusterQueue.

    An unreadable queue counts as 0 in the rows of other queues. Therefore `lent` and `borrowable` of other queues can
    be too small.
    """
    declared = {quota.queue for quota in ledger.quotas if quota.resource == GPU and not quota.cohort}
    usages: dict[str, _Usage] = {}
    problems = []
    for queue in queues:
        name = str((queue.get("metadata") or {}).get("name"))
        if name not in declared:
            continue
        try:
            usages[name] = _usage(queue)
        except (ShapeError, QuantityError) as error:
            problems.append(f"ClusterQueue {name} is not counted, also not in its cohort: {error}")
    entries = [
        quota
        for quota in ledger.quotas
        if quota.resource == GPU and not quota.cohort and quota.queue in usages and pool in (None, quota.pool)
    ]
    return tuple(_row(quota, entries, usages) for quota in entries), tuple(problems)


def _usage(queue: Object) -> _Usage:
    """The function raises ShapeError and QuantityError."""
    return _Usage(
        cohort=text_at(map_at(queue, "spec"), "cohortName"),
        waiting=whole(value_or(map_at(queue, "status"), "pendingWorkloads", 0)),
        gpus={
            text_at(flavor, "name"): (
                whole(value_or(resource, "total", 0)),
                whole(value_or(resource, "borrowed", 0)),
            )
            for flavor in maps_at(queue, "status", "flavorsUsage")
            for resource in maps_at(flavor, "resources")
            if resource.get("name") == GPU
        },
    )


def _row(quota: QueueQuota, entries: Sequence[QueueQuota], usages: Mapping[str, _Usage]) -> QueueRow:
    usage = usages[quota.queue]
    others = [
        (each.nominal, *usages[each.queue].gpus.get(each.flavor, (0, 0)))
        for each in entries
        if usage.cohort and usages[each.queue].cohort == usage.cohort
        if each.flavor == quota.flavor and each is not quota
    ]
    total, borrowed = usage.gpus.get(quota.flavor, (0, 0))
    idle = sum(max(nominal - used, 0) for nominal, used, _ in others)
    return QueueRow(
        queue=quota.queue,
        cohort=usage.cohort,
        flavor=quota.flavor,
        nominal=quota.nominal,
        used=total,
        borrowed=borrowed,
        lent=sum(lent for _, _, lent in others),
        free=max(quota.nominal - total, 0),
        borrowable=max(min(quota.borrowing - borrowed, idle), 0),
        waiting=usage.waiting,
    )
