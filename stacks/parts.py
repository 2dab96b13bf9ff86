"""Reads the files with parts of a stack. The key `files` in the stack file names the files with parts.

Pulumi's engine does not pass the files with parts to the program, so these files may have any size. Each entry of the
configuration must be in exactly one file. A path may not lead out of the project's directory.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.base.spec import StringForm
from stacks import stackfile
from stacks.problems import KeyPath, dotted, key
from stacks.stackfile import Contents, StackFileError
from tenancy.names import PROJECT

FILES = "files"
INSIDE = StringForm(
    "a path within the project's folder, without .., such as stacks.d/prod",
    r"(?!/)(?!(?:[^\n]*/)?\.\.(?:/|$))[^\\\x00-\x1f\x7f]+",
)
# The parts of a stack file that are maps. The number of a part is the number of keys in the path of its entries.
# Several files may contain entries of these parts. Every other part must be in one file.
ENTRIES = {
    "pools": 2,
    "tenants": 2,
    "residents": 2,
    "on_demand": 2,
    "unbudgeted": 2,
    "priorities": 2,
    "memory_pools": 2,
    "queues": 3,
}


@dataclass(frozen=True)
class Parts:
    """`values` has the values of the stack file and of the files that it names.

    `problems` has an error message for each error in the files. `homes` maps each entry outside of the stack file to
    its file. The keys of `homes` are the dotted paths of the entries.
    """

    stack_file: Path
    values: dict[str, Any]
    problems: list[str] = field(default_factory=list)
    homes: dict[str, Path] = field(default_factory=dict)

    def home(self, path: KeyPath) -> Path | None:
        """Returns the file that contains the entry at the path, an entry above it, or an entry below it.

        Returns None if the entry is in the stack file.
        """
        named = dotted(*path)
        below = (home for entry, home in self.homes.items() if entry.startswith(f"{named}."))
        return self._home(named) or next(below, None)

    def shown(self, path: KeyPath) -> str:
        """Returns the path of the file with the entry, relative to the project's directory.

        For an entry in the stack file, returns "".
        """
        file = self.home(path)
        return file.relative_to(self.stack_file.parent).as_posix() if file else ""

    def placed(self, line: str) -> str:
        """Returns the error message about a key.

        If the key is in another file than the stack file, the message begins with the name of that file.
        """
        named, colon, text = line.removeprefix(f"{PROJECT}:").partition(": ")
        home = self._home(named) if line.startswith(f"{PROJECT}:") else None
        return f"{home}: {named}{colon}{text}" if home else line

    def _home(self, named: str) -> Path | None:
        names = named.split(".")  # the name of an entry may contain dots
        prefixes = (".".join(names[:length]) for length in range(1, len(names) + 1))
        return next((self.homes[prefix] for prefix in prefixes if prefix in self.homes), None)


def gather(values: Mapping[str, Any], stack_file: Path) -> Parts:
    """Returns the parts of a stack.

    `values` has the parts in the stack file. The other parts of the stack are in the files that the stack file names.
    The path of each file with parts is relative to the directory of the stack file.
    """
    parts = Parts(stack_file, dict(values))
    read: dict[str, str] = {}
    listed = values.get(FILES)
    for name in listed if isinstance(listed, list) else ():
        if not isinstance(name, str) or not re.fullmatch(INSIDE.pattern, name):
            continue  # the check of the settings refuses the path
        try:
            for path in _files(stack_file.parent, name):
                real = os.path.realpath(path)
                if real in read:
                    raise StackFileError(f"{key(FILES)}: {read[real]!r} has the file of {name!r} already; remove one")
                read[real] = name
                _add(parts, stackfile.read_parts(path))
        except StackFileError as error:
            parts.problems.append(str(error))
    return parts


def _files(folder: Path, name: str) -> Iterator[Path]:
    """Yields the file at a path, or the .yaml files of a directory in the order of their names.

    For any other file in the directory, raises StackFileError, so that the operator notices an ignored file.
    """
    path = folder / name
    found = [path]
    if path.is_dir():
        shown = [each for each in path.iterdir() if not each.name.startswith(".")]
        found = [each for each in shown if each.is_dir() or each.suffix in (".yaml", ".yml")]
    if not found:
        raise StackFileError(f"{key(FILES)}: {name!r} has no .yaml file in it; write one, or remove this")
    for each in sorted(found):
        there = each.relative_to(folder).as_posix()
        if not Path(os.path.realpath(each)).is_relative_to(folder.resolve()):
            raise StackFileError(f"{key(FILES)}: {there!r} is a link that leads out of the project's folder")
        if each.suffix != ".yaml" or not each.is_file():
            raise StackFileError(f"{key(FILES)}: {there!r} is no .yaml file")
        yield each


def _add(parts: Parts, home: Contents) -> None:
    for name in home.foreign:
        _refuse(parts, home.file, (name,), f"is not read here; write it into {parts.stack_file.name}")
    secret = set(stackfile.encrypted(home.values))  # the usual error message would show an encrypted value
    for name, value in home.values.items():
        if name in secret:
            _refuse(parts, home.file, (name,), "is encrypted, but nothing here is secret; write it plainly")
        elif name == FILES:
            _refuse(parts, home.file, (name,), f"stands in {parts.stack_file.name} alone; remove it")
        else:
            _merge(parts, parts.values, (name,), value, home.file)


def _merge(parts: Parts, into: dict[str, Any], path: tuple[str, ...], value: Any, file: Path) -> None:
    """Adds the entries of a part in `file` to the values of the stack."""
    name, named = path[-1], dotted(*path)
    there = into.get(name, {})
    if len(path) < ENTRIES.get(path[0], 1) and isinstance(value, Mapping) and isinstance(there, Mapping):
        inner = into[name] = dict(there)
        for each, item in value.items():
            _merge(parts, inner, (*path, each), item, file)
    elif name not in into:
        into[name] = value
        parts.homes[named] = file
    else:
        other = parts.homes.get(named, parts.stack_file.name)
        _refuse(parts, file, path, f"is in {other} as well; remove one")


def _refuse(parts: Parts, file: Path, path: KeyPath, text: str) -> None:
    parts.problems.append(f"{file}: {dotted(*path)}: {text}")
