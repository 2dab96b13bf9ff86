"""Draws lines, tables and bars of a given width as text. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tenancy.drawing.model import Fact, Part
from tenancy.drawing.text import bar, printable, wrapped

NARROWEST = 60
_Found = TypeVar("_Found")
_USE = ("P50", "P95", "P99", "MAX", "STARTS", "LOAD", "GROWTH", "DAYS", "PROPOSED")
_COSTS = ("SEAT MIB-H", "USED MIB-H", "BILLED GIB-H", "PRICE", "COST")
_PROPOSED = ("NODES", "DEVICES", "MIB EACH", "SEATS", "MIB PROMISED")
_QUEUED = ("QUOTA", "IN USE", "BORROWED", "LENT", "FREE", "TO BORROW", "WAITING")
NUMBERS = (*_PROPOSED, "GPUMEM", "DECLARED", "USED", "OVER", "WASTE", "RAN", "NEEDS", "GPUS", *_USE, *_COSTS, *_QUEUED)


@dataclass(frozen=True)
class Paper:
    """The width of a report in columns. `colour` is True if the report has ANSI colours. `headers` is True if tables
    have headers."""

    width: int = 100
    colour: bool = False
    headers: bool = True

    def wrapped(self, text: str, indent: str = "", *, alarm: bool = False) -> Iterator[str]:
        yield from wrapped(printable(text), max(self.width, NARROWEST), indent, alarm=alarm and self.colour)

    def facts(self, about: str, facts: Iterable[Fact], indent: str = "") -> Iterator[str]:
        for number, fact in enumerate(facts):
            text, at = (fact.text, "  ") if number else (f"{about}: {fact.text}", indent)
            yield from self.wrapped(text, at, alarm=fact.alarm)

    def unknown(self, gaps: Iterable[str]) -> Iterator[str]:
        for gap in gaps:
            yield from self.wrapped(f"not known: {gap}")

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "  ") -> Iterator[str]:
        """Draws a table. Leaves out table columns that are empty or have only dashes, and aligns numbers to the
        right."""
        shown = [[*map(printable, row)] for row in rows]
        if not shown:
            return
        kept = kept_columns(header, shown)
        widths = {i: max(len(header[i]), *(len(row[i]) for row in shown)) for i in kept}
        for row in (header, *shown) if self.headers else shown:
            cells = (row[i].rjust(widths[i]) if header[i] in NUMBERS else row[i].ljust(widths[i]) for i in kept)
            yield (indent + "  ".join(cells)).rstrip()

    def bar(self, parts: Sequence[Part]) -> str:
        """Draws a bar. The table below the bar has the labels that are too long for the bar."""
        return f"  {bar(parts, max(self.width, NARROWEST) - 2, colour=self.colour)[0]}"


def kept_columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """Returns the first column of a table, and the columns that are not empty."""
    return [i for i in range(len(header)) if i == 0 or any(row[i] not in ("", "-") for row in rows)]


def text_of_lines(lines: Callable[[_Found, Paper], Iterable[str]]) -> Callable[[_Found, Paper], str]:
    """Decorates a generator of text lines.

    The decorated function returns the lines as one text, without empty lines at the start and at the end.
    """
    return lambda report, paper: "\n".join(lines(report, paper)).strip("\n") + "\n"
