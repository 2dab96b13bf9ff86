"""Reads a stack file, or a file with the settings that a stack file has under `config`, without Pulumi's engine.

The program gets the values that Pulumi's engine has read, and refuses values that differ from those read here.
"""

import json
import re
from collections.abc import Mapping
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
_BOOL, _INT, _STR, _MERGE, _DATE = (
    f"tag:yaml.org,2002:{name}" for name in ("bool", "int", "str", "merge", "timestamp")
)


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

    values: dict[str, Any] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """Reads `no` and a date as text, like Pulumi's engine. Refuses a key that is present twice or is no text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (yaml's own)
        first: [(tag, pattern) for tag, pattern in found if tag not in (_BOOL, _DATE)]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names: set[str] = set()
        for key, _ in node.value:
            if key.tag == _INT:
                key.tag = _STR
            if key.tag not in (_STR, _MERGE):
                raise _refused(key, "this key is not a text in YAML; quote it")
            if key.value in names:
                raise _refused(key, f"{key.value} is there twice; remove one")
            names.add(key.value)
        return node


_Loader.add_implicit_resolver(_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), [*"tTfF"])


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


def _root(path: Path) -> Any:
    """Returns the YAML document in the file. Raises StackFileError for the first problem, with its position."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 (a SafeLoader)
        return json.loads(json.dumps(found, default=str, ensure_ascii=False).encode())
    except OSError as error:
        raise StackFileError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        problem = str(error.problem or error.context)
        if "<block end>" in problem:
            problem = "this line belongs to no key above it; indent it like the keys beside it, or close a bracket"
        raise StackFileError(f"{path}{place}: {problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise StackFileError(f"{path}: is not a text file in YAML") from None


def _config(path: Path, root: Mapping[str, Any]) -> dict[str, Any]:
    for name in root:
        if name != _CONFIG and name not in PULUMI_KEYS:
            raise StackFileError(f"{path}: {name}: stands beside config, where nothing reads it; move it or remove it")
    config = root.get(_CONFIG)
    if not isinstance(config, dict):
        raise StackFileError(f"{path}: has no map under the key config; add it")
    return config


def _contents(path: Path, given: Mapping[str, Any]) -> Contents:
    contents = Contents()
    for key, value in given.items():
        name = project_key(key)
        if name is None:
            contents.foreign[key] = value if isinstance(value, str) else ""
        elif name in contents.values:
            raise StackFileError(f"{path}: {name}: is there twice, with {PROJECT}: and without; remove one")
        else:
            contents.values[name] = value
    return contents
