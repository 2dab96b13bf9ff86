"""`Pulumi.<stack>.yaml` without the engine: read as the engine reads it, so that both find the same settings in it.

What readers of YAML take for different things (octal, dates, tags, `null` as a name) is a problem of its own, with the
value that the operator most likely meant, so that the rest can be judged in the same run.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import yaml

from stacks.problems import KeyPath, dotted
from tenancy.names import PROJECT

# What Pulumi itself reads beside config (sdk/go/common/workspace ProjectStack).
PULUMI_KEYS = {
    "encryptionsalt": "Pulumi's own: salt of the passphrase that encrypts secrets.",
    "encryptedkey": "Pulumi's own: data key, encrypted by the secrets provider.",
    "secretsprovider": "Pulumi's own: where the key for secrets is.",
    "environment": "Pulumi's own: environments of Pulumi ESC, for keys that are not this project's.",
}
_CONFIG = "config"
_ONE_DOCUMENT = "expected a single document in the stream"  # yaml's words for more
_MOST_VALUES = 500_000  # aliases of aliases have no end otherwise
_MOST_EXACT = 2**53  # beyond it a number in JSON is another one to some readers

_NULLS = ("", "~", "null", "Null", "NULL")
_BOOLS = {text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")}
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"([-+]?)0+([0-9].*)")
_BASED = re.compile(r"[-+]?0(?:[xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)")
_OCTAL = re.compile(r"[-+]?0[0-7]+")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?", re.DOTALL)
_WHOLE_NAME = re.compile(r"0|[1-9][0-9]{0,14}")
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")  # which no JSON in UTF-8 can have
_MERGE = "tag:yaml.org,2002:merge"

_Items = Iterator[tuple[str, yaml.Node, yaml.Node]]


class StackFileError(ValueError):
    """The file cannot be read as a stack file; the message is one line with its place."""


@dataclass(frozen=True)
class Problem:
    """A line for the operator, and the path of the key that it is about."""

    path: KeyPath
    line: str


@dataclass(frozen=True)
class Contents:
    """`values` by the project's keys, without its name, as JSON-like data; `foreign` are the other keys of config."""

    values: dict[str, Any]
    foreign: tuple[str, ...]
    problems: tuple[Problem, ...]
    file: Path
    config: yaml.MappingNode  # that it was read from

    def place(self, path: str) -> str:
        """The file with the line and column of the dotted path, as far as it is there."""
        node: yaml.Node = self.config
        mark, rest = None, path
        while rest and (found := self._step(node, rest)) is not None:
            mark, node, rest = found
        return f"{self.file}{_place(mark)}"

    def _step(self, node: yaml.Node, path: str) -> tuple[yaml.Mark, yaml.Node, str] | None:
        """One name or index further down a dotted path: where it stands, the node, what is left of the path."""
        names = path.split(".")
        for length in range(1, len(names) + 1):  # names have dots in them where they are wrong
            if found := self._below(node).get(".".join(names[:length])):
                return *found, ".".join(names[length:])
        return None

    def _below(self, node: yaml.Node) -> dict[str, tuple[yaml.Mark, yaml.Node]]:
        """What is directly below, by name or index; of a name that is there twice the first."""
        if id(node) not in self._known:
            items: list[tuple[str, yaml.Mark, yaml.Node]] = []
            if isinstance(node, yaml.MappingNode):
                items = [(dotted(own_name(key.value) or key.value), key.start_mark, value) for key, value in node.value]
            elif isinstance(node, yaml.SequenceNode):
                items = [(str(index), item.start_mark, item) for index, item in enumerate(node.value)]
            self._known[id(node)] = {name: (mark, below) for name, mark, below in reversed(items)}
        return self._known[id(node)]

    @cached_property
    def _known(self) -> dict[int, dict[str, tuple[yaml.Mark, yaml.Node]]]:
        return {}


def read(path: Path) -> Contents:
    """What the file says. Raises StackFileError where it is no stack file at all."""
    return _read(path, _Reader.read)


def read_parts(path: Path) -> Contents:
    """What a file says that holds what a stack file has under config. Raises StackFileError likewise."""
    return _read(path, _Reader.read_parts)


def read_either(path: Path) -> Contents:
    """What a file says that is one or the other, by whether it has the key config. Raises StackFileError likewise."""
    return _read(path, _Reader.read_either)


def _read(path: Path, read_as: "Callable[[_Reader], Contents]") -> Contents:
    try:
        return read_as(_Reader(path, path.read_text(encoding="utf-8")))
    except OSError as error:
        raise StackFileError(f"{path}: cannot be read: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        if error.context == _ONE_DOCUMENT:
            error.problem = "a second document begins here; a stack file is one, without ---"
        raise StackFileError(f"{path}{_place(error.problem_mark)}: {error.problem or error.context}") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise StackFileError(f"{path}: is not a text file in YAML") from None
    except RecursionError:
        raise StackFileError(f"{path}: goes around in a circle, or too deep; write maps, lists and scalars") from None


def own_name(key: str) -> str | None:
    """The name of one of the project's keys as the engine reads it: a bare one is the project's. None for another's."""
    namespace, _, name = key.rpartition(":")
    return name if namespace in ("", PROJECT) and key != f":{name}" else None


def encrypted(raw: Mapping[str, Any]) -> Iterator[str]:
    """The keys with an encrypted value anywhere in them."""
    return (name for name, value in raw.items() if _is_encrypted(value))


def _is_encrypted(value: object) -> bool:
    if isinstance(value, Mapping):
        secret = len(value) == 1 and isinstance(value.get("secure"), str)
        return secret or any(_is_encrypted(item) for item in value.values())
    return isinstance(value, list) and any(_is_encrypted(item) for item in value)


def _place(mark: yaml.Mark | None) -> str:
    return f":{mark.line + 1}:{mark.column + 1}" if mark else ""


class _Loader(yaml.SafeLoader):
    """Makes nodes, no values. A tag makes something else of a value, and not the same to every reader."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "tag", None) is not None:
            raise yaml.composer.ComposerError(
                problem=f"{event.tag} is a tag; write the value without it", problem_mark=event.start_mark
            )
        return super().compose_node(parent, index)


class _Reader:
    """One reading of one file."""

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.loader = _Loader(text)
        self.problems: list[Problem] = []
        self.values_read = 0
        self.judges = True  # not what stands under another's key

    def read(self) -> Contents:
        return self._stack(self.loader.get_single_node())

    def read_parts(self) -> Contents:
        return self._parts(self.loader.get_single_node())

    def read_either(self) -> Contents:
        root = self.loader.get_single_node()
        return self._stack(root) if _has_config(root) else self._parts(root)

    def _stack(self, root: yaml.Node | None) -> Contents:
        config = self._top_level(root) if isinstance(root, yaml.MappingNode) else None
        if not isinstance(config, yaml.MappingNode):
            near = next((problem.line for problem in self.problems), "")
            raise StackFileError(near or f"{self.file}: has no map under the key config; add it")
        return self._contents(config)

    def _parts(self, root: yaml.Node | None) -> Contents:
        if not isinstance(root, yaml.MappingNode):
            raise StackFileError(f"{self.file}: has no map of parts such as tenants; add it, or remove the file")
        if _has_config(root):
            raise StackFileError(f"{self.file}: has the key {_CONFIG}; write what is under it without it")
        return self._contents(root)

    def _contents(self, config: yaml.MappingNode) -> Contents:
        values: dict[str, Any] = {}
        foreign = []
        for key, key_node, node in self._items(config, ()):
            name = own_name(key)
            if name is None:
                foreign.append(key)
                self.judges = False
                self._value(node, (key,))
                self.judges = True
            elif name in values:
                self._problem((name,), key_node, f"is there twice, with {PROJECT}: and without; remove one")
            else:
                values[name] = self._value(node, (name,))
        return Contents(values, tuple(foreign), tuple(self.problems), self.file, config)

    def _top_level(self, root: yaml.MappingNode) -> yaml.Node | None:
        """The node under config."""
        found = None
        for name, key_node, node in self._items(root, ()):
            if name == _CONFIG:
                found = node
            elif name not in PULUMI_KEYS:
                close = difflib.get_close_matches(name.lower(), [_CONFIG, *PULUMI_KEYS], n=1)
                advice = f"did you mean {close[0]}?" if close else "move it there or remove it"
                self._problem((name,), key_node, f"stands beside config, where nobody reads it; {advice}")
        return found

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.values_read += 1
        if self.values_read > _MOST_VALUES:
            raise StackFileError(f"{self.file}: has more than {_MOST_VALUES} values; write less, or fewer aliases")
        if isinstance(node, yaml.MappingNode):
            return {name: self._value(value, (*path, name)) for name, _, value in self._items(node, path)}
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        scalar = cast(yaml.ScalarNode, node)  # the third and last kind
        return self._plain(scalar, path) if scalar.style is None else self._text(scalar, path)

    def _items(self, node: yaml.MappingNode, path: KeyPath) -> _Items:
        """The items of a map, each name once; after its own those of the map that it takes over by <<."""
        own: set[str] = set()
        taken: list[tuple[str, yaml.Node, yaml.Node]] = []
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.composer.ComposerError(problem="a key must be a scalar", problem_mark=key.start_mark)
            name = self._name(key, path)
            if name in own:
                self._problem((*path, name), key, "is there twice; remove one", always=True)
                continue
            own.add(name)
            if key.tag != _MERGE or not path:  # the engine takes nothing over into config
                self._judge_name(key, (*path, name))
                yield name, key, value
            elif isinstance(value, yaml.MappingNode):
                taken += self._items(value, path)
            else:
                raise yaml.composer.ComposerError(problem="<< takes one map", problem_mark=value.start_mark)
        yield from (item for item in taken if item[0] not in own)

    def _judge_name(self, key: yaml.ScalarNode, path: KeyPath) -> None:
        """A name that YAML takes for something else is another name to the engine: null, 2.50, 2026-01-01."""
        name = key.value
        if key.style is None and not _is_name(name):
            self._problem(path, key, f"{name or 'nothing'} is not a text in YAML; quote it")

    def _plain(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        """A scalar without quotes."""
        text = node.value
        if text in _NULLS:
            return None
        if text in _BOOLS:
            return _BOOLS[text]
        if _DATE.fullmatch(text):
            self._problem(path, node, f"{text} is a date in YAML; quote it")
        elif _NOT_FINITE.fullmatch(text):
            self._problem(path, node, f"{text} is no number that JSON has; write one, or quote it")
        elif (number := _as_number(text)) is not None:
            return self._number(number, node, path)
        return self._text(node, path)

    def _number(self, number: int | float, node: yaml.ScalarNode, path: KeyPath) -> int | float:
        text = node.value
        if abs(number) >= _MOST_EXACT:
            self._problem(
                path, node, f"{text[:40]} is another number to some readers; write a smaller one, or quote it"
            )
        elif not _NUMBER.fullmatch(text) or _LEADING_ZERO.fullmatch(text):
            octal = f"octal, {int(text, 8)} to the engine" if _OCTAL.fullmatch(text) else "not a number to every reader"
            self._problem(path, node, f"{text} is {octal}; write {number}, or quote it")
        return number

    def _text(self, node: yaml.ScalarNode, path: KeyPath) -> str:
        text = _HALF_A_PAIR.sub("\ufffd", node.value)
        if text != node.value:
            self._problem(path, node, "has half of a surrogate pair; write the character itself")
        return text

    def _name(self, key: yaml.ScalarNode, path: KeyPath) -> str:
        return self._text(key, (*path, _HALF_A_PAIR.sub("\ufffd", key.value)))

    def _problem(self, path: KeyPath, node: yaml.Node, text: str, *, always: bool = False) -> None:
        if self.judges or always:
            self.problems.append(Problem(path, f"{self.file}{_place(node.start_mark)}: {dotted(*path)}: {text}"))


def _has_config(root: yaml.Node | None) -> bool:
    return isinstance(root, yaml.MappingNode) and any(name.value == _CONFIG for name, _ in root.value)


def _is_name(text: str) -> bool:
    """Whether it is the same text to every reader without quotes."""
    if text in _NULLS or _DATE.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return False
    if text in _BOOLS:
        return text == text.lower()
    return bool(_WHOLE_NAME.fullmatch(text)) or _as_number(text) is None


def _as_number(text: str) -> int | float | None:
    """The number that the text is to some reader of YAML 1.1 or 1.2, None where it is text to all. One that is whole is
    an int, as the engine writes it: 3.0, 3e3."""
    bare = text.replace("_", "") if text[:1] != "_" else text
    if _BASED.fullmatch(bare):
        return min(max(int(bare, 0), -_MOST_EXACT), _MOST_EXACT)
    if not _NUMBER.fullmatch(bare):
        return None
    number = float(bare)
    if not math.isfinite(number) or abs(number) >= _MOST_EXACT:
        return _MOST_EXACT
    return int(number) if number.is_integer() else number
