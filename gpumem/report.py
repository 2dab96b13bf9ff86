"""The result of a verb, and its exit code."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gpumem.draw import Paper

DONE, FAILED, USAGE, WAITS = 0, 1, 2, 3
# Of preflight: a rollout has something in its way; the cluster cannot be read.
IN_THE_WAY, UNREAD = 1, 2

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Report:
    """`found` is the report itself, and `kind` its name in JSON. `text` and `csv` render it."""

    kind: str
    found: Any
    text: "Callable[[Any, Paper], str]"
    code: int = DONE
    csv: Callable[[Any], str] | None = None


def rfc3339(time: datetime) -> str:
    """A time in UTC, as in RFC 3339."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def row(kind: type[_Row], source: object, **more: Any) -> _Row:
    """A dataclass with the values that the source has under the same names, and with `more`."""
    names = {field.name for field in fields(kind)} - more.keys()  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **more)
