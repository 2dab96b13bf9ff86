"""Tables, and the note that a page is generated."""

from collections.abc import Iterable, Sequence

MADE = "<!-- Made from the code: make schema -->"


def table(columns: Sequence[str], rows: Iterable[str]) -> str:
    """Returns a table, with a line break at its end."""
    return "\n".join([row(*columns), "|" + "---|" * len(columns), *rows, ""])


def row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in cells)} |"
