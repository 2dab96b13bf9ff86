"""Formats Markdown tables, and declares the comment that marks a generated page."""

from collections.abc import Iterable, Sequence

MADE = "<!-- Made from the code: make schema -->"


def table(columns: Sequence[str], rows: Iterable[str]) -> str:
    """Returns a table that ends with a line break."""
    return "\n".join([row(*columns), "|" + "---|" * len(columns), *rows, ""])


def row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in cells)} |"
