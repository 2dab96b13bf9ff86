"""Encodes frozen dataclasses as JSON-like data. tenancy/decode.py decodes this data."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any


def encode(value: Any) -> dict[str, object]:
    """Returns a dataclass as JSON-like data. Leaves out each field that has its default value.

    Agents of an older version can therefore read data without fields that they do not know (docs/adr/0022).
    """
    return {key: _data(each) for key, each in _given(value)}


def _given(value: Any) -> Iterator[tuple[str, Any]]:
    found = ((field, getattr(value, field.name)) for field in fields(value))
    return ((field.name, each) for field, each in found if each != _default(field))


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _data(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_data(each) for each in value]
    if is_dataclass(value):
        return encode(value)
    if isinstance(value, Mapping):
        return {key: _data(each) for key, each in value.items()}
    return str(value) if isinstance(value, enum.Enum) else value
