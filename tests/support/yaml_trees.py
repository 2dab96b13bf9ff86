"""Converts a YAML tree of `init` into plain data."""

from typing import Any

from gpumem.init.yaml_text import Item, Map, Scalar


def plain(value: Scalar | Map | tuple[Item, ...]) -> Any:
    if isinstance(value, Map):
        return {entry.key: plain(entry.value) for entry in value.entries}
    if isinstance(value, tuple):
        return [plain(item.value) for item in value]
    return value
