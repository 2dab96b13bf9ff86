"""Defines the result of a subcommand, and the exit codes."""

import http.client
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, TypeVar

from agents.kube.errors import ApiError
from agents.runtime.errors import AgentError
from gpumem.paper import Paper

DONE, FAILED, USAGE, WAITS, STARTS, NOT_KNOWN = range(6)

_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Report:
    """`found` is the report, and `kind` is its name in JSON. `text` and `csv` format the report."""

    kind: str
    found: Any
    text: Callable[[Any, Paper], str]
    code: int = DONE
    csv: Callable[[Any], str] | None = None


def said(error: AgentError) -> str:
    """Returns the error without the API server's long words about a missing right."""
    if isinstance(error, ApiError) and error.status == http.client.FORBIDDEN:
        return f"you may not {error.request}"
    return str(error)


def rfc3339(time: datetime) -> str:
    """Returns a time in UTC in the format of RFC 3339."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def row(kind: type[_Row], source: object, **more: Any) -> _Row:
    """Returns a dataclass of the type `kind`.

    A field without a value in `more` has the value of the same field in `source`.
    """
    names = {field.name for field in fields(kind)} - more.keys()  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **more)
