"""What is wrong with a stack's configuration, in the operator's words: the key's path, what to change, the value."""

import difflib
import re
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from tenancy.names import PROJECT
from tenancy.quantity import QuantityError, parse
from tenancy.units import MIB

KeyPath = tuple[str | int, ...]

# pydantic's error types that we say in our own words; `{...}` are its context.
_MESSAGES = {
    "form": "must be {words}",
    "missing": "is missing; add it",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "bool_type": "must be true or false",
    "float_type": "must be a number such as 0.02, without quotes or a currency",
    "finite_number": "must be a number such as 0.02",
    "string_type": "must be a string; quote it",
    "model_type": "must be a map of keys",
    "model_attributes_type": "must be a map of keys",
    "dict_type": "must be a map of keys",
    "list_type": "must be a list",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} entries",
    "string_too_short": "must not be empty",
    "string_too_long": "must be at most {max_length} characters",
    "enum": "must be one of {expected}",
    "literal_error": "must be one of {expected}",
    "value_error": "{error}",
}
_SPEAK_FOR_THEMSELVES = ("missing", "too_short", "string_too_short", "value_error")
_UNITS = {"mib": "MiB", "seconds": "seconds"}
# Namespaces of configuration that others than this program read: its provider, and the engine.
PROVIDERS = ("kubernetes", "pulumi")
_LONGEST_VALUE = 60
_MOST_NAMES = 16


def from_validation(
    error: ValidationError, model: type[BaseModel], but: Iterable[KeyPath] = (), dangling: Iterable[str] = ()
) -> list[str]:
    """One line per error of validating `model`, but for the paths of which something was said already: of the form of a
    name that leads nowhere where it leads is said, by the lines `dangling`."""
    details = error.errors(include_url=False)
    said, misspelt = set(but), set(_misspelt(details, model))
    lead = {line.partition(": ")[0] for line in dangling}
    return [
        _line(detail, model)
        for detail in details
        if not {detail["loc"], _entry(detail["loc"])} & said
        and not (detail["type"] == "missing" and detail["loc"] in misspelt)
        and not (detail["type"] == "form" and key(*_entry(detail["loc"])) in lead)
    ]


def _misspelt(details: Iterable[ErrorDetails], model: type[BaseModel]) -> Iterator[KeyPath]:
    """The keys that are not missing: another one that is not known is close to their names."""
    for detail in details:
        if detail["type"] == "extra_forbidden":
            *parents, name = detail["loc"]
            close = difflib.get_close_matches(str(name), known_keys(model, parents), n=1)
            yield from ((*parents, known) for known in close)


def _entry(path: KeyPath) -> KeyPath:
    """What pydantic says of a name it says of the name's entry."""
    return path[:-1] if path[-1:] == ("[key]",) else path


def empty(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The keys without a value: a default to pydantic, and to the engine an empty text."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from empty(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from empty(item, (*path, index))
    elif value is None:
        yield path


def foreign(keys: Iterable[str], model: type[BaseModel]) -> list[str]:
    """One line per key of config that is not the project's, and that nothing else in the program reads."""
    return [f"{_printable(name)}: {_instead(name, model)}" for name in keys if not _is_read(name)]


def _is_read(name: str) -> bool:
    namespace, colon, rest = name.partition(":")
    return bool(colon) and namespace in PROVIDERS and bool(rest)


def _instead(name: str, model: type[BaseModel]) -> str:
    namespace, _, last = name.rpartition(":")
    close = difflib.get_close_matches(namespace.lower(), [PROJECT, *PROVIDERS], n=1)
    if last in model.model_fields or close[:1] == [PROJECT]:
        part = difflib.get_close_matches(last, model.model_fields, n=1) or [last]
        return f"unknown key; did you mean {PROJECT}:{part[0]}?"
    if close:
        return f"unknown key; did you mean {close[0]}:{last}?"
    return f"unknown key; what is read here begins with one of {', '.join((PROJECT, *PROVIDERS))}; remove it"


def key(*path: str | int) -> str:
    """The path as the operator finds it in the stack file: `gpu-tenancy:residents.immich-ml.gpumem_mib`."""
    return f"{PROJECT}:{dotted(*path)}"


def dotted(*path: str | int) -> str:
    """The path within one line, whatever stands in its names."""
    return ".".join(_printable(str(part)) for part in path)


def nearest(name: str, known: Iterable[str], where: str) -> str:
    """What to write instead of `name`: the closest known name, or all of them where they fit a line."""
    names = sorted(_printable(one) for one in known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known {where}: {', '.join(names[:_MOST_NAMES])}{', …' if len(names) > _MOST_NAMES else ''}"


def known_keys(model: type[BaseModel], path: Iterable[str | int]) -> Collection[str]:
    """The keys that the map at `path` may have; none where any key may stand. Walks the model's annotations."""
    kind = _kind_at(model, path)
    return kind.model_fields.keys() if _is_model(kind) else ()


def _kind_at(model: type[BaseModel], path: Iterable[str | int]) -> Any:
    kind: Any = model
    for part in path:
        # Of a map the values, of a list the items.
        kind = _plain(kind.model_fields[str(part)].annotation if _is_model(kind) else typing.get_args(kind)[-1])
    return kind


def got(value: object) -> str:
    """The value as the operator wrote it, short enough for a line."""
    match value:
        case None:
            text = "nothing"
        case bool():
            text = str(value).lower()
        case dict():
            text = "a map"
        case list():
            text = "a list"
        case str() if len(value) > _LONGEST_VALUE:
            text = f"{value[:_LONGEST_VALUE]!r}…"
        case _:
            text = repr(value)
    return f" (got {text})"


def _line(detail: ErrorDetails, model: type[BaseModel]) -> str:
    path, kind, value = detail["loc"], detail["type"], detail["input"]
    if kind == "extra_forbidden":
        known = known_keys(model, path[:-1])
        return f"{key(*path)}: unknown key; {nearest(str(path[-1]), known, 'here')}"
    if path and path[-1] == "[key]":
        return f"{key(*path[:-1])}: the name {_message(detail)}{got(value)}"
    if kind in ("int_type", "int_from_float"):
        return f"{key(*path)}: {_whole_number(path, value, model)}{got(value)}"
    return f"{key(*path)}: {_message(detail)}{'' if kind in _SPEAK_FOR_THEMSELVES else got(value)}"


def _message(detail: ErrorDetails) -> str:
    template = _MESSAGES.get(detail["type"])
    return template.format(**detail.get("ctx", {})) if template else detail["msg"]


def _whole_number(path: KeyPath, value: object, model: type[BaseModel]) -> str:
    """Most wrong numbers are right ones with a unit or quotes: say the number to write, where it would pass."""
    unit = _UNITS.get(str(path[-1]).rpartition("_")[2])
    if isinstance(value, float) and value.is_integer():
        return f"must be a whole number{_write(int(value), path, model)}"
    if not isinstance(value, str):
        return "must be a whole number"
    if re.fullmatch(r"[0-9]{1,15}", value):
        return f"must be a whole number without quotes{_write(int(value), path, model)}"
    if unit is None:
        return "must be a whole number"
    number = _in_mib(value) if unit == "MiB" else _in_seconds(value)
    return f"must be a whole number of {unit} without a unit{_write(number, path, model)}"


def _write(number: int | None, path: KeyPath, model: type[BaseModel]) -> str:
    return f"; write {number}" if number is not None and _passes(number, path, model) else ""


def _passes(number: int, path: KeyPath, model: type[BaseModel]) -> bool:
    """Whether the field at the path takes the number, as far as the field alone decides."""
    owner = _kind_at(model, path[:-1])
    if not _is_model(owner):
        return True
    field = owner.model_fields[str(path[-1])]
    kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    try:
        TypeAdapter(kind).validate_python(number)
    except ValidationError:
        return False
    return True


def _in_mib(text: str) -> int | None:
    """The whole MiB in "3Gi", "3 GiB", "3G", "3000MiB" or "3,000"; "5k" is how the API writes 5000 of a resource in
    MiB. None for "3.000", which is three to some and three thousand to others."""
    bare = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", text.replace(" ", "").removesuffix("B"))
    try:
        exact = parse(bare)
    except QuantityError:
        return None
    return None if "." in bare and bare[-1].isdigit() else int(exact / MIB) or int(exact)


def _in_seconds(text: str) -> int | None:
    """The seconds in "5s", "2 m" or "1h"."""
    match = re.fullmatch(r"([0-9]{1,9})\s*([smhd])", text)
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]] if match else None


def _plain(annotation: Any) -> Any:
    """The annotation without `| None` and without constraints."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _plain(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return _plain(next(argument for argument in arguments if argument is not types.NoneType))
    return annotation


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
