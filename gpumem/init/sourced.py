"""Numbers with their sources, and names that a stack file accepts."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_MOST = 63  # characters of a DNS label


@dataclass(frozen=True)
class Sourced:
    """A number, the sentence about its source, and True if nothing in the cluster shows the number."""

    value: int
    source: str
    is_assumed: bool = False


def assumed(value: int, reason: str) -> Sourced:
    """A number that somebody should check."""
    return Sourced(value, f"assumed: {reason}", True)


def dns_label(text: str, most: int = _MOST) -> str:
    """The text as a DNS label, "" without a letter or digit."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:most].strip("-")


def unique(wanted: Iterable[str]) -> list[str]:
    """The names in their order. One that is taken gets a number."""
    taken: list[str] = []
    for name in wanted:
        numbered = (f"{name[: _MOST - 6]}-{number}" for number in range(2, len(taken) + 3))
        taken.append(name if name not in taken else next(each for each in numbered if each not in taken))
    return taken


def printable(line: str) -> str:
    """The line without characters that a terminal obeys, which a tenant's path may have."""
    return "".join(each if each.isprintable() else "?" for each in line)
