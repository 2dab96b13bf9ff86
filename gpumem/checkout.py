"""The stack files and the gate of a checkout, for `--stack`. Not in the plugin, which has neither: imported when asked.

What is changed in a stack file is the text of numbers, so that comments and order stay, and the gate judges that text.
"""

import difflib
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.runtime.errors import AgentError
from gpumem.replay import Played, PodSeries
from tenancy.host_memory.pool import HostMemoryPools
from tenancy.ledger import Ledger
from tenancy.names import PROJECT


class CheckoutError(AgentError):
    """There is no such checkout, stack or place in it; the message says what to do."""


KeyPath = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AcceptedStack:
    """A stack file that the settings accept, with the files that it names. `values` is what they say together, by the
    names of the settings; `homes` is the file of a path's entry, None for the stack file itself."""

    path: Path
    ledger: Ledger
    host_memory: HostMemoryPools
    values: Mapping[str, Any]
    homes: Callable[[KeyPath], Path | None]

    def home(self, path: KeyPath) -> Path:
        """The file that has the entry."""
        return self.homes(path) or self.path

    def shown(self, file: Path) -> str:
        """Its path in the folder of the stack file."""
        return file.relative_to(self.path.parent).as_posix()


def read(name: str, root: Path) -> AcceptedStack:
    """Raises CheckoutError."""
    _needed()
    path = root / f"Pulumi.{name}.yaml"
    if not path.is_file():
        raise CheckoutError(f"{path} is not there: --stack names a Pulumi.NAME.yaml of the folder you are in")
    settings, parts = _declared(path)
    return AcceptedStack(
        path=path,
        ledger=settings.ledger(),
        host_memory=_host_memory(settings),
        values=parts.values,
        homes=parts.home,
    )


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The texts of the files after a change, and what settings and gate refuse of it: of all that is judged without the
    program's objects."""

    texts: Mapping[Path, str]
    refusals: tuple[str, ...]


def with_numbers(stack: AcceptedStack, numbers: Mapping[KeyPath, int]) -> Proposal:
    """With other numbers at these paths of keys. Raises CheckoutError where a text has no place for one."""
    texts: dict[Path, str] = {}
    for file in sorted({stack.home(path) for path in numbers}):
        texts[file] = _with_numbers(stack, file, {path: n for path, n in numbers.items() if stack.home(path) == file})
    return Proposal(texts=texts, refusals=refusals_of(_with(stack.values, numbers)))


def _with_numbers(stack: AcceptedStack, file: Path, numbers: Mapping[KeyPath, int]) -> str:
    """The text of one of its files."""
    import yaml  # noqa: PLC0415 (the plugin has none)

    before = text = file.read_text(encoding="utf-8")
    root = yaml.compose(text)
    config = _child(root, "config") if file == stack.path else root
    places = {path: _at(config, path) for path in numbers}
    if wrong := [".".join(path) for path, node in places.items() if not _is_plain(node, text)]:
        raise CheckoutError(f"{file}: no number of its own at {', '.join(wrong)}; write one there")
    for path, node in sorted(places.items(), key=lambda place: -place[1].start_mark.index):
        text = text[: node.start_mark.index] + str(numbers[path]) + text[node.end_mark.index :]
    if _said(stack, file, text) != _with(_said(stack, file, before), numbers):
        named = ", ".join(".".join(each) for each in numbers)
        raise CheckoutError(f"{file}: one of {named} is another key's as well, by an alias; write each out")
    return text


def _said(stack: AcceptedStack, file: Path, text: str) -> Mapping[str, Any]:
    """What the file would say with this text."""
    from stacks import stackfile  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="gpumem-") as folder:
        path = Path(folder) / file.name
        path.write_text(text, encoding="utf-8")
        return (stackfile.read if file == stack.path else stackfile.read_parts)(path).values


def patch(stack: AcceptedStack, change: Proposal) -> str:
    """The change as a unified diff, of every file that it touches."""
    return "".join(
        _diff(stack.shown(file), file.read_text(encoding="utf-8"), text) for file, text in change.texts.items()
    )


def _diff(name: str, before: str, after: str) -> str:
    lines = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}"))


def refusals_of(values: Mapping[str, Any]) -> tuple[str, ...]:
    """What settings and gate refuse of a stack file that says this, as of a Change."""
    from stacks import settings  # noqa: PLC0415

    try:
        found = settings.parse(values)
    except settings.ConfigError as error:
        return tuple(str(error).splitlines())
    return _refused(found)


def _refused(settings: Any) -> tuple[str, ...]:
    from policy.graph import Graph  # noqa: PLC0415
    from policy.rules import violations  # noqa: PLC0415

    configured = {"ledger": settings.ledger().to_data(), "memory_pools": _host_memory(settings).to_data()}
    return tuple(str(each) for each in violations(Graph((), configured)))


def _with(values: Any, numbers: Mapping[KeyPath, int]) -> Any:
    """A copy of JSON-like data with other numbers: what aliases share is the copy's own."""
    copied = json.loads(json.dumps(values))
    for (*parents, last), value in numbers.items():
        inner = copied
        for key in parents:
            inner = inner[key]
        inner[last] = value
    return copied


def files(given: Sequence[str], root: Path) -> list[Path]:
    """The stack files of a replay, by their names or paths. Raises CheckoutError."""
    _needed("replay", "make gpumem ARGS='replay --from PROMETHEUS'")
    found = [Path(each) if each.endswith((".yaml", ".yml")) else root / f"Pulumi.{each}.yaml" for each in given]
    if absent := [str(path) for path in found if not path.is_file()]:
        raise CheckoutError(f"{', '.join(absent)}: no such file; a stack is NAME of Pulumi.NAME.yaml here, or a file")
    return found


def replayed(stacks: Sequence[Path], pods: Sequence[PodSeries]) -> list[tuple[str, Played]]:
    """What comes of a history under each stack file, the first of which was there when it was made. Raises
    CheckoutError."""
    from simulation import replay, stack  # noqa: PLC0415
    from simulation.history import PodHistory  # noqa: PLC0415

    declared = [stack.declared(_settings(path)) for path in stacks]
    history = [PodHistory(each.namespace, each.pod, each.gpu, each.samples) for each in pods]
    return [
        (path.name, replay.play(history, each, before=None if each is declared[0] else declared[0]))
        for path, each in zip(stacks, declared, strict=True)
    ]


_WITHOUT_STACK = "make gpumem ARGS='... --stack NAME'; or leave --stack out, and the cluster's ledger is read"


def _needed(what: str = "--stack", instead: str = _WITHOUT_STACK) -> None:
    try:
        import policy.rules  # noqa: F401, PLC0415
        import stacks.settings  # noqa: F401, PLC0415
    except ImportError as error:
        raise CheckoutError(
            f"{what} needs the project's checkout and its environment ({error}): there, {instead}"
        ) from None


def _settings(path: Path) -> Any:
    return _declared(path)[0]


def _declared(path: Path) -> Any:
    """The settings, and where their parts stand."""
    from stacks import settings  # noqa: PLC0415

    try:
        return settings.declared(path)
    except settings.ConfigError as error:
        raise CheckoutError(str(error)) from None


def _host_memory(settings: Any) -> HostMemoryPools:
    from components.host_memory import host_memory_pools  # noqa: PLC0415

    found: HostMemoryPools = host_memory_pools(settings.memory_pools)
    return found


def _at(config: Any, path: KeyPath) -> Any:
    """The node at a path of keys, of which the first may bear the project's name; None where there is none."""
    first, *rest = path
    node = _child(config, f"{PROJECT}:{first}", first)
    for key in rest:
        node = _child(node, key)
    return node


def _is_plain(node: Any, text: str) -> bool:
    """Whether a number and nothing else (no anchor) stands there."""
    return node is not None and text[node.start_mark.index : node.end_mark.index].isdecimal()


def _child(node: Any, *keys: str) -> Any:
    """The value of a YAML map's first key of these; None where there is none."""
    pairs = node.value if node is not None and node.id == "mapping" else ()
    return next((value for key, value in pairs if key.value in keys), None)
