"""Writes the measured use of a memory pool as text, with a drawing."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from tenancy.host_memory.history import MINUTE, JointUse, Probability
from tenancy.host_memory.pool import HostMemoryPool

_FILLS = "█▓▒░▚▞"
_ROWS, _WIDTH = 12, 100
_GUTTER = 9  # the width of the scale: " 61.0Gi "


def host_memory_report(pool: HostMemoryPool, joint: JointUse) -> str:
    """Returns the report as text.

    A line that begins with `!` has a measurement that contradicts a declaration.
    """
    return "\n".join(_lines(pool, joint)) + "\n"


def _lines(pool: HostMemoryPool, joint: JointUse) -> Iterator[str]:
    first, last = min(joint.minutes), max(joint.minutes)
    yield f"{pool.name}: {len(joint.minutes)} minutes of all workloads, {_date(first)} to {_date(last)}"
    yield ""
    yield from _drawing(pool, joint)
    yield ""
    yield f"{'MiB':24}{'usual':>8}{'declared':>10}{'most':>9}{'declared':>10}"
    for use in joint.uses:
        declared = use.workload
        yield (
            f"{declared.name:24}{use.usual_mib:>8.0f}{declared.steady_mib:>10}{use.most_mib:>9.0f}"
            f"{declared.peak_mib:>10}"
        )
    yield ""
    for use in joint.uses:
        for key, seen in use.contradictions.items():
            yield f"! memory_pools.{pool.name}.workloads.{use.workload.name}.{key}: {seen}"
    at, held = joint.highest
    yield f"together at most {sum(held):.0f} of {pool.pods_mib} MiB, {_date(at)}"
    yield f"two or more peaked in {joint.together:.2%} of the minutes; by chance it would be {joint.by_chance:.2%}"
    yield f"short with every victim gone: {_probability(joint.short)}"
    yield f"short with every victim there, at its most: {_probability(joint.needs_victims)}"


def _probability(found: Probability) -> str:
    return f"{found.hits} of {found.hours} hours; 95% interval {found.low:.2%} to {found.high:.2%}"


def _drawing(pool: HostMemoryPool, joint: JointUse) -> Iterator[str]:
    """Draws the use over time. Each column of the drawing stands for a span of time, and shows the minute with the
    largest sum.

    A horizontal line of the drawing shows the memory that the pods can use together.
    """
    columns = _columns(joint, _WIDTH - _GUTTER)
    top = max(pool.pods_mib, *(sum(column) for column in columns))
    line = round(pool.pods_mib / top * _ROWS) - 1
    for row in reversed(range(_ROWS)):
        middle = (row + 0.5) / _ROWS * top
        scale = f"{(row + 1) / _ROWS * top / 1024:6.1f}Gi "
        empty = "─" if row == line else " "
        yield (scale + "".join(_fill(column, middle, empty) for column in columns)).rstrip()
    yield " " * _GUTTER + _date(min(joint.minutes)) + _date(max(joint.minutes)).rjust(len(columns) - 16)
    legend = "  ".join(f"{_fill_of(n)} {use.workload.name}" for n, use in enumerate(joint.uses))
    yield f"{' ' * _GUTTER}{legend}  ─ what the pods have"


def _columns(joint: JointUse, most: int) -> list[tuple[float, ...]]:
    held = [joint.minutes[minute] for minute in sorted(joint.minutes)]
    count = min(most, len(held))
    spans = [held[n * len(held) // count : (n + 1) * len(held) // count] for n in range(count)]
    return [max(span, key=sum) for span in spans]


def _fill(column: Sequence[float], mib: float, empty: str) -> str:
    for number, own in enumerate(column):
        if mib <= own:
            return _fill_of(number)
        mib -= own
    return empty


def _fill_of(number: int) -> str:
    return _FILLS[number % len(_FILLS)]


def _date(minute: int) -> str:
    return f"{datetime.fromtimestamp(minute * MINUTE, UTC):%Y-%m-%d %H:%M}"
