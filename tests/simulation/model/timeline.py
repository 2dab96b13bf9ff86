"""The timeline of a simulation. A failing seed prints its timeline, and tests compare timelines."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

# A printed timeline has this many seconds before and after a moment, and at most this number of lines.
_BEFORE, _AFTER, _MOST = 900.0, 60.0, 80


@dataclass(frozen=True)
class Line:
    at: float
    who: str
    what: str

    def __str__(self) -> str:
        return f"{clock(self.at)}  {self.who:<10} {self.what}"


@dataclass
class Timeline:
    """The lines of a simulation. `seen` counts states, faults and actions by name."""

    lines: list[Line] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def add(self, at: float, who: str, what: str) -> None:
        self.lines.append(Line(at, who, what))

    def around(self, at: float) -> Iterator[str]:
        """Yields the lines near a moment. Also yields all earlier faults and violations, because an earlier one may be
        the cause.
        """
        near = [line for line in self.lines if line.at <= at + _AFTER]
        recent = {id(line) for line in near[-_MOST:] if line.at >= at - _BEFORE}
        for line in near:
            if id(line) in recent or line.who in ("plan", "VIOLATION"):
                yield str(line)


def clock(at: float) -> str:
    """Returns a time as text: the number of days, and the time of day."""
    days, rest = divmod(at, 86_400)
    return f"{int(days)}d {timedelta(seconds=int(rest))!s:0>8}"
