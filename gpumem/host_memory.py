"""Implements advise --host-memory.

Compares the declarations of memory pools with a history of use, and proposes a patch. The patch only raises numbers,
because the future use can have a higher peak.
"""

import math
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpumem import checkout
from gpumem.checkout import AcceptedStack
from gpumem.history import Row, column_number, csv_rows
from gpumem.paper import Paper, text_of_lines
from gpumem.prometheus import LAST_SECONDS, MOST_POINTS, OPEN, SCHEMES, Access, HistoryError, Prometheus
from gpumem.proposal import DAY_SECONDS
from tenancy.host_memory.history import MINUTE, PoolUse, UsageSample, pool_use
from tenancy.host_memory.pool import HostMemoryPool, Workload
from tenancy.units import MIB

_MEASURED = "container_memory_working_set_bytes"

_COLUMNS = ("time", "workload", "mib")


@dataclass(frozen=True, kw_only=True)
class HostMemoryAdvised:
    """The report of advise --host-memory.

    If no declaration must change, `patch` is None. If the policy pack refuses the change, `patch` is None too, and
    `refused` has the reasons.
    """

    pools: tuple[PoolUse, ...]
    refused: tuple[str, ...]
    patch: str | None

    @property
    def fine(self) -> bool:
        """Returns True if the history contradicts no declaration."""
        return not any(use.contradictions for pool in self.pools for use in pool.workloads)


def advised(source: str, stack: AcceptedStack, *, days: int, access: Access = OPEN) -> HostMemoryAdvised:
    """Returns the report on the memory pools of a stack. Raises HistoryError and CheckoutError."""
    pools = stack.host_memory.pools
    if not pools:
        raise HistoryError(f"{stack.path} has no memory_pools")
    samples = read(source, pools, days=days, access=access)
    try:
        found = tuple(pool_use(pool, samples[pool.name]) for pool in pools)
    except ValueError as error:
        raise HistoryError(str(error)) from None
    numbers: dict[checkout.KeyPath, int] = {
        ("memory_pools", pool.pool, "workloads", use.workload, key): mib
        for pool in found
        for use in pool.workloads
        for key, mib in use.proposed.items()
    }
    change = checkout.with_numbers(stack, numbers)
    patch = None if change.refusals or not numbers else checkout.patch(stack, change)
    return HostMemoryAdvised(pools=found, refused=change.refusals, patch=patch)


@text_of_lines
def advised_text(report: HostMemoryAdvised, paper: Paper) -> Iterator[str]:
    for pool in report.pools:
        yield from _pool_lines(pool)
    if report.fine:
        return
    for pool in report.pools:
        for use in pool.workloads:
            parts = ", ".join(f"{key} {mib}" for key, mib in use.proposed.items())
            if parts:
                yield from paper.wrapped(f"what {use.workload} held asks for {parts}")
    if report.refused:
        yield from paper.wrapped("that does not fit, by settings and policy pack:", alarm=True)
        for line in report.refused:
            yield from paper.wrapped(line, "  ")
    elif report.patch:
        yield from paper.wrapped("that fits, by settings and policy pack:")
        yield ""
        yield from report.patch.splitlines()


def _pool_lines(pool: PoolUse) -> Iterator[str]:
    yield f"{pool.pool}: {pool.minutes} minutes of all workloads, {_date(pool.first)} to {_date(pool.last)}"
    yield ""
    yield f"{'MiB':24}{'usual':>8}{'declared':>10}{'most':>9}{'declared':>10}"
    for use in pool.workloads:
        usual = f"{use.usual_mib:>8.0f}{use.steady_mib:>10}"
        yield f"{use.workload:24}{usual}{use.most_mib:>9.0f}{use.peak_mib:>10}"
    yield ""
    for use in pool.workloads:
        for key, seen in use.contradictions.items():
            yield f"! memory_pools.{pool.pool}.workloads.{use.workload}.{key}: {seen}"
    yield f"together at most {pool.highest_mib:.0f} of {pool.pods_mib} MiB, {_date(pool.highest)}"
    yield f"two or more peaked in {pool.together:.2%} of the minutes"
    yield f"short with every victim gone: {pool.short.hits} of {pool.short.hours} hours"
    yield f"short with every victim there, at its most: {pool.needs_victims.hits} of {pool.needs_victims.hours} hours"


def _date(minute: int) -> str:
    return f"{datetime.fromtimestamp(minute * MINUTE, UTC):%Y-%m-%d %H:%M}"


def read(
    source: str, pools: Sequence[HostMemoryPool], *, days: int, access: Access = OPEN
) -> dict[str, list[UsageSample]]:
    """Returns the measured use of the workloads of each pool.

    The history is a Prometheus (an http(s) URL) or a CSV file with all pools. Raises HistoryError.
    """
    if source.startswith(SCHEMES):
        server = Prometheus(source, access)
        server.refuse_what_is_mixed(_MEASURED, time.time(), days)
        return {p.name: [sample for w in p.workloads for sample in _from_prometheus(server, w, days)] for p in pools}
    names = {workload.name for pool in pools for workload in pool.workloads}
    samples = [_sample(where, line, names) for where, line in csv_rows(Path(source), _COLUMNS)]
    return {pool.name: samples for pool in pools}


def query(workload: Workload) -> str:
    """Returns a PromQL query for the MiB that all pods of a workload use.

    The name of each pod begins with the name of its workload.
    """
    chosen = f'namespace="{workload.tenant}",pod=~"{workload.name}(-.*)?",container!=""'
    return f"sum({_MEASURED}{{{chosen}}}) / {MIB}"


def _from_prometheus(server: Prometheus, workload: Workload, days: int) -> Iterator[UsageSample]:
    end = time.time()
    step = max(MINUTE, math.ceil(days * DAY_SECONDS / MOST_POINTS / MINUTE) * MINUTE)
    for series in server.over(query(workload), end - days * DAY_SECONDS, end, step):
        yield from (UsageSample(at, workload.name, mib) for at, mib in series.values)


def _sample(where: str, line: Row, workloads: Collection[str]) -> UsageSample:
    workload = line["workload"] or ""
    if workload not in workloads:
        known = ", ".join(sorted(workloads))
        raise HistoryError(f"{where}: workload {workload!r} is in no memory pool; known there: {known}")
    return UsageSample(column_number(where, line, "time", LAST_SECONDS), workload, column_number(where, line, "mib"))
