"""Reads the imports of our modules from their source."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = ("tenancy", "agents", "components", "stacks", "gpu_tenancy", "policy", "gpumem")
# The parts of a statement that hold statements. An import is never inside an expression.
_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")
_DEFINED = re.compile(r"^(?:async def |def |class )(\w+)|^(\w+(?:, \w+)*)(?:: [^=\n]+)? =", re.MULTILINE)


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path, *, at_once: bool = False) -> frozenset[str]:
    return _imported(path.read_text(), path, at_once=at_once)


@cache
def _imported(source: str, path: Path, *, at_once: bool) -> frozenset[str]:
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif not (at_once and (isinstance(node, ast.FunctionDef) or _is_for_types(node))):
            pending.extend(child for block in _BLOCKS for child in getattr(node, block, ()))
    return frozenset(found)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def packages(path: Path, *, at_once: bool = False) -> set[str]:
    return {name.partition(".")[0] for name in imported(path, at_once=at_once)}


def is_there(name: str) -> bool:
    """Whether `name`, a module of ours or a name in one, exists. Of each module it reads the source alone."""
    module, _, last = name.rpartition(".")
    return _file(name) is not None or ((path := _file(module)) is not None and last in _offered(path))


@cache
def _file(module: str) -> Path | None:
    path = ROOT.joinpath(*module.split("."))
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)


@cache
def _offered(path: Path) -> set[str]:
    found = set(re.findall(r"\w+", " ".join(map(" ".join, _DEFINED.findall(path.read_text())))))
    return found | {name.rpartition(".")[2] for name in imported(path)}
