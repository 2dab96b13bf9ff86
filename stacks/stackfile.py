"""`Pulumi.<stack>.yaml` without the engine: read as the engine reads it, so that both find the same settings in it."""

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tenancy.names import PROJECT


class StackFileError(ValueError):
    """The file cannot be read as a stack file; the message is one line with its place."""


def read(path: Path) -> dict[str, Any]:
    """The project's keys, without its name, as JSON-like data. Raises StackFileError."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 (a SafeLoader)
        document = json.loads(json.dumps(document), parse_float=_number)
    except OSError as error:
        raise StackFileError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        raise StackFileError(f"{path}{_place(error.problem_mark)}: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise StackFileError(f"{path}: is not a text file in YAML") from None
    except (RecursionError, TypeError, ValueError):
        raise StackFileError(
            f"{path}: holds something that JSON has no form for; write maps, lists and scalars"
        ) from None
    config = document.get("config") if isinstance(document, Mapping) else None
    if not isinstance(config, Mapping):
        raise StackFileError(f"{path}: has no map under the key config; add it")
    prefix = f"{PROJECT}:"
    return {name.removeprefix(prefix): value for name, value in config.items() if name.startswith(prefix)}


def encrypted(raw: Mapping[str, Any]) -> Iterator[str]:
    """The keys with an encrypted value anywhere in them."""
    return (name for name, value in raw.items() if _is_encrypted(value))


def _is_encrypted(value: object) -> bool:
    if isinstance(value, Mapping):
        secret = len(value) == 1 and isinstance(value.get("secure"), str)
        return secret or any(_is_encrypted(item) for item in value.values())
    return isinstance(value, list) and any(_is_encrypted(item) for item in value)


def _number(text: str) -> int | float:
    """The engine writes 3.0 and 3e3 as the whole numbers they are."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _place(mark: yaml.Mark | None) -> str:
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""


_ENGINE_SCALARS = {
    "tag:yaml.org,2002:bool": re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
    "tag:yaml.org,2002:float": re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    "tag:yaml.org,2002:int": re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+|0[0-7_]+)$"),
}


class _Loader(yaml.SafeLoader):
    """PyYAML reads YAML 1.1; the engine's reader takes yes and 1:30 for strings, 5e3 for a number, and no key twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (PyYAML's own attribute)
        first: [(tag, _ENGINE_SCALARS.get(tag, form)) for tag, form in resolvers]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    problem="a key must be a scalar", problem_mark=key_node.start_mark
                )
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key_node.value!r} is there twice; remove one", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


def _refuse_date(loader: _Loader, node: yaml.ScalarNode) -> None:
    raise yaml.constructor.ConstructorError(
        problem=f"{node.value} is a date in YAML; quote it", problem_mark=node.start_mark
    )


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _refuse_date)
