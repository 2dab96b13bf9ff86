"""Formats the errors of a stack's configuration for the operator: the path of the key, the change to make, and the
value.
"""

import difflib
import types
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tenancy.names import PROJECT

KeyPath = tuple[str | int, ...]

# Our error messages for pydantic's types of errors. In each message, `{...}` stands for a value from the context of
# pydantic's error.
_MESSAGES = {
    "form": "must be {words}",
    "missing": "is missing; add it",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "bool_type": "must be true or false",
    "float_type": "must be a number such as 0.02, without quotes or a currency",
    "finite_number": "must be a number such as 0.02",
    "string_type": "must be a string; quote it",
    "dict_type": "must be a map of keys",
    "model_type": "must be a map of keys",
    "model_attributes_type": "must be a map of keys",
    "list_type": "must be a list",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} entries",
    "string_too_short": "must not be empty",
    "string_too_long": "must be at most {max_length} characters",
    "enum": "must be one of {expected}",
    "literal_error": "must be one of {expected}",
    "value_error": "{error}",
}
# The nearest known key would exempt from admission what was only trusted with rights.
_GONE = ("admission.trusted_namespaces", "admission.trusted_groups")
_WITHOUT_VALUE = ("missing", "too_short", "string_too_short", "value_error")
_UNITS = {
    "mib": " of MiB without unit or quotes, such as 3072 for 3 GiB",
    "seconds": " of seconds without unit or quotes",
}
# The namespaces of configuration keys that the Kubernetes provider or Pulumi's engine reads.
PROVIDERS = ("kubernetes", "pulumi")
_LONGEST_VALUE = 60
_MOST_NAMES = 16


def from_validation(error: ValidationError, model: type[BaseModel], but: Collection[KeyPath] = ()) -> list[str]:
    """Returns one error message for each error in validating `model`, except for errors at the paths in `but`."""
    return [_line(detail, model) for detail in error.errors(include_url=False) if detail["loc"] not in but]


def keys_without_value(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Yields the keys of the configuration that have no value.

    The check refuses a key without a value, because pydantic would use the default and Pulumi's engine an empty text.
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from keys_without_value(item, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from keys_without_value(item, (*path, index))
    elif value is None:
        yield path


def without_value(raw: Any, path: KeyPath) -> str:
    """Returns the message about a key without a value. In a flow map, YAML reads the number 14,336 as two keys."""
    *parents, name = path
    for part in parents:
        raw = raw[part]
    before = None
    for each in raw if isinstance(raw, Mapping) else ():
        if each == name and isinstance(before, str) and str(name).isdigit() and isinstance(raw[before], int):
            whole = f"{raw[before]},{name}"
            return f"{key(*parents, before)}: YAML reads {whole} as two keys; write {whole.replace(',', '')}"
        before = each
    return f"{key(*path)}: has no value; write one, or remove the key"


def foreign_key_problems(keys: Iterable[str]) -> list[str]:
    """Returns one error message for each key of the configuration that the project and its providers do not read."""
    read = ", ".join((PROJECT, *PROVIDERS))
    return [
        f"{name}: unknown key; what is read here begins with one of {read}; rename or remove it"
        for name in keys
        if not name.startswith(tuple(f"{provider}:" for provider in PROVIDERS))
    ]


def key(*path: str | int) -> str:
    """Returns the path of a key as it is in the stack file, such as `gpu-tenancy:residents.immich-ml.gpumem_mib`."""
    return f"{PROJECT}:{dotted(*path)}"


def dotted(*path: str | int) -> str:
    return ".".join(map(str, path))


def nearest(name: str, known: Iterable[str], where: str) -> str:
    """Returns a proposal for a wrong name: the closest known name, or the known names if no name is close."""
    names = sorted(known)
    if close := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {close[0]}?"
    return f"known {where}: {', '.join(names[:_MOST_NAMES])}{', …' if len(names) > _MOST_NAMES else ''}"


def known_keys(model: type[BaseModel], path: Iterable[str | int]) -> Collection[str]:
    """Returns the keys that the map at `path` may have. The result is empty if the map may have any key.

    The keys come from the annotations of the model.
    """
    kind = kind_at(model, path)
    return kind.model_fields.keys() if is_model(kind) else ()


def kind_at(model: type[BaseModel], path: Iterable[str | int]) -> Any:
    kind: Any = model
    for part in path:
        # for a map, the kind of its values; for a list, the kind of its items
        kind = _plain(kind.model_fields[str(part)].annotation if is_model(kind) else typing.get_args(kind)[-1])
    return kind


def shown_value(value: object) -> str:
    """Returns the value as the operator wrote it, shortened to fit a line."""
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
    if kind == "extra_forbidden" and dotted(*path) in _GONE:
        return f"{key(*path)}: is not read any more, because the policy pack judges no rights; remove it"
    if kind == "extra_forbidden":
        known = known_keys(model, path[:-1])
        return f"{key(*path)}: unknown key; {nearest(str(path[-1]), known, 'here')}"
    if path and path[-1] == "[key]":
        return f"{key(*path[:-1])}: the name {_message(detail)}{shown_value(value)}"
    if kind in ("int_type", "int_from_float"):
        unit = str(path[-1]).rpartition("_")[2]
        return f"{key(*path)}: must be a whole number{_UNITS.get(unit, '')}{shown_value(value)}"
    return f"{key(*path)}: {_message(detail)}{'' if kind in _WITHOUT_VALUE else shown_value(value)}"


def _message(detail: ErrorDetails) -> str:
    template = _MESSAGES.get(detail["type"])
    return template.format(**detail.get("ctx", {})) if template else detail["msg"]


def _plain(annotation: Any) -> Any:
    """Returns the annotation without `| None` and without constraints."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _plain(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return _plain(next(argument for argument in arguments if argument is not types.NoneType))
    return annotation


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
