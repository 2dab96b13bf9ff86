"""Reads the imports of our modules from their source."""

import ast
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = ("tenancy", "agents", "components", "stacks", "gpu_tenancy", "policy", "gpumem")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path, *, at_once: bool = False) -> set[str]:
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif not (at_once and (isinstance(node, ast.FunctionDef) or _is_for_types(node))):
            pending.extend(ast.iter_child_nodes(node))
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def packages(path: Path, *, at_once: bool = False) -> set[str]:
    return {name.partition(".")[0] for name in imported(path, at_once=at_once)}
