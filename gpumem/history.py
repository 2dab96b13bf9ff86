"""Reads the use of seats from a CSV file, or from a Prometheus that scrapes the exporters."""

import csv
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpumem.prometheus import LAST_SECONDS, MOST_POINTS, OPEN, SCHEMES, Access, HistoryError, Prometheus
from gpumem.proposal import DAY_SECONDS, UseSample
from tenancy.ledger import Ledger, Seat
from tenancy.names import METRIC_DEVICE_FREE, METRIC_DEVICE_TOTAL, METRIC_POD_DECLARED, METRIC_POD_USED
from tenancy.units import MIB

MINUTE = 60
_MOST_REQUESTS = 5  # The maximum number of requests for one series. A query over more days has a longer step.
MOST_MIB = 2**31  # The largest number of MiB that a history or a stack file may have.
COLUMNS = ("time", "seat", "mib")
Row = Mapping[str, str | None]


@dataclass(frozen=True)
class SeatUses:
    """The samples of the seats, and a list of the facts that could not be read.

    A sample without a seat only shows that Prometheus measured something at that time.
    """

    samples: tuple[UseSample, ...]
    unknown: tuple[str, ...] = ()


def read(source: str, ledger: Ledger, *, days: int, now: float, access: Access = OPEN) -> SeatUses:
    """Returns the samples of the last days before `now` from a Prometheus (an http(s) URL).

    Returns all samples of a CSV file. Raises HistoryError.
    """
    if source.startswith(SCHEMES):
        return _from_prometheus(Prometheus(source, access), ledger, days, now)
    seats = {seat.name: _floor_mib(ledger, seat) for seat in ledger.seats}
    return SeatUses(tuple(_sample(where, row, seats) for where, row in csv_rows(Path(source), COLUMNS)))


def step_seconds(days: int) -> int:
    """Returns the seconds between two samples of a query.

    The time between two samples is one minute, unless the query would need more than _MOST_REQUESTS requests.
    """
    return max(math.ceil(days * DAY_SECONDS / (MOST_POINTS * _MOST_REQUESTS) / MINUTE), 1) * MINUTE


def use_query(tenant: str, step: int) -> str:
    """Returns a PromQL query for the use in bytes by pod and device. Each value of the query is the maximum within one
    step."""
    chosen = f'{METRIC_POD_USED}{{namespace="{tenant}",pod!=""}}'
    containers = f"max by (pod, pod_uid, container, node, uuid) (max_over_time({chosen}[{step}s]))"
    return f"sum by (pod, pod_uid, node, uuid) ({containers})"


def below_floor_query(tenant: str, step: int, floor_mib: int) -> str:
    """Returns a PromQL query for the use in bytes by pod and device.

    The result of the query has only devices that were below their floor within the step.
    """
    free = f"min by (node, uuid) (min_over_time({METRIC_DEVICE_FREE}[{step}s]))"
    return f"{use_query(tenant, step)} and on (node, uuid) {free} < {floor_mib * MIB}"


def seat_of(seats: Sequence[Seat], pod: str, declared_mib: float) -> Seat | None:
    """Returns the seat of a pod.

    Prefers the seat with the longest name with which the pod's name begins. If no name matches, returns the tenant's
    only seat, or the smallest seat that is large enough for the pod's budget.
    """
    named = [seat for seat in seats if pod == seat.name or pod.startswith(f"{seat.name}-")]
    if named:
        return max(named, key=lambda seat: len(seat.name))
    if len(seats) == 1:
        return seats[0]
    fitting = [seat for seat in seats if seat.pod_mib >= declared_mib]
    return min(fitting, key=lambda seat: seat.pod_mib) if fitting else None


def _from_prometheus(server: Prometheus, ledger: Ledger, days: int, now: float) -> SeatUses:
    server.refuse_what_is_mixed(METRIC_POD_USED, now, days)
    step = step_seconds(days)
    end = now // step * step
    start = end - days * DAY_SECONDS + step
    measured = f"count(max_over_time({METRIC_DEVICE_TOTAL}[{step}s]))"
    samples = [UseSample(at, "", 0) for series in server.over(measured, start, end, step) for at, _ in series.values]
    unknown = [] if samples else [f"{server.address} has no {METRIC_DEVICE_TOTAL} of these days: nothing was measured"]
    for tenant in sorted({seat.tenant for seat in ledger.seats}):
        found = _of_tenant(server, ledger, tenant, (start, end, step))
        samples += found.samples
        unknown += found.unknown
    return SeatUses(tuple(samples), (*unknown, *sorted(server.skipped)))


def _of_tenant(server: Prometheus, ledger: Ledger, tenant: str, span: tuple[float, float, int]) -> SeatUses:
    start, end, step = span
    seats = ledger.seats_of(tenant)
    asked = f'max by (pod_uid) (max_over_time({METRIC_POD_DECLARED}{{namespace="{tenant}"}}[{round(end - start)}s]))'
    declared = {s.labels.get("pod_uid", ""): s.values[0][1] / MIB for s in server.at(asked, end) if s.values}
    floors = {seat.name: _floor_mib(ledger, seat) for seat in seats}
    tight = {
        (floor_mib, _key(series.labels), at)
        for floor_mib in sorted({*floors.values()} - {0})
        for series in server.over(below_floor_query(tenant, step, floor_mib), start, end, step)
        for at, _ in series.values
    }
    samples: list[UseSample] = []
    strangers: set[str] = set()
    for series in server.over(use_query(tenant, step), start, end, step):
        key, pod = _key(series.labels), series.labels.get("pod", "")
        if not declared.get(key[0]):
            continue  # The pod has no budget.
        seat = seat_of(seats, pod, declared[key[0]])
        if seat is None:
            strangers.add(pod)
            continue
        floor_mib = floors[seat.name]
        samples += [
            UseSample(at, seat.name, value / MIB, "/".join(key), (floor_mib, key, at) in tight)
            for at, value in series.values
        ]
    return SeatUses(tuple(samples), tuple(f"which seat of {tenant} {pod} has" for pod in sorted(strangers)))


def _key(labels: Mapping[str, str]) -> tuple[str, str, str]:
    return labels.get("pod_uid", ""), labels.get("node", ""), labels.get("uuid", "")


def _floor_mib(ledger: Ledger, seat: Seat) -> int:
    """Returns the floor of the seat's pool in MiB."""
    pool = ledger.pool(seat.pool)
    return pool.floor_mib if pool else 0


def csv_rows(path: Path, columns: Collection[str]) -> Iterator[tuple[str, Row]]:
    """Yields the rows of a CSV file that has the given columns.

    Yields the name of the file and the line number with each row. Raises HistoryError.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            found = csv.DictReader(file)
            named = found.fieldnames or ()
            if set(columns) - set(named) or len(set(named)) < len(named):
                raise HistoryError(
                    f"{path}: the columns must be {', '.join(columns)}, each once (got {found.fieldnames})"
                )
            for row in found:
                yield f"{path}:{found.line_num}", row
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise HistoryError(f"{path} is no CSV file in UTF-8: {error}") from None


def column_number(where: str, row: Row, key: str, most: int = MOST_MIB) -> float:
    """Returns the number in a column of the row. Raises HistoryError."""
    try:
        found = float(row[key] or "")
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise HistoryError(f"{where}: {key} must be a number from 0 (got {row[key]!r})")
    if found > most:
        raise HistoryError(f"{where}: {key} must be at most {most} (got {row[key]!r}); time is in seconds, use in MiB")
    return found


def _sample(where: str, row: Row, seats: Mapping[str, int]) -> UseSample:
    seat = row["seat"] or ""
    if seat not in seats:
        raise HistoryError(f"{where}: seat {seat!r} is no resident; known: {', '.join(sorted(seats)) or 'none'}")
    free_mib = column_number(where, row, "free_mib") if row.get("free_mib") else math.inf
    mib = column_number(where, row, "mib")
    return UseSample(
        column_number(where, row, "time", LAST_SECONDS), seat, mib, row.get("pod") or "", free_mib < seats[seat]
    )
