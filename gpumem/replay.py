"""Implements `kubectl gpumem replay`.

Simulates a cluster with a recorded history of use, first with one stack file, and then with a changed stack file.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from gpumem.history import Row, column_number, csv_rows
from gpumem.paper import Paper, text_of_lines
from gpumem.prometheus import SCHEMES, HistoryError, Prometheus
from gpumem.report import rfc3339, row
from tenancy.names import METRIC_POD_USED
from tenancy.pod_history import PodHistory
from tenancy.units import MIB

if TYPE_CHECKING:
    from simulation.replay import Played

STEP_SECONDS = 15  # The interval at which Prometheus scrapes the exporters.
COLUMNS = ("time", "namespace", "pod", "gpu", "mib")
# The PromQL query for the used bytes by pod and device. If Prometheus scrapes a node twice, the use counts only once.
USED = (
    "sum by (namespace, pod, pod_uid, uuid) (max by (namespace, pod, pod_uid, container, node, uuid) "
    f'({METRIC_POD_USED}{{pod!=""}}))'
)
_MOST_EVENTS = 40  # The maximum number of events in the text. With the flag -o json, the report has all events.
_GAP_STEPS = 3
_LEAST_GAP_SECONDS = 60.0
RECYCLED, LET_IN, PUT_OUT = "recycled", "let in", "put out"
_FLOOR, _SHORT = "under its floor", "short within its budget"


@dataclass(frozen=True, kw_only=True)
class ReplayEvent:
    """An event of the replay.

    `what` is "recycled", "let in", "put out", "pending" or "refused". Only a pending or refused event has `seconds`.
    """

    at: str
    what: str
    workload: str
    seconds: int
    used_mib: int
    declared_mib: int
    device: str


@dataclass(frozen=True, kw_only=True)
class Total:
    """A sum over events of one kind for one workload or device: the number, the total seconds, and the longest time."""

    of: str
    what: str
    times: int
    seconds: int
    longest_seconds: int


@dataclass(frozen=True, kw_only=True)
class Side:
    """The events of the replay under one stack file."""

    file: str
    totals: tuple[Total, ...]
    events: tuple[ReplayEvent, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The report of `kubectl gpumem replay`.

    `first` and `last` are the times of the first and the last sample in the history, in UTC. `sides` has the results
    under the current stack file, and then the results under the changed stack file.
    """

    first: str
    last: str
    pods: int
    sides: tuple[Side, ...]


_Key = tuple[str, str, str]  # namespace, pod, device
_Sample = tuple[float, int]


def read(source: str, *, days: int, now: float) -> list[PodHistory]:
    """Returns the use of each pod from a Prometheus (an http(s) URL), for the last days before `now`.

    Returns the whole use of a CSV file. Raises HistoryError.
    """
    served = source.startswith(SCHEMES)
    samples = _from_prometheus(Prometheus(source), days, now) if served else _from_file(Path(source))
    held: dict[_Key, list[_Sample]] = defaultdict(list)
    for key, sample in samples:
        held[key].append(sample)
    if not held:
        raise HistoryError(f"{source} has no use of GPU memory by pods: there is nothing to replay")
    return [_use(key, found) for key, found in sorted(held.items())]


def _from_prometheus(server: Prometheus, days: int, now: float) -> Iterator[tuple[_Key, _Sample]]:
    end = now // STEP_SECONDS * STEP_SECONDS
    for series in server.over(USED, end - days * 86_400, end, STEP_SECONDS):
        labels = series.labels
        key = (labels.get("namespace", ""), labels.get("pod", ""), labels.get("uuid", ""))
        yield from ((key, (at, round(value / MIB))) for at, value in series.values)


def _from_file(path: Path) -> Iterator[tuple[_Key, _Sample]]:
    yield from (_sample(where, line) for where, line in csv_rows(path, COLUMNS))


def _sample(where: str, line: Row) -> tuple[_Key, _Sample]:
    """Returns the key and the sample of a row of a CSV file. Raises HistoryError."""
    for name in ("namespace", "pod", "gpu"):
        if not line.get(name):
            raise HistoryError(f"{where}: {name} is empty")
    key = (str(line["namespace"]), str(line["pod"]), str(line["gpu"]))
    return key, (_time(where, line.get("time")), round(column_number(where, line, "mib")))


def _time(where: str, value: str | None) -> float:
    """Returns the time in seconds since 1970. Raises HistoryError."""
    try:
        return _seconds(value or "")
    except (ValueError, OverflowError):
        raise HistoryError(
            f"{where}: time must be seconds since 1970, or as in 2026-06-02T12:00:00Z (got {value!r})"
        ) from None


def _seconds(text: str) -> float:
    """Returns a time of ISO 8601, or a number, as seconds since 1970. The function raises ValueError and
    OverflowError."""
    if text.replace(".", "", 1).isdecimal():
        found = float(text)
    else:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError("a time without its zone")
        found = time.timestamp()
    datetime.fromtimestamp(found, UTC)
    if found < 0:
        raise ValueError("before 1970")
    return found


def _use(key: _Key, samples: Iterable[_Sample]) -> PodHistory:
    """Returns the samples sorted by time, with 0 MiB in gaps."""
    ordered = sorted(dict(samples).items())
    steps = [after[0] - before[0] for before, after in pairwise(ordered)]
    step = median(steps) if steps else 0.0
    most = max(_GAP_STEPS * step, _LEAST_GAP_SECONDS)
    filled = list(ordered[:1])
    for before, after in pairwise(ordered):
        if after[0] - before[0] > most:
            filled.append((before[0] + step, 0))
        filled.append(after)
    return PodHistory(*key, tuple(filled))


def replay(pods: Sequence[PodHistory], played: Sequence[tuple[str, "Played"]]) -> Replay:
    """Returns the report on the simulations of a history with these stack files."""
    first = played[0][1]
    return Replay(
        first=rfc3339(first.begin),
        last=rfc3339(first.end),
        pods=len({(pod.namespace, pod.pod) for pod in pods}),
        sides=tuple(_side(name, each) for name, each in played),
    )


def _side(name: str, played: "Played") -> Side:
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in played.happened:
        found[each.workload, each.what].append(each.seconds)
    for floor in played.floors:
        found[_device(floor.device), _FLOOR].append(floor.seconds)
    for workload, seconds in played.short_seconds.items():
        found[workload, _SHORT].append(seconds)
    return Side(
        file=name,
        totals=tuple(
            Total(of=of, what=what, times=len(each), seconds=sum(each), longest_seconds=max(each))
            for (of, what), each in sorted(found.items())
        ),
        events=tuple(
            row(ReplayEvent, each, at=rfc3339(each.at), device=_device(each.device)) for each in played.happened
        ),
        notes=tuple(played.notes),
    )


def _device(uuid: str) -> str:
    return uuid.removeprefix("GPU-")


@text_of_lines
def replay_text(report: Replay, paper: Paper) -> Iterator[str]:
    yield f"{report.pods} pods from {report.first} to {report.last}"
    for name, side in zip(_NAMES, report.sides, strict=False):
        yield f"{name}: {side.file}"
    yield ""
    keys = sorted({(total.of, total.what) for side in report.sides for total in side.totals})
    sides = [{(total.of, total.what): total for total in side.totals} for side in report.sides]
    header = ("OF", "WHAT", *(name.upper() for name in _NAMES[: len(sides)]))
    yield from paper.table(header, [(*key, *(_cell(side.get(key)) for side in sides)) for key in keys])
    if not keys:
        yield "nobody is recycled, let in, put out or refused, nobody waits, and no device is under its floor"
    yield ""
    yield from _verdict(report, paper)
    yield from _events(report, paper)
    yield from paper.unknown(dict.fromkeys(note for side in report.sides for note in side.notes))


_NAMES = ("today", "changed")


def _cell(total: Total | None) -> str:
    if total is None:
        return "0"
    if total.what == _SHORT:
        return _span(total.seconds)
    longest = f", at most {_span(total.longest_seconds)}" if total.times > 1 else ""
    return f"{total.times}" + (f": {_span(total.seconds)}{longest}" if total.seconds else "")


def _span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _verdict(report: Replay, paper: Paper) -> Iterator[str]:
    if len(report.sides) < 2:
        return
    before, after = (_hurts(side) for side in report.sides)
    worse = [each for each in sorted(before.keys() | after.keys()) if after.get(each, 0) > before.get(each, 0)]
    better = [each for each in sorted(before.keys() | after.keys()) if after.get(each, 0) < before.get(each, 0)]
    if worse:
        yield from paper.wrapped(f"! more under the change: {', '.join(map(' '.join, worse))}", alarm=True)
    if better:
        yield from paper.wrapped(f"less under the change: {', '.join(map(' '.join, better))}")
    if not worse and not better:
        yield "the change makes no difference to this history"
    yield ""


def _hurts(side: Side) -> dict[tuple[str, str], float]:
    """Returns the harm by workload or device, and by kind of event.

    The harm of recycles is their number. The harm of all other kinds of event is their total duration in seconds.
    """
    return {
        (total.of, total.what): total.times if total.what == RECYCLED else total.seconds
        for total in side.totals
        if total.what not in (LET_IN, PUT_OUT)
    }


def _events(report: Replay, paper: Paper) -> Iterator[str]:
    found = sorted(
        ((event.at, number, event) for number, side in enumerate(report.sides) for event in side.events),
        key=lambda each: each[:2],
    )
    if not found:
        return
    rows = [(at, _NAMES[number], event.workload, _event(event)) for at, number, event in found[:_MOST_EVENTS]]
    yield from paper.table(("TIME", "UNDER", "WHO", "WHAT"), rows)
    if len(found) > _MOST_EVENTS:
        yield f"  and {len(found) - _MOST_EVENTS} more; -o json has all"
    yield ""


def _event(event: ReplayEvent) -> str:
    match event.what:
        case "recycled":
            return f"recycled at {event.used_mib} of {event.declared_mib} MiB on {event.device}"
        case "pending":
            return f"waited {_span(event.seconds)} for its place"
        case "refused":
            return f"refused for {_span(event.seconds)}"
    return event.what
