"""Draws bars to scale. Each bar is one line of text. A bar shows the promises on one device, or on the devices of a
pool.
"""

import textwrap
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EDGE, FREE, RESERVE = "┃", "·", "▒"
SEPARATOR = "│"
# Background colours from the 256-colour palette. Black text is easy to read on these background colours.
_BACKGROUNDS = (79, 110, 114, 117, 120, 144, 146, 150, 152, 173, 175, 180, 181, 183, 186, 208, 213, 216, 221, 222)
_ALARM, _RESET = "\x1b[1;31m", "\x1b[0m"
_TIE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One part of a bar. `amount` is a number of MiB or a number of devices. `tenant` decides the colour of the bar's
    part.
    """

    label: str
    amount: int
    fill: str = " "
    tenant: str | None = None


def bar(segments: Sequence[Segment], width: int, *, colour: bool) -> tuple[str, Sequence[str]]:
    """Returns the bar as text of `width` columns, and the labels that are too long for their parts of the bar."""
    drawn = [segment for segment in segments if segment.amount]
    columns = width - 2 * len(EDGE)
    separator = SEPARATOR if len(drawn) * 3 <= columns else ""  # a bar with many parts has no lines between its parts
    gaps = len(separator) * max(len(drawn) - 1, 0)
    widths = apportion([segment.amount for segment in drawn], columns - gaps)
    cells = [_cell(segment, columns, colour=colour) for segment, columns in zip(drawn, widths, strict=True)]
    cut = [s.label for s, w in zip(drawn, widths, strict=True) if s.tenant is not None and len(s.label) > w]
    return f"{EDGE}{separator.join(cells)}{EDGE}", cut


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


def painted(text: str, tenant: str) -> str:
    """Returns the text on the background colour of its tenant."""
    background = _BACKGROUNDS[zlib.crc32(tenant.encode()) % len(_BACKGROUNDS)]
    return f"\x1b[38;5;16;48;5;{background}m{text}{_RESET}"


def listed(labels: Iterable[str]) -> str:
    """Joins the labels with commas. A line may end between two labels, but never within a label."""
    return ", ".join(label.replace(" ", _TIE) for label in labels)


def wrapped(text: str, width: int, indent: str, *, alarm: bool) -> list[str]:
    """Breaks the text into lines of at most `width` columns. An alarm is printed in bold red.

    If a label is longer than a line, its name loses characters, and its numbers stay whole.
    """
    words = " ".join(_shortened(word, width - len(indent)) for word in text.split(" "))
    lines = textwrap.wrap(words, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return [f"{_ALARM}{line}{_RESET}" if alarm else line for line in (each.replace(_TIE, " ") for each in lines)]


def _shortened(word: str, columns: int) -> str:
    name, tie, numbers = word.partition(_TIE)
    left = columns - len(numbers) - len("…") - len(tie)
    return f"{name[:left]}…{tie}{numbers}" if tie and len(word) > columns and left > 0 else word


def _cell(segment: Segment, width: int, *, colour: bool) -> str:
    if segment.tenant is None:
        label = f" {segment.label} "
        return label.center(width, segment.fill) if len(label) + 2 <= width else segment.fill * width
    name = segment.label.partition(" ")[0]
    text = next((text for text in (segment.label, name) if len(text) <= width), f"{name[: width - 1]}…"[:width])
    text = f"{text:<{width}}"
    return painted(text, segment.tenant) if colour and text else text
