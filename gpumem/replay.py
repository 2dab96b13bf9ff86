"""replay: a history of use under a stack file, and under a changed one beside it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Protocol

from gpumem.draw import Paper
from gpumem.history import number, rows, wrong_lines
from gpumem.prometheus import SCHEMES, HistoryError, Prometheus
from tenancy.names import METRIC_POD_USED
from tenancy.units import MIB

STEP_SECONDS = 15  # as the exporters are scraped
COLUMNS = ("time", "namespace", "pod", "gpu", "mib")
# PromQL: bytes by pod and device; a node that is scraped twice counts once.
USED = (
    "sum by (namespace, pod, pod_uid, uuid) (max by (namespace, pod, pod_uid, container, node, uuid) "
    f'({METRIC_POD_USED}{{pod!=""}}))'
)
_MOST_EVENTS = 40  # that are listed; -o json has all
_GAP_STEPS = 3
_LEAST_GAP_SECONDS = 60.0
RECYCLED, LET_IN, PUT_OUT, PENDING, REFUSED = "recycled", "let in", "put out", "pending", "refused"
_FLOOR, _SHORT = "under its floor", "short within its budget"


@dataclass(frozen=True)
class PodSeries:
    """What a pod held of one device: (seconds since 1970, MiB), in order."""

    namespace: str
    pod: str
    gpu: str
    samples: tuple[tuple[float, int], ...]


@dataclass(frozen=True, kw_only=True)
class ReplayEvent:
    """`what` is one of the five words above; `seconds` is of pending and refused."""

    at: str
    what: str
    workload: str
    seconds: int
    used_mib: int
    declared_mib: int
    device: str


@dataclass(frozen=True, kw_only=True)
class Total:
    """How often, and for how long altogether and at most, something happened to a workload, or to a device."""

    of: str
    what: str
    times: int
    seconds: int
    longest_seconds: int


@dataclass(frozen=True, kw_only=True)
class Side:
    """What would have happened under one stack file."""

    file: str
    totals: tuple[Total, ...]
    events: tuple[ReplayEvent, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """`first` and `last` are the moments of the history in UTC. Of `sides` the first is today's, the second the
    change."""

    first: str
    last: str
    pods: int
    sides: tuple[Side, ...]


# The history


def read(source: str, *, days: int, now: float) -> list[PodSeries]:
    """The last days before `now` of a Prometheus (an http(s) URL); or a CSV file, all of it. Raises HistoryError."""
    served = source.startswith(SCHEMES)
    found = _from_prometheus(Prometheus(source), days, now) if served else _from_file(Path(source))
    if not found:
        raise HistoryError(f"{source} has no use of GPU memory by pods: there is nothing to replay")
    return found


def _from_prometheus(server: Prometheus, days: int, now: float) -> list[PodSeries]:
    end = now // STEP_SECONDS * STEP_SECONDS
    held: dict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
    for series in server.over(USED, end - days * 86_400, end, STEP_SECONDS, "what pods used"):
        labels = series.labels
        key = (labels.get("namespace", ""), labels.get("pod", ""), labels.get("uuid", ""))
        held[key] += [(at, round(value / MIB)) for at, value in series.values]
    return [_use(key, samples) for key, samples in sorted(held.items())]


def _from_file(path: Path) -> list[PodSeries]:
    """Raises HistoryError with all that is wrong, as far as a screen holds it."""
    held: dict[tuple[str, str, str], list[tuple[float, int]]] = defaultdict(list)
    wrong: list[str] = []
    for where, row in rows(path, COLUMNS):
        try:
            space, pod, gpu = (_text(where, row.get(key), key) for key in ("namespace", "pod", "gpu"))
            held[space, pod, gpu].append((_time(where, row.get("time")), round(number(where, row, "mib"))))
        except HistoryError as error:
            wrong.append(str(error))
    if wrong:
        raise HistoryError(wrong_lines(wrong))
    return [_use(key, samples) for key, samples in sorted(held.items())]


def _text(where: str, value: str | None, key: str) -> str:
    if not value:
        raise HistoryError(f"{where}: {key} is empty")
    return value


def _time(where: str, value: str | None) -> float:
    """Raises HistoryError."""
    text = value or ""
    try:
        return _seconds(text)
    except (ValueError, OverflowError):
        raise HistoryError(
            f"{where}: time must be seconds since 1970, or as in 2026-06-02T12:00:00Z (got {value!r})"
        ) from None


def _seconds(text: str) -> float:
    """Raises ValueError and OverflowError."""
    if text.replace(".", "", 1).isdecimal():
        found = float(text)
    else:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("a time without its zone")
        found = moment.timestamp()
    datetime.fromtimestamp(found, UTC)
    if found < 0:
        raise ValueError("before 1970")
    return found


def _use(key: tuple[str, str, str], samples: Iterable[tuple[float, int]]) -> PodSeries:
    """In order, and with nothing where samples are missing."""
    ordered = sorted(dict(samples).items())
    steps = [after[0] - before[0] for before, after in pairwise(ordered)]
    step = median(steps) if steps else 0.0
    most = max(_GAP_STEPS * step, _LEAST_GAP_SECONDS)
    filled = list(ordered[:1])
    for before, after in pairwise(ordered):
        if after[0] - before[0] > most:
            filled.append((before[0] + step, 0))
        filled.append(after)
    return PodSeries(*key, tuple(filled))


# What came of it


class Happened(Protocol):
    """As simulation.replay has it."""

    @property
    def at(self) -> datetime: ...
    @property
    def what(self) -> str: ...
    @property
    def workload(self) -> str: ...
    @property
    def seconds(self) -> int: ...
    @property
    def used_mib(self) -> int: ...
    @property
    def declared_mib(self) -> int: ...
    @property
    def device(self) -> str: ...


class Floor(Protocol):
    """As simulation.replay has it."""

    @property
    def device(self) -> str: ...
    @property
    def seconds(self) -> int: ...


class Played(Protocol):
    """As simulation.replay has it."""

    @property
    def begin(self) -> datetime: ...
    @property
    def end(self) -> datetime: ...
    @property
    def happened(self) -> Sequence[Happened]: ...
    @property
    def floors(self) -> Sequence[Floor]: ...
    @property
    def short_seconds(self) -> dict[str, int]: ...
    @property
    def notes(self) -> Sequence[str]: ...


def replay(pods: Sequence[PodSeries], played: Sequence[tuple[str, Played]]) -> Replay:
    """The report of a history, and of what came of it by stack file."""
    first = played[0][1]
    return Replay(
        first=_moment(first.begin),
        last=_moment(first.end),
        pods=len({(pod.namespace, pod.pod) for pod in pods}),
        sides=tuple(_side(name, each) for name, each in played),
    )


def _side(name: str, played: Played) -> Side:
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
        events=tuple(_event(each) for each in played.happened),
        notes=tuple(played.notes),
    )


def _event(each: Happened) -> ReplayEvent:
    return ReplayEvent(
        at=_moment(each.at),
        what=each.what,
        workload=each.workload,
        seconds=each.seconds,
        used_mib=each.used_mib,
        declared_mib=each.declared_mib,
        device=_device(each.device),
    )


def _device(uuid: str) -> str:
    """By its pool, its node's number and its index: a replay's devices are nobody's."""
    return uuid.removeprefix("GPU-")


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


# As text


def replay_text(report: Replay, paper: Paper) -> str:
    """As `kubectl gpumem replay` prints it."""
    return "\n".join(_lines(report, paper)).strip("\n") + "\n"


def _lines(report: Replay, paper: Paper) -> Iterator[str]:
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
    for note in dict.fromkeys(note for side in report.sides for note in side.notes):
        yield from paper.wrapped(f"not known: {note}")


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
    """What the change makes worse and better, by what hurts."""
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
    """Of a recycle how often; of what lasts, how long."""
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
    rows = [(at, _NAMES[number], event.workload, _told(event)) for at, number, event in found[:_MOST_EVENTS]]
    yield from paper.table(("TIME", "UNDER", "WHO", "WHAT"), rows)
    if len(found) > _MOST_EVENTS:
        yield f"  and {len(found) - _MOST_EVENTS} more; -o json has all"
    yield ""


def _told(event: ReplayEvent) -> str:
    match event.what:
        case "recycled":
            return f"recycled at {event.used_mib} of {event.declared_mib} MiB on {event.device}"
        case "pending":
            return f"waited {_span(event.seconds)} for its place"
        case "refused":
            return f"refused for {_span(event.seconds)}"
    return event.what
