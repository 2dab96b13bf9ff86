"""Proposes, after a refused preview, how to take back a part of what this change raised or added. Pure."""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from stacks.preview.events import Resource
from tenancy.decode import DecodeError
from tenancy.fit.lower import lower_budgets
from tenancy.ledger import Ledger, Pool, QueueQuota, Seat, Unbudgeted
from tenancy.names import LEDGER, LEDGER_KEY

# The maximum number of steps of the search that judges whether the promises of a pool fit.
_WORK = 100_000
_MOST_WAYS, _MOST_NAMED = 3, 8
# Promises fit less easily if one of these numbers is smaller. They fit less easily if any other number is larger.
_ROOM = ("memory_mib", "nodes", "device_count")
_OF_POOL = (*_ROOM, "reserve_mib", "driver_reserved_mib", "floor_mib")
_OF_SEAT = ("gpumem_mib", "replicas", "devices_per_pod")
# The number of an entry that is new.
_PROMISED = ("gpumem_mib", "measured_mib", "nominal")

_Entry = TypeVar("_Entry", Pool, Seat, Unbudgeted, QueueQuota)

# Maps each key of the stack file to its number.
_Numbers = Mapping[str, int]


def ledger_before(resources: Iterable[Resource]) -> Ledger | None:
    """Returns the ledger in Pulumi's state, or None if the state has no ledger that this version can read."""
    for resource in resources:
        if (
            resource.type == "kubernetes:core/v1:ConfigMap"
            and (resource.before.get("metadata") or {}).get("name") == LEDGER
        ):
            try:
                return Ledger.from_data(json.loads(resource.before["data"][LEDGER_KEY]), ignored=[])
            except (DecodeError, ValueError, KeyError, TypeError):
                return None
    return None


def remedies(ledger: Ledger, before: Ledger | None) -> Iterator[str]:
    """Yields a sentence for each pool whose promises do not fit any more.

    The sentence names the keys that this change raised or added, and values with which all promises fit. `before` is
    the ledger in the state of the stack. A pool without a state gets no sentence, because everything in it is new: the
    refusal itself has the sum and the pool.
    """
    for pool in ledger.shared_pools:
        if before is None or before.pool(pool.name) is None or _fits(ledger, pool.name, {}) is not False:
            continue
        ways = _ways(ledger, pool.name, [*_edits(_numbers(before, pool.name), _numbers(ledger, pool.name))])
        if ways:
            change = _listed([str(edit) for edit in dict.fromkeys(edit for way in ways for edit in way)])
            yield f"{pool.name}: this change {change}; {', or '.join(map(_written, ways))}"


@dataclass(frozen=True, kw_only=True)
class _Edit:
    """A number that differs from the number before this change. `old` is 0 for an entry that is new."""

    key: str
    old: int
    new: int
    added: bool

    @property
    def entry(self) -> str:
        return self.key.rpartition(".")[0]

    @property
    def takes_room(self) -> bool:
        return (self.new < self.old) is (self.key.rpartition(".")[2] in _ROOM)

    def __str__(self) -> str:
        if self.added:
            return f"adds {self.entry} with {self.new} MiB"
        return f"{'raises' if self.new > self.old else 'lowers'} {self.key} from {self.old} to {self.new}"

    def written(self, number: int) -> str:
        return f"write {self.key}: {number}" if number or not self.added else f"remove {self.entry}"


def _edits(before: _Numbers, after: _Numbers) -> list[_Edit]:
    """Returns what this change takes from the pool, with the largest difference first, and then what it gives back."""
    edits = [
        _Edit(key=key, old=before.get(key, 0), new=new, added=key not in before)
        for key, new in after.items()
        if new != before.get(key) and (key in before or key.rpartition(".")[2] in _PROMISED)
    ]
    return sorted(edits, key=lambda edit: (not edit.takes_room, -abs(edit.new - edit.old)))


def _ways(ledger: Ledger, pool: str, edits: Sequence[_Edit]) -> list[dict[_Edit, int]]:
    """Returns the edits that are enough alone, each with the nearest number with which all promises fit.

    If no edit is enough alone, returns the fewest of the first edits that are enough together. Returns an empty list
    if the promises did not fit before the change either.
    """
    alone = [edit for edit in edits[:_MOST_NAMED] if edit.takes_room and _fits(ledger, pool, {edit.key: edit.old})]
    if alone:
        return [{edit: _nearest(ledger, pool, {}, edit)} for edit in alone[:_MOST_WAYS]]
    old = [{edit.key: edit.old for edit in edits[:count]} for count in range(len(edits) + 1)]
    count = bisect_left(old, True, key=lambda numbers: _fits(ledger, pool, numbers) is True)
    if count == len(old):
        return []
    *others, last = edits[:count]
    return [{**{edit: edit.old for edit in others}, last: _nearest(ledger, pool, old[count - 1], last)}]


def _nearest(ledger: Ledger, pool: str, others: _Numbers, edit: _Edit) -> int:
    """Returns the number nearest to the new number of the edit with which the promises fit, next to `others`."""
    good, bad = edit.old, edit.new
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if _fits(ledger, pool, {**others, edit.key: middle}) else (good, middle)
    return good


def _fits(ledger: Ledger, pool: str, numbers: _Numbers) -> bool | None:
    """Returns whether the promises of a pool fit with these numbers, or None if the search ended too early."""
    changed = _with(ledger, pool, numbers)
    (judged,) = (each for each in changed.pools if each.name == pool)
    found = lower_budgets(changed, judged, least={}, work=_WORK)
    return found.changes == () if found.changes == () or found.proven else None


def _numbers(ledger: Ledger, pool: str) -> dict[str, int]:
    """Returns the numbers on which it depends whether the promises of the pool fit."""
    return {f"{entry}.{key}": getattr(each, key) for each, entry, keys in _entries(ledger, pool) for key in keys}


def _with(ledger: Ledger, pool: str, numbers: _Numbers) -> Ledger:
    """Returns the ledger with these numbers. A promise of 0 MiB counts as removed."""
    paths = {id(each): (entry, keys) for each, entry, keys in _entries(ledger, pool)}

    def changed(each: _Entry) -> _Entry:
        entry, keys = paths.get(id(each), ("", ()))
        return replace(each, **{key: numbers.get(f"{entry}.{key}", getattr(each, key)) for key in keys})

    return replace(
        ledger,
        pools=tuple(map(changed, ledger.pools)),
        seats=tuple(map(changed, ledger.seats)),
        unbudgeted=tuple(map(changed, ledger.unbudgeted)),
        quotas=tuple(map(changed, ledger.quotas)),
    )


def _entries(ledger: Ledger, pool: str) -> Iterator[tuple[Pool | Seat | Unbudgeted | QueueQuota, str, tuple[str, ...]]]:
    """Yields each entry of the stack file that concerns the pool, with its path and the names of its numbers."""
    for own in (each for each in ledger.pools if each.name == pool):
        yield own, f"pools.{pool}", _OF_POOL
    for seat in ledger.seats_in(pool):
        yield seat, f"residents.{seat.name}", _OF_SEAT
    for other in (each for each in ledger.unbudgeted if each.pool == pool):
        yield other, f"unbudgeted.{other.name}", ("measured_mib",)
    for quota in (q for q in ledger.quotas if q.pool == pool and q.resource == ledger.names.gpumem):
        part = "cohorts" if quota.cohort else "cluster_queues"
        yield quota, f"queues.{part}.{quota.queue}.quotas.{quota.flavor}.{quota.resource}", ("nominal",)


def _written(way: Mapping[_Edit, int]) -> str:
    if len(way) > _MOST_NAMED:
        return f"take back the {len(way)} largest of these"
    return ", ".join(edit.written(number) for edit, number in way.items())


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _MOST_NAMED
    return ", ".join(texts[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
