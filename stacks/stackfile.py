"""Reads `Pulumi.<stack>.yaml` and the files of parts that it names, without the engine.

Some values mean different things to different YAML readers: octal numbers, dates, a key that is there twice. They are
refused, because the chart and a reviewer read this file, while the program gets the engine's reading.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from stacks.problems import KeyPath, dotted
from tenancy.names import PROJECT

# Keys that Pulumi itself reads next to config (sdk/go/common/workspace ProjectStack).
PULUMI_KEYS = {
    "encryptionsalt": "Pulumi's own: salt of the passphrase that encrypts secrets.",
    "encryptedkey": "Pulumi's own: data key, encrypted by the secrets provider.",
    "secretsprovider": "Pulumi's own: where the key for secrets is.",
    "environment": "Pulumi's own: environments of Pulumi ESC, for keys that are not this project's.",
}
# The engine passes the configuration in the environment variable PULUMI_CONFIG. Linux allows 128 KiB for one variable
# (MAX_ARG_STRLEN in include/uapi/linux/binfmts.h). The difference is for keys that Pulumi.yaml adds.
MOST_BYTES = 126 * 1024
_CONFIG = "config"
_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "merge")
)
_Items = Iterator[tuple[str, yaml.Node, yaml.Node]]
_AMBIGUOUS = "!ambiguous"
_READ: Mapping[str, Any] = {
    _NULL: lambda _: None,
    _BOOL: lambda text: text.lower() == "true",
    _INT: int,
    _FLOAT: float,
    _STR: str,
}


class StackFileError(ValueError):
    """The file cannot be read as a stack file; the message is one line with its place."""


@dataclass(frozen=True)
class Problem:
    """A line for the operator, and the path of its key."""

    path: KeyPath
    line: str


@dataclass(frozen=True)
class Contents:
    """The contents of a file: `values` by the project's keys, without its name, as JSON-like data, and the keys
    `foreign` to the project, each with its text if it is a scalar."""

    file: Path
    values: dict[str, Any] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class _Loader(yaml.SafeLoader):
    """Composes nodes. A scalar without quotes is a JSON value, text or ambiguous."""

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (yaml's own)


for _tag, _pattern in (
    (_NULL, r"(?:~|null|Null|NULL|)\Z"),
    (_BOOL, r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    (_INT, r"[-+]?(?:0|[1-9][0-9]*)\Z"),
    (_FLOAT, r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
    (_MERGE, r"<<\Z"),
    # Octal and other bases, digits in groups, infinity, NaN and dates.
    (_AMBIGUOUS, r"[-+]?(?:[0-9.][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|0[xXoObB][0-9a-fA-F_]+)\Z"),
    (_AMBIGUOUS, r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)\Z|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?\Z"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern, re.DOTALL), None)


def read(path: Path) -> Contents:
    """The contents of a stack file. Raises StackFileError if the file is none."""
    return _read(path, parts=False)


def read_parts(path: Path) -> Contents:
    """The contents of a file that holds what a stack file has under config. Raises StackFileError likewise."""
    return _read(path, parts=True)


def read_either(path: Path) -> Contents:
    """The contents of one or the other, by its key config. Raises StackFileError likewise."""
    return _read(path, parts=None)


def own_name(key: str) -> str | None:
    """The name of one of the project's keys as the engine reads it: a bare one is the project's. None for another's."""
    namespace, _, name = key.rpartition(":")
    return name if namespace in ("", PROJECT) and key != f":{name}" else None


def encrypted(raw: Mapping[str, Any]) -> Iterator[str]:
    """The keys that have an encrypted value at any depth."""
    return (name for name, value in raw.items() if _is_encrypted(value))


def too_large(raw: Mapping[str, Any]) -> str | None:
    """A sentence if the engine cannot pass on the stack file's configuration, because it is too large."""
    size = len(_json({f"{PROJECT}:{name}": _json(value) for name, value in raw.items()}).encode(errors="replace"))
    if size <= MOST_BYTES:
        return None
    return (
        f"the configuration takes {size} bytes, and the engine passes on {MOST_BYTES} at most; move "
        f"{size - MOST_BYTES} bytes or more of it into files that {PROJECT}:files names"
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _is_encrypted(value: object) -> bool:
    if isinstance(value, Mapping):
        secret = len(value) == 1 and isinstance(value.get("secure"), str)
        return secret or any(_is_encrypted(item) for item in value.values())
    return isinstance(value, list) and any(_is_encrypted(item) for item in value)


def _read(path: Path, *, parts: bool | None) -> Contents:
    contents = Contents(path)
    try:
        root = _Loader(path.read_text(encoding="utf-8")).get_single_node()
        has_config = isinstance(root, yaml.MappingNode) and any(key.value == _CONFIG for key, _ in root.value)
        is_parts = not has_config if parts is None else parts
        _fill(contents, _parts(contents, root, has_config=has_config) if is_parts else _config(contents, root))
    except OSError as error:
        raise StackFileError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        raise StackFileError(f"{path}{_place(error.problem_mark)}: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise StackFileError(f"{path}: is not a text file in YAML") from None
    except RecursionError:
        raise StackFileError(f"{path}: goes around in a circle, or too deep") from None
    return contents


def _config(contents: Contents, root: yaml.Node | None) -> yaml.MappingNode:
    """The map under config of a stack file."""
    config: yaml.Node | None = None
    for name, key, node in _items(contents, root, ()) if isinstance(root, yaml.MappingNode) else ():
        if name == _CONFIG:
            config = node
        elif name not in PULUMI_KEYS:
            _add(contents, key, (name,), "stands beside config, where nothing reads it; move it there or remove it")
    if not isinstance(config, yaml.MappingNode):
        near = next((problem.line for problem in contents.problems), "")
        raise StackFileError(near or f"{contents.file}: has no map under the key config; add it")
    return config


def _parts(contents: Contents, root: yaml.Node | None, *, has_config: bool) -> yaml.MappingNode:
    if not isinstance(root, yaml.MappingNode):
        raise StackFileError(f"{contents.file}: has no map of parts such as tenants; add it, or remove the file")
    if has_config:
        raise StackFileError(f"{contents.file}: has the key {_CONFIG}; write what is under it without it")
    return root


def _fill(contents: Contents, config: yaml.MappingNode) -> None:
    for key, key_node, node in _items(contents, config, ()):
        name = own_name(key)
        if name is None:
            contents.foreign[key] = node.value if isinstance(node, yaml.ScalarNode) else ""
        elif name in contents.values:
            _add(contents, key_node, (name,), f"is there twice, with {PROJECT}: and without; remove one")
        else:
            contents.values[name] = _value(contents, node, (name,))


def _items(contents: Contents, node: yaml.MappingNode, path: KeyPath) -> _Items:
    """The items of a map, each name once; after its own those of the map that it takes over by <<."""
    own: set[str] = set()
    taken: list[tuple[str, yaml.Node, yaml.Node]] = []
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "a map or a list"
        if key.tag == _MERGE and isinstance(value, yaml.MappingNode):
            taken += _items(contents, value, path)
        elif key.tag not in (_STR, _INT):
            _add(contents, key, (*path, name), f"{name or 'nothing'} is not a text in YAML; quote it")
        elif name in own:
            _add(contents, key, (*path, name), "is there twice; remove one")
        else:
            own.add(name)
            yield name, key, value
    yield from (item for item in taken if item[0] not in own)


def _value(contents: Contents, node: yaml.Node, path: KeyPath) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {name: _value(contents, value, (*path, name)) for name, _, value in _items(contents, node, path)}
    if isinstance(node, yaml.SequenceNode):
        return [_value(contents, item, (*path, index)) for index, item in enumerate(node.value)]
    scalar = cast(yaml.ScalarNode, node)  # the third and last kind
    try:
        return _READ[scalar.tag](scalar.value)
    except (KeyError, ValueError):
        text = "is an octal number, a date or a tag to some readers of YAML; write it plainly, or quote it"
        _add(contents, node, path, f"{scalar.value[:40]} {text}")
        return scalar.value


def _add(contents: Contents, node: yaml.Node, path: KeyPath, text: str) -> None:
    contents.problems.append(Problem(path, f"{contents.file}{_place(node.start_mark)}: {dotted(*path)}: {text}"))


def _place(mark: yaml.Mark | None) -> str:
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""
