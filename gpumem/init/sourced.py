"""Defines numbers with their sources, and makes names that a stack file accepts."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_MOST = 63  # the maximum number of characters of a DNS label


@dataclass(frozen=True)
class SourcedNumber:
    """A number with a sentence about its source. `is_assumed` is True if nothing in the cluster shows the number."""

    value: int
    source: str
    is_assumed: bool = False


def assumed(value: int, reason: str) -> SourcedNumber:
    """Returns a number that is only assumed and that an operator should check."""
    return SourcedNumber(value, f"assumed: {reason}", True)


def dns_label(text: str, most: int = _MOST) -> str:
    """Returns the text as a DNS label. Returns "" for a text of other characters than ASCII letters and digits."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:most].strip("-")


def unique(wanted: Iterable[str]) -> list[str]:
    """Returns the names in their order, without duplicates. A name that is a duplicate gets a number at its end."""
    taken: list[str] = []
    for name in wanted:
        numbered = (f"{name[: _MOST - 6]}-{number}" for number in range(2, len(taken) + 3))
        taken.append(name if name not in taken else next(each for each in numbered if each not in taken))
    return taken
