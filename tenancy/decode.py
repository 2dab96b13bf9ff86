"""Decodes JSON-like data strictly into frozen dataclasses. Reports all errors at once, each with the path of its key.

The agents and the policy pack use this module to read the ledger. The agents cannot use pydantic, because they import
only the standard library. Agents of two versions can read the same stored data. Code that decodes data for agents of
two versions passes `ignored` (docs/adr/0022).
"""

import enum
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")


class DecodeError(ValueError):
    """The data does not have the declared form.

    `problems` has the path and the error of each wrong key.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def decode(kind: type[T], data: object, path: str = "", ignored: list[str] | None = None) -> T:
    """Makes an instance of the dataclass `kind` from JSON-like data. Raises DecodeError with all errors in the data.

    By default, an unknown key is an error. With `ignored`, an unknown key is skipped, and its path is added to
    `ignored`.
    """
    notes = _Notes([], ignored)
    value = _value(kind, data, path or kind.__name__.lower(), notes)
    if notes.problems:
        raise DecodeError(notes.problems)
    return typing.cast(T, value)


@dataclass(frozen=True)
class _Notes:
    """Collects the errors in the data and the ignored keys. If `ignored` is None, an unknown key is an error."""

    problems: list[str]
    ignored: list[str] | None


def _value(kind: Any, data: object, path: str, notes: _Notes) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        inner, *others = (arg for arg in args if arg is not type(None))
        if others:
            return _tagged((inner, *others), data, path, notes)
        return None if data is None else _value(inner, data, path, notes)
    if is_dataclass(kind):
        return _dataclass(kind, data, path, notes)
    if origin is tuple:
        return _tuple(args[0], data, path, notes)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(args[1], data, path, notes)
    return _scalar(kind, data, path, notes)


def _tagged(kinds: tuple[Any, ...], data: object, path: str, notes: _Notes) -> Any:
    by_kind = {each.kind: each for each in kinds}
    given = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or str(given) not in by_kind:
        notes.problems.append(f"{path}.kind: must be one of {', '.join(by_kind)} (got {given!r})")
        return None
    return _dataclass(by_kind[str(given)], {key: data[key] for key in data if key != "kind"}, path, notes)


def _tuple(kind: Any, data: object, path: str, notes: _Notes) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        notes.problems.append(f"{path}: must be a list (got {data!r})")
        return ()
    return tuple(_value(kind, item, f"{path}.{index}", notes) for index, item in enumerate(data))


def _mapping(kind: Any, data: object, path: str, notes: _Notes) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        notes.problems.append(f"{path}: must be a map (got {data!r})")
        return {}
    return {str(key): _value(kind, item, f"{path}.{key}", notes) for key, item in data.items()}


def _scalar(kind: Any, data: object, path: str, notes: _Notes) -> Any:
    if issubclass(kind, enum.Enum):
        try:
            return kind(data)
        except ValueError:
            notes.problems.append(
                f"{path}: must be one of {', '.join(str(member.value) for member in kind)} (got {data!r})"
            )
            return next(iter(kind))
    if kind is datetime:
        return _time(data, path, notes)
    if kind is int and isinstance(data, float) and data.is_integer():
        data = int(data)  # protobuf converts a whole number to a float
    if kind is float and type(data) is int:
        data = float(data)  # JSON can leave out the .0 of a float
    if isinstance(data, bool) is not (kind is bool) or not isinstance(data, kind):
        notes.problems.append(f"{path}: must be {_NOUNS.get(kind, kind.__name__)} (got {data!r})")
        return kind()
    return data


def _time(data: object, path: str, notes: _Notes) -> datetime:
    try:
        return datetime.fromisoformat(str(data))
    except ValueError:
        notes.problems.append(f"{path}: must be a time of ISO 8601 (got {data!r})")
        return datetime.fromtimestamp(0, UTC)


_NOUNS = {int: "a whole number", str: "a string", bool: "true or false", float: "a number"}


@functools.cache
def _hints(kind: type) -> Mapping[str, Any]:
    """Returns the types of a dataclass' fields.

    Caches the types, because the evaluation of annotations takes most of the decoding time.
    """
    return typing.get_type_hints(kind)


def _dataclass(kind: Any, data: object, path: str, notes: _Notes) -> Any:
    if not isinstance(data, Mapping):
        notes.problems.append(f"{path}: must be a map (got {data!r})")
        return None
    hints = _hints(kind)
    known = {field.name: field for field in fields(kind) if field.init}
    unknown = [f"{path}.{key}" for key in data if key not in known]
    if notes.ignored is None:
        hint = ", ".join(sorted(known))
        notes.problems.extend(f"{key}: unknown key; known here: {hint}" for key in unknown)
    else:
        notes.ignored.extend(unknown)
    values = {}
    for name, field in known.items():
        if name in data:
            values[name] = _value(hints[name], data[name], f"{path}.{name}", notes)
        elif field.default is MISSING and field.default_factory is MISSING:
            notes.problems.append(f"{path}.{name}: is missing")
    if notes.problems:
        return None
    try:
        return kind(**values)
    except ValueError as error:
        notes.problems.append(f"{path}: {error}")
        return None
