"""Draws the output of a terminal, with its colours. Each character stays in its column of the terminal."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace

from toolchain.pictures.svg import element, picture

COLUMN, LINE, MARGIN, TITLE = 8.4, 19, 16, 30
MOST_COLUMNS = 130  # A terminal continues a longer line below.
_COLOURS = {31: "#ff7b72", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea", 90: "#8b949e"}
_PLAIN = "#e6edf3"
_CODE = re.compile(r"\x1b\[([\d;]*)m")
_OTHER_CODES = re.compile(r"\x1b(?:\[[\d;?]*[A-LN-Za-ln-z]|\][^\x07]*\x07)|\r")


@dataclass(frozen=True)
class _Style:
    colour: str = _PLAIN
    bold: bool = False

    def after(self, codes: str) -> "_Style":
        """Returns the text style that results from these ECMA-48 codes. The function ignores unknown codes."""
        style = self
        for code in map(int, (codes or "0").split(";")):
            if code == 0:
                style = _Style()
            elif code == 1:
                style = replace(style, bold=True)
            elif code in (2, 39):
                style = replace(style, colour=_COLOURS[90] if code == 2 else _PLAIN)
            elif code in _COLOURS or code - 60 in _COLOURS:
                style = replace(style, colour=_COLOURS.get(code) or _COLOURS[code - 60])
        return style


def terminal_picture(command: str, output: str) -> str:
    """Returns the picture of a terminal that shows a command and its output."""
    printed = _OTHER_CODES.sub("", output).expandtabs().rstrip().splitlines()
    lines = [f"\x1b[1m$ {command}\x1b[0m", *(part for line in printed for part in _wrapped(line))]
    columns = max(_columns(_CODE.sub("", line)) for line in lines)
    width, height = columns * COLUMN + 2 * MARGIN, len(lines) * LINE + TITLE + MARGIN
    return picture(width, height, f"{command}, in a terminal", _parts(lines, width, height))


def _wrapped(line: str) -> list[str]:
    if _CODE.search(line) or not line:
        return [line]
    return [line[start : start + MOST_COLUMNS] for start in range(0, len(line), MOST_COLUMNS)]


def _parts(lines: list[str], width: float, height: float) -> Iterator[str]:
    yield element("rect", width=f"{width:g}", height=f"{height:g}", rx=8, fill="#0d1117")
    for number, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
        yield element("circle", cx=MARGIN + 6 + 18 * number, cy=TITLE / 2, r=5, fill=colour)
    style = _Style()
    for number, line in enumerate(lines):
        column = 0
        text, *coded = _CODE.split(line)
        for codes, run in [("", text), *zip(coded[::2], coded[1::2], strict=True)]:
            style = style.after(codes) if codes or run is not text else style
            if run.strip():
                yield _run(run, column, TITLE + LINE * (number + 0.7), style)
            column += _columns(run)


def _run(text: str, column: int, y: float, style: _Style) -> str:
    return element(
        "text",
        text,
        x=f"{MARGIN + column * COLUMN:.1f}",
        y=f"{y:.1f}",
        fill=style.colour,
        font_family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
        font_size=14,
        font_weight="bold" if style.bold else "normal",
        textLength=f"{_columns(text) * COLUMN:.1f}",
        lengthAdjust="spacingAndGlyphs",
        **{"xml:space": "preserve"},
    )


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)
