"""advise --host-memory: what a history says of the memory pools' declarations, and the patch of those that do not hold.

Nothing is lowered: a peak that was not seen is no peak that does not come.
"""

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpumem import checkout
from gpumem.advice import DAY_SECONDS
from gpumem.checkout import AcceptedStack
from gpumem.draw import Paper
from gpumem.history import number, rows
from gpumem.prometheus import LAST_SECONDS, MOST_POINTS, SCHEMES, HistoryError, Prometheus
from tenancy.host_memory.history import MINUTE, RARELY, JointUse, Probability, UsageSample, Use, joint_use
from tenancy.host_memory.pool import HostMemoryPool, Workload
from tenancy.host_memory.report import host_memory_report
from tenancy.units import MIB

# What is proposed is a multiple of it: an eighth of a GiB.
GRID_MIB = 128
_COLUMNS = ("time", "workload", "mib")


@dataclass(frozen=True, kw_only=True)
class WorkloadUse:
    """`contradictions` are by the key of the stack file that does not hold, `proposed` what it would have to be."""

    workload: str
    minutes: int
    usual_mib: float
    most_mib: float
    growth_mib_per_second: float
    above_request: float
    contradictions: Mapping[str, str]
    proposed: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class PoolUse:
    """As tenancy.host_memory.history has it; `text` is the report of it."""

    pool: str
    workloads: tuple[WorkloadUse, ...]
    together: float
    by_chance: float
    short: Probability
    needs_victims: Probability
    text: str


@dataclass(frozen=True, kw_only=True)
class HostMemoryAdvised:
    """`patch` is None where nothing is contradicted or the gate refuses it: `refused` are its lines then."""

    pools: tuple[PoolUse, ...]
    refused: tuple[str, ...]
    patch: str | None

    @property
    def fine(self) -> bool:
        """Whether every declaration holds."""
        return not any(use.contradictions for pool in self.pools for use in pool.workloads)


def advised(source: str, stack: AcceptedStack, *, days: int) -> HostMemoryAdvised:
    """Of a stack's memory pools. Raises HistoryError and CheckoutError."""
    pools = stack.host_memory.pools
    if not pools:
        raise HistoryError(f"{stack.path} has no memory_pools")
    samples = read(source, pools, days=days)
    found = tuple(_pool_use(pool, samples[pool.name]) for pool in pools)
    numbers: dict[checkout.KeyPath, int] = {
        ("memory_pools", pool.pool, "workloads", use.workload, key): mib
        for pool in found
        for use in pool.workloads
        for key, mib in use.proposed.items()
    }
    change = checkout.with_numbers(stack, numbers)
    patch = None if change.refusals or not numbers else checkout.patch(stack, change)
    return HostMemoryAdvised(pools=found, refused=change.refusals, patch=patch)


def _pool_use(pool: HostMemoryPool, samples: Sequence[UsageSample]) -> PoolUse:
    try:
        joint = joint_use(pool, samples)
    except ValueError as error:
        raise HistoryError(f"{pool.name}: {error}") from None
    return PoolUse(
        pool=pool.name,
        workloads=tuple(_workload(use, joint, index) for index, use in enumerate(joint.uses)),
        together=joint.together,
        by_chance=joint.by_chance,
        short=joint.short,
        needs_victims=joint.needs_victims,
        text=host_memory_report(pool, joint),
    )


def _workload(use: Use, joint: JointUse, index: int) -> WorkloadUse:
    contradictions = use.contradictions
    held = sorted(held[index] for held in joint.minutes.values())
    needed = {
        "steady_mib": use.usual_mib,
        "request_mib": held[min(math.ceil((1 - RARELY) * len(held)), len(held)) - 1],
        "peak_mib": use.most_mib,
        "growth_mib_per_second": use.growth_mib_per_second,
    }
    grid = {"growth_mib_per_second": 1}
    return WorkloadUse(
        workload=use.workload.name,
        minutes=use.minutes,
        usual_mib=use.usual_mib,
        most_mib=use.most_mib,
        growth_mib_per_second=use.growth_mib_per_second,
        above_request=use.above_request,
        contradictions=contradictions,
        proposed={key: _up(needed[key], grid.get(key, GRID_MIB)) for key in contradictions},
    )


def _up(mib: float, grid: int) -> int:
    return math.ceil(mib / grid) * grid


def advised_text(report: HostMemoryAdvised, paper: Paper) -> str:
    """The report of each pool, and what would hold."""
    return "\n".join([*(pool.text for pool in report.pools), *_verdict(report, paper)]).strip("\n") + "\n"


def _verdict(report: HostMemoryAdvised, paper: Paper) -> Iterator[str]:
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


def read(source: str, pools: Sequence[HostMemoryPool], *, days: int) -> dict[str, list[UsageSample]]:
    """What the pools' workloads held, by the pool's name, from a Prometheus (an http(s) URL) or from a CSV file, which
    is of all pools. Raises HistoryError."""
    if source.startswith(SCHEMES):
        server = Prometheus(source)
        return {p.name: [sample for w in p.workloads for sample in _from_prometheus(server, w, days)] for p in pools}
    samples = list(_from_file(Path(source), {workload.name for pool in pools for workload in pool.workloads}))
    return {pool.name: samples for pool in pools}


def query(workload: Workload) -> str:
    """PromQL: what the pods of a workload hold together, in MiB; pods are named after their workload."""
    chosen = f'namespace="{workload.tenant}",pod=~"{workload.name}(-.*)?",container!=""'
    return f"sum(container_memory_working_set_bytes{{{chosen}}}) / {MIB}"


def _from_prometheus(server: Prometheus, workload: Workload, days: int) -> Iterator[UsageSample]:
    end = time.time()
    step = max(MINUTE, math.ceil(days * DAY_SECONDS / MOST_POINTS / MINUTE) * MINUTE)
    what = f"what {workload.name} held"
    for series in server.over(query(workload), end - days * DAY_SECONDS, end, step, what):
        yield from (UsageSample(at, workload.name, mib) for at, mib in series.values)


def _from_file(path: Path, workloads: Collection[str]) -> Iterator[UsageSample]:
    for where, row in rows(path, _COLUMNS):
        workload = row["workload"] or ""
        if workload not in workloads:
            known = ", ".join(sorted(workloads))
            raise HistoryError(f"{where}: workload {workload!r} is in no memory pool; known there: {known}")
        yield UsageSample(number(where, row, "time", LAST_SECONDS), workload, number(where, row, "mib"))
