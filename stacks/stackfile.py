"""Reads a stack file, or a file with the settings that a stack file has under `config`, without Pulumi's engine.

Different YAML readers read some values differently: octal numbers, dates, or a key that is present twice. The reader
refuses values that YAML readers read differently. People review the stack file, and the seating chart shows it. The
program, however, gets the values that Pulumi's engine has read.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tenancy.names import PROJECT

# The keys that Pulumi itself reads next to `config` (ProjectStack in sdk/go/common/workspace).
PULUMI_KEYS = {
    "encryptionsalt": "A key of Pulumi: the salt of the passphrase that encrypts secrets.",
    "encryptedkey": "A key of Pulumi: the data key, encrypted by the secrets provider.",
    "secretsprovider": "A key of Pulumi: the place of the key for secrets.",
    "environment": "A key of Pulumi: environments of Pulumi ESC, for keys of other projects.",
}
_CONFIG = "config"
_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE, _MAP, _SEQ = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "merge", "map", "seq")
)
_AMBIGUOUS = "!ambiguous"
_SURROGATE = re.compile("[\ud800-\udfff]")
_READ: Mapping[str, Callable[[str], Any]] = {
    _NULL: lambda _: None,
    _BOOL: lambda text: text.lower() == "true",
    _INT: int,
    _FLOAT: float,
    _STR: str,
}


class StackFileError(ValueError):
    """Raised if a file cannot be read as a stack file.

    The message of the error is one line with the file and the position.
    """


@dataclass(frozen=True)
class Contents:
    """The contents of a file, as JSON-like data.

    `values` has the values of the project's keys. The keys in `values` are without the project's name. `foreign` has
    the keys of other programs. `foreign` leaves out values that are not text.
    """

    file: Path
    values: dict[str, Any] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """Reads a scalar without quotes as a JSON value or as text.

    Refuses ambiguous scalars, surrogates, a key that is present twice, and a key that is no text.
    """

    yaml_implicit_resolvers: dict[str | None, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (yaml's own)
    yaml_constructors = {tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (_MAP, _SEQ)}  # noqa: RUF012

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names: set[str] = set()
        for key, _ in node.value:
            if key.tag == _INT:
                key.tag = _STR  # Pulumi's engine reads the value of this key as text
            name = key.value if isinstance(key, yaml.ScalarNode) else "a map or a list"
            if key.tag not in (_STR, _MERGE):
                raise _refused(key, f"{name or 'nothing'} is not a text in YAML; quote it")
            if name in names:
                raise _refused(key, f"{name} is there twice; remove one")
            names.add(name)
        return node

    def scalar(self, node: yaml.Node) -> Any:
        if _SURROGATE.search(str(node.value)):
            problem = "has the escape of a surrogate, which is no character to Pulumi; write the character itself"
            raise _refused(node, problem)
        try:
            return _READ[node.tag](node.value)
        except (KeyError, ValueError, TypeError):
            text = "is an octal number, a date or a tag to some readers of YAML; write it plainly, or quote it"
            raise _refused(node, f"{str(node.value)[:40]} {text}") from None


for _tag, _pattern in (
    (_NULL, r"(?:~|null|Null|NULL|)\Z"),
    (_BOOL, r"(?:true|True|TRUE|false|False|FALSE)\Z"),
    (_INT, r"[-+]?(?:0|[1-9][0-9]*)\Z"),
    (_FLOAT, r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z"),
    (_MERGE, r"<<\Z"),
    # Matches octal numbers and other bases, digits in groups, infinity, NaN and dates.
    (_AMBIGUOUS, r"[-+]?(?:[0-9.][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|0[xXoObB][0-9a-fA-F_]+)\Z"),
    (_AMBIGUOUS, r"[-+]?\.(?:inf|Inf|INF|nan|NaN|NAN)\Z|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?\Z"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern, re.DOTALL), None)
_Loader.add_constructor(None, _Loader.scalar)


def _refused(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def read(path: Path) -> Contents:
    """Returns the contents of a stack file, or of a file with settings. A file with settings has no key `config`.

    Raises StackFileError.
    """
    root = _root(path)
    root = root if isinstance(root, dict) else {}
    is_stack_file = _CONFIG in root or path.name.startswith("Pulumi.")
    return _contents(path, _config(path, root) if is_stack_file else root)


def project_key(key: str) -> str | None:
    """Returns the name of one of the project's keys, as Pulumi's engine reads it.

    A key without a namespace belongs to the project. For a key that belongs to another program, returns None.
    """
    namespace, _, name = key.rpartition(":")
    return name if namespace in ("", PROJECT) and key != f":{name}" else None


def encrypted(raw: Mapping[str, Any]) -> Iterator[str]:
    """Returns the keys that have an encrypted value at any depth."""
    return (name for name, value in raw.items() if _is_encrypted(value))


def _is_encrypted(value: object) -> bool:
    if isinstance(value, Mapping):
        secret = len(value) == 1 and isinstance(value.get("secure"), str)
        return secret or any(_is_encrypted(item) for item in value.values())
    return isinstance(value, list) and any(_is_encrypted(item) for item in value)


def _root(path: Path) -> Any:
    """Returns the YAML document in the file. Raises StackFileError for the first problem, with its position."""
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        return None if node is None else loader.construct_object(node, deep=True)
    except OSError as error:
        raise StackFileError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise StackFileError(f"{path}{place}: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise StackFileError(f"{path}: is not a text file in YAML") from None
    except RecursionError:
        raise StackFileError(f"{path}: goes around in a circle, or too deep") from None


def _config(path: Path, root: Mapping[str, Any]) -> dict[str, Any]:
    for name in root:
        if name != _CONFIG and name not in PULUMI_KEYS:
            raise StackFileError(f"{path}: {name}: stands beside config, where nothing reads it; move it or remove it")
    config = root.get(_CONFIG)
    if not isinstance(config, dict):
        raise StackFileError(f"{path}: has no map under the key config; add it")
    return config


def _contents(path: Path, given: Mapping[str, Any]) -> Contents:
    contents = Contents(path)
    for key, value in given.items():
        name = project_key(key)
        if name is None:
            contents.foreign[key] = value if isinstance(value, str) else ""
        elif name in contents.values:
            raise StackFileError(f"{path}: {name}: is there twice, with {PROJECT}: and without; remove one")
        else:
            contents.values[name] = value
    return contents
