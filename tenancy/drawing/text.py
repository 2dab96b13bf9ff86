"""Draws pools as text. A bar is one line, to scale, and a label that is too long for its part stands below the bar."""

import textwrap
import zlib
from collections.abc import Iterable, Iterator, Sequence

from tenancy.drawing.model import DrawnPool, Kind, Part

_FILLS = {Kind.PLANNED: "░", Kind.FREE: "·", Kind.RESERVE: "▒"}
LEGEND = f"{_FILLS[Kind.FREE]} free   {_FILLS[Kind.RESERVE]} reserve"
_EDGE, _SEPARATOR = "┃", "│"
# Background colours from the 256-colour palette. Black text is easy to read on these background colours.
_BACKGROUNDS = (79, 110, 114, 117, 120, 144, 146, 150, 152, 173, 175, 180, 181, 183, 186, 208, 213, 216, 221, 222)
_ALARM, _RESET = "\x1b[1;31m", "\x1b[0m"
_TIE = "\N{NO-BREAK SPACE}"


def pool_lines(pool: DrawnPool, width: int, *, colour: bool) -> Iterator[str]:
    first, *others = pool.facts
    yield from wrapped(f"{pool.name}: {first.text}", width, "", alarm=first.alarm and colour)
    for fact in others:
        yield from wrapped(fact.text, width, "  ", alarm=fact.alarm and colour)
    margin = max((len(each.title) for each in pool.bars), default=0)
    for each in pool.bars:
        drawn, cut = bar(each.parts, width - margin, colour=colour)
        yield f"{each.title:>{margin}}{drawn}"
        if cut:
            yield from wrapped(listed(cut), width, " " * (margin + 1), alarm=False)
    for fact in pool.more:
        yield from wrapped(fact.text, width, "  ", alarm=fact.alarm and colour)


def bar(parts: Sequence[Part], width: int, *, colour: bool) -> tuple[str, Sequence[str]]:
    """Returns the bar as text of `width` columns, and the labels that are too long for their parts of the bar."""
    drawn = [part for part in parts if part.total > 0]
    columns = width - 2 * len(_EDGE)
    separator = _SEPARATOR if len(drawn) * 3 <= columns else ""  # a bar with many parts has no lines between its parts
    widths = apportion([part.total for part in drawn], columns - len(separator) * max(len(drawn) - 1, 0))
    cells = [_cell(part, width, colour=colour) for part, width in zip(drawn, widths, strict=True)]
    both = zip(drawn, widths, strict=True)
    cut = [part.label for part, width in both if _is_cut(part, width) and part.kind is not Kind.RESERVE]
    return f"{_EDGE}{separator.join(cells)}{_EDGE}", cut


def apportion(amounts: Sequence[int], columns: int) -> list[int]:
    """Distributes `columns` in proportion to the positive `amounts`, by the largest remainder method.

    If `columns` is large enough, each amount gets at least 2 columns.
    """
    if not amounts:
        return []
    least = min(columns // len(amounts), 2)
    total = sum(amounts)
    widths = [max(amount * columns // total, least) for amount in amounts]
    by_remainder = sorted(range(len(amounts)), key=lambda i: widths[i] * total - amounts[i] * columns)
    for index in by_remainder:
        widths[index] += sum(widths) < columns
    while sum(widths) > columns:
        widths[widths.index(max(widths))] -= 1
    return widths


def listed(labels: Iterable[str]) -> str:
    """Joins the labels with commas. A line may end between two labels, but never within a label."""
    return ", ".join(label.replace(" ", _TIE) for label in labels)


def wrapped(text: str, width: int, indent: str, *, alarm: bool) -> list[str]:
    """Breaks the text into lines of at most `width` columns. An alarm is printed in bold red."""
    lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return [f"{_ALARM}{line}{_RESET}" if alarm else line for line in (each.replace(_TIE, " ") for each in lines)]


def printable(text: str) -> str:
    """Returns the text on one line, with an escape in place of each control character.

    A tenant can put control characters into an Event or a path. A terminal would obey them.
    """
    return "".join(each if each.isprintable() else " " if each.isspace() else ascii(each)[1:-1] for each in text)


def _labels(part: Part) -> tuple[str, str]:
    """Returns the whole label of a part, and a shorter one."""
    if part.kind not in _FILLS:
        return part.label, part.name
    fill = _FILLS[part.kind]
    return f"{fill} {part.label} {fill}", f"{fill} {part.amount} {fill}"


def _is_cut(part: Part, width: int) -> bool:
    return len(_labels(part)[part.kind in _FILLS]) > width


def _cell(part: Part, width: int, *, colour: bool) -> str:
    text = next((label for label in _labels(part) if len(label) <= width), None)
    if part.kind in _FILLS:
        return (text or "").center(width, _FILLS[part.kind])
    text = f"{text or f'{part.name[: width - 1]}…'[:width]:<{width}}"
    if not colour or not text:
        return text
    background = _BACKGROUNDS[zlib.crc32(part.owner.encode()) % len(_BACKGROUNDS)]
    return f"\x1b[38;5;16;48;5;{background}m{text}{_RESET}"
