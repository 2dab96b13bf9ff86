"""Reads an agent's settings from environment variables into a dataclass. Each field has a parser."""

from collections.abc import Callable, Mapping
from dataclasses import field, fields
from typing import Any, TypeVar

from agents.runtime.errors import AgentError
from tenancy.decode import DecodeError

T = TypeVar("T")


class SettingsError(AgentError):
    """Environment variables are missing or invalid. Each of `problems` has the name of a variable and its error."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def variable(parse: Callable[[str], T]) -> T:
    """Declares a field. The name of the environment variable is the name of the field in upper case.

    `parse` may raise ValueError.
    """
    declared: T = field(metadata={"parse": parse})
    return declared


def read(kind: type[T], environ: Mapping[str, str]) -> T:
    """Returns an instance of the dataclass `kind`. Raises SettingsError with all problems."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]  # every caller passes a dataclass
        name = each.name.upper()
        if name not in environ:
            problems.append(f"{name}: is not set; set it in the agent's manifest")
            continue
        try:
            values[each.name] = each.metadata["parse"](environ[name])
        except DecodeError as error:
            problems.extend(error.problems)
        except ValueError as error:
            problems.append(f"{name}: {error} (got {environ[name]!r})")
    if problems:
        raise SettingsError(problems)
    return kind(**values)


def text(value: str) -> str:
    """Returns the text. Raises ValueError if the text is empty."""
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def comma_separated(value: str) -> tuple[str, ...]:
    """Returns the names in a comma-separated list. The list may be empty."""
    return tuple(name for name in value.split(",") if name)


def flag(value: str) -> bool:
    """Returns the boolean. Raises ValueError for any text except `true` and `false`, so that a typing error in DRY_RUN
    is noticed.
    """
    if value not in ("true", "false"):
        raise ValueError("must be true or false")
    return value == "true"


def whole(at_least: int, at_most: int) -> Callable[[str], int]:
    """Returns a parser for whole numbers from `at_least` to `at_most`."""

    def parse(value: str) -> int:
        if not (value.isascii() and value.isdigit()) or not at_least <= int(value) <= at_most:
            raise ValueError(f"must be a whole number from {at_least} to {at_most}")
        return int(value)

    return parse


SECONDS = whole(1, 86_400)
RUN_SECONDS = whole(0, 3_600)
PORT = whole(1, 65_535)
