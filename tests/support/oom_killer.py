"""Chooses the process that the kernel would kill, as mm/oom_kill.c does."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tenancy.units import PAGES_PER_MIB


@dataclass(frozen=True, kw_only=True)
class Process:
    name: str
    resident_mib: int | Fraction
    oom_score_adj: int


def badness_pages(resident_mib: int | Fraction, oom_score_adj: int, total_mib: int) -> int:
    """Returns the score that the kernel gives a process, in pages of 4 KiB.

    `total_mib` is the node's host memory, or the limit of the control group that has run out of memory.

    The source is oom_badness in mm/oom_kill.c. `resident_mib` is the sum of the process's resident memory, swapped
    memory and page tables. The kernel divides `total_mib` by 1000 before it multiplies.
    """
    return int(resident_mib * PAGES_PER_MIB) + oom_score_adj * (total_mib * PAGES_PER_MIB // 1000)


def kernel_victim(processes: Iterable[Process], total_mib: int) -> Process | None:
    """If several processes have the highest badness, returns None, because the kernel's internal order decides."""
    scores = [(badness_pages(p.resident_mib, p.oom_score_adj, total_mib), p) for p in processes]
    highest = max((score for score, _ in scores), default=0)
    chosen = [process for score, process in scores if score == highest]
    return chosen[0] if len(chosen) == 1 else None
