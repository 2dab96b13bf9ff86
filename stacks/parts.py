"""A stack's parts in files of their own: what stands under config in `Pulumi.<stack>.yaml`, and in the files that its
key `files` names. These the engine does not hand on, so that they may be as large as they like.

Each entry has one home. A path leads to no place outside the project's folder.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.base.spec import Form
from stacks import stackfile
from stacks.problems import KeyPath, dotted, got, key
from stacks.stackfile import Contents, Problem
from tenancy.names import PROJECT

FILES = "files"
INSIDE = Form(
    "a path within the project's folder, without .., such as stacks.d/prod",
    r"(?!/)(?!(?:[^\n]*/)?\.\.(?:/|$))[^\\\x00-\x1f\x7f]+",
)
_SUFFIX = ".yaml"
# Maps of names, and how deep their entries are: they may stand in several files. Every other part stands in one.
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
    """`values` of the stack file and of its files together; `problems` of the files alone. `homes` has the file of each
    entry that does not stand in the stack file, by its dotted path."""

    folder: Path
    values: dict[str, Any]
    problems: tuple[Problem, ...]
    homes: Mapping[str, Contents]

    def home(self, path: KeyPath) -> Path | None:
        """The file that has the entry at, above or below this path; None for the stack file."""
        found = self._home(dotted(*path)) or next(
            (home for entry, home in self.homes.items() if entry.startswith(f"{dotted(*path)}.")), None
        )
        return found.file if found else None

    def shown(self, path: KeyPath) -> str:
        """The same by its path in the project's folder; empty for the stack file."""
        file = self.home(path)
        return file.relative_to(self.folder).as_posix() if file else ""

    def placed(self, line: str) -> str:
        """A problem's line with its file, line and column, where its key stands in a file of its own."""
        named, colon, text = line.removeprefix(f"{PROJECT}:").partition(": ")
        home = self._home(named) if line.startswith(f"{PROJECT}:") else None
        return f"{home.place(named)}: {named}{colon}{text}" if home else line

    def _home(self, named: str) -> Contents | None:
        """Names have dots in them where they are wrong."""
        names = named.split(".")
        prefixes = (".".join(names[:length]) for length in range(1, len(names) + 1))
        return next((self.homes[prefix] for prefix in prefixes if prefix in self.homes), None)


def gather(values: Mapping[str, Any], stack_file: Path) -> Parts:
    """The parts that are `values` in the stack file, with those of the files that it names, relative to its folder."""
    gathered = _Gathered(dict(values), stack_file)
    listed = values.get(FILES)
    for index, name in enumerate(listed if isinstance(listed, list) else ()):
        if isinstance(name, str) and re.fullmatch(INSIDE.pattern, name):  # else the settings say what it must be
            gathered.read((FILES, index), name)
    return Parts(stack_file.parent, gathered.values, tuple(gathered.problems), gathered.homes)


class _Gathered:
    def __init__(self, values: dict[str, Any], stack_file: Path) -> None:
        self.values = values
        self.problems: list[Problem] = []
        self.homes: dict[str, Contents] = {}
        self._stack_file = stack_file
        self._folder = stack_file.parent
        self._real = self._folder.resolve()
        self._read: dict[Path, str] = {}

    def read(self, where: KeyPath, name: str) -> None:
        """One entry of the key files."""
        try:
            for path in self._paths(name):
                real = path.resolve()
                if real in self._read:
                    raise _RefusedError(f"{self._read[real]!r} has this file already; remove one")
                self._read[real] = name
                self._add(stackfile.read_parts(path))
        except _RefusedError as refused:
            self._say(where, f"{key(*where)}: {refused}{got(name)}")
        except stackfile.StackFileError as error:
            self._say(where, str(error))

    def _paths(self, name: str) -> Iterator[Path]:
        """The files at a path, in the order of their names."""
        path = self._within(self._folder / name)
        if not path.is_dir():
            yield self._file(path)
            return
        inside = sorted(each for each in path.iterdir() if not each.name.startswith("."))
        if unread := [each.name for each in inside if each.is_dir() or each.suffix == ".yml"]:
            raise _RefusedError(
                f"has {unread[0]!r} in it, which is not read: a folder's {_SUFFIX} files are; rename it, or name it "
                f"under {FILES} itself"
            )
        files = [each for each in inside if each.suffix == _SUFFIX]
        if not files:
            raise _RefusedError(f"has no {_SUFFIX} file in it; write one, or remove this")
        for each in files:
            yield self._file(self._within(each))

    def _within(self, path: Path) -> Path:
        """Raises where it leads out of the folder by a link, also to nowhere."""
        try:
            inside = path.resolve().is_relative_to(self._real)
        except (OSError, RuntimeError):
            inside = False
        if not inside:
            there = self._shown(path)
            raise _RefusedError(f"{there} is a link that leads out of the project's folder; put the file there")
        return path

    def _file(self, path: Path) -> Path:
        if not path.exists():
            raise _RefusedError(f"{self._shown(path)} is not there; write it, or remove this")
        if not path.is_file() or path.suffix != _SUFFIX:
            raise _RefusedError(f"{self._shown(path)} is neither a {_SUFFIX} file nor a folder of them")
        return path

    def _shown(self, path: Path) -> str:
        return repr(path.relative_to(self._folder).as_posix())

    def _add(self, home: Contents) -> None:
        self.problems += home.problems
        for name in home.foreign:
            self._refuse(home, (name,), f"is not read here; write it into {self._stack_file.name}")
        if encrypted := [*stackfile.encrypted(home.values)]:
            for name in encrypted:
                self._refuse(home, (name,), "is encrypted, but nothing here is secret; write it plainly")
            return  # before anything else is judged, since a problem's line shows the value
        for name, value in home.values.items():
            if name == FILES:
                self._refuse(home, (name,), f"stands in {self._stack_file.name} alone; remove it")
            else:
                self._merge(self.values, (name,), value, home)

    def _merge(self, into: dict[str, Any], path: tuple[str, ...], value: Any, home: Contents) -> None:
        """Entry by entry; what is empty says nothing, as the engine's own default."""
        name, named = path[-1], dotted(*path)
        there = into.get(name, {})
        if len(path) < ENTRIES.get(path[0], 1) and isinstance(value, Mapping) and isinstance(there, Mapping):
            inner = into[name] = dict(there)
            for each, item in value.items():
                self._merge(inner, (*path, each), item, home)
        elif name not in into or (len(path) == 1 and there == {}):
            into[name] = value
            self.homes[named] = home
        elif value is None:
            self._refuse(home, path, "has no value; write one, or remove the key")
        elif len(path) > 1 or value != {}:
            first = self.homes.get(named)
            other = first.place(named) if first else self._stack_file.name
            self._refuse(home, path, f"is in {other} as well; remove one")

    def _refuse(self, home: Contents, path: KeyPath, text: str) -> None:
        named = dotted(*path)
        self._say(path, f"{home.place(named)}: {named}: {text}")

    def _say(self, path: KeyPath, line: str) -> None:
        self.problems.append(Problem(path, line))


class _RefusedError(Exception):
    """An entry of files cannot be read; the message is the end of a sentence about it."""
