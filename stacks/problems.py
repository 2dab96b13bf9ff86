"""What is wrong with a stack's configuration, in the operator's words: the key's path, the value, what to change."""

import difflib
import types
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tenancy.names import PROJECT

# pydantic's error types that we say in our own words; `{...}` are its context.
_MESSAGES = {
    "missing": "is missing; add it",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be a string; quote it",
    "model_type": "must be a map of keys",
    "model_attributes_type": "must be a map of keys",
    "dict_type": "must be a map of keys",
    "list_type": "must be a list",
    "too_short": "must not be empty",
    "string_too_short": "must not be empty",
    "string_too_long": "must be at most {max_length} characters",
    "enum": "must be one of {expected}",
    "literal_error": "must be one of {expected}",
    "value_error": "{error}",
}


def from_validation(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line per error of validating `model`."""
    return [_line(detail, model) for detail in error.errors()]


def _line(detail: ErrorDetails, model: type[BaseModel]) -> str:
    path = tuple(str(part) for part in detail["loc"] if part != "[key]")
    kind = detail["type"]
    if kind == "extra_forbidden":
        return f"{key(*path)}: {unknown_key(path[-1], known_keys(model, path[:-1]))}"
    if kind == "string_pattern_mismatch":
        what = "the name" if "[key]" in detail["loc"] else "the value"
        return f"{key(*path)}: {what} must match {detail['ctx']['pattern']}{_got(detail['input'])}"
    template = _MESSAGES.get(kind)
    message = template.format(**detail.get("ctx", {})) if template else detail["msg"]
    return f"{key(*path)}: {message}{'' if kind in ('missing', 'value_error') else _got(detail['input'])}"


def known_keys(model: type[BaseModel], path: Iterable[str]) -> Iterable[str]:
    """The keys that the map at `path` may have, found by walking the model's annotations."""
    kind: Any = model
    for part in path:
        field = kind.model_fields.get(part) if _is_model(kind) else None
        kind = _inner(field.annotation if field else kind)
    return kind.model_fields if _is_model(kind) else ()


def _inner(annotation: Any) -> Any:
    """What a key of the annotated map or list, or the optional value, is made of."""
    arguments = [argument for argument in typing.get_args(annotation) if argument is not type(None)]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return arguments[0]
    return annotation


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _got(value: Any) -> str:
    return f" (got {value!r})" if isinstance(value, str | int | float | bool) or value is None else ""


def key(*path: str | int) -> str:
    """The path as the operator finds it in the stack file: `gpu-tenancy:residents.immich-ml.gpumem_mib`."""
    return f"{PROJECT}:{'.'.join(str(part) for part in path)}"


def unknown_key(name: str, known: Iterable[str]) -> str:
    """The hint behind an unknown key: the closest known one, or all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"unknown key; did you mean {close[0]}?"
    return f"unknown key; known here: {', '.join(names)}" if names else "unknown key; remove it"
