"""Imports modules of agents/ and tenancy/ with all drawn mutants in their code. `Switch.active` switches one mutant on.
No file changes.
"""

import ast
import importlib.machinery
import operator
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from types import CodeType, ModuleType
from typing import Any

from tests.mutants.places import Mutant, changes, inside
from tests.mutants.sample import FOLDERS

_SWITCH = "__mutants__"
# These functions change no data.
_PURE = {
    "min",
    "max",
    "any",
    "all",
    "sum",
    "len",
    "set",
    "tuple",
    "sorted",
    "isinstance",
    "int",
    "str",
    "bool",
    "replace",
    "frozenset",
    "round",
    "abs",
    "get",
    "keys",
    "values",
    "items",
    "partition",
    "isascii",
    "isdecimal",
}
_COMPARING: Mapping[str, Callable[[Any, Any], object]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
}


class Switch:
    def __init__(self, active: str = "") -> None:
        self.active = active
        self.context = ""
        self.seen = defaultdict[str, set[str]](set)

    def on(self, mutant: str) -> bool:
        self.seen[mutant].add(self.context)
        return mutant == self.active

    def bound(self, mutant: str, old: str, new: str, left: Any, right: Any) -> object:
        usual, other = _COMPARING[old](left, right), _COMPARING[new](left, right)
        if usual == other:
            return usual
        return other if self.on(mutant) else usual

    def pure(self, mutant: str, old: Callable[[], object], new: Callable[[], object]) -> object:
        if mutant == self.active:
            return new()
        usual = old()
        if self.context not in self.seen[mutant] and not _same(usual, new):
            self.on(mutant)
        return usual


def _same(usual: object, new: Callable[[], object]) -> bool:
    try:
        other = new()
    except Exception:  # noqa: BLE001 (an error of the mutant is a difference)
        return False
    return type(usual) is type(other) and usual == other


class _Replace(ast.NodeTransformer):
    def __init__(self, new: Mapping[int, Callable[[ast.AST], ast.AST]]) -> None:
        self.new = new

    def visit(self, node: ast.AST) -> ast.AST:
        make = self.new.get(id(node))
        self.generic_visit(node)
        return node if make is None else make(node)


def switched(source: str, mutants: Sequence[Mutant]) -> ast.Module:
    tree = ast.parse(source)
    nodes = [node for _, node in inside(tree)]
    new = {id(nodes[mutant.place]): _conditional(mutant) for mutant in mutants}
    _Replace(new).visit(tree)
    return ast.fix_missing_locations(tree)


def _conditional(mutant: Mutant) -> Callable[[ast.AST], ast.AST]:
    def make(node: ast.AST) -> ast.AST:
        _, change = [*changes(node)][mutant.choice]
        new = _precise(mutant, node, change) or _general(mutant, node, change)
        return new if isinstance(new, ast.comprehension) else ast.copy_location(new, node)

    return make


def _precise(mutant: Mutant, node: ast.AST, change: ast.AST) -> ast.AST | None:
    on = _call("on", mutant)
    if isinstance(node, ast.comprehension):
        node.ifs[mutant.choice] = ast.BoolOp(ast.Or(), [node.ifs[mutant.choice], on])
        return node
    if isinstance(node, ast.If) and mutant.kind == "guard":
        return ast.If(ast.BoolOp(ast.And(), [node.test, ast.UnaryOp(ast.Not(), on)]), node.body, [])
    if isinstance(node, ast.IfExp):
        always = ast.BoolOp(ast.Or(), [node.test, on])
        never = ast.BoolOp(ast.And(), [node.test, ast.UnaryOp(ast.Not(), on)])
        return ast.IfExp(never if mutant.choice else always, node.body, node.orelse)
    if isinstance(node, ast.BoolOp) and mutant.choice < len(node.values) - 1:
        return _without(node, mutant.choice, on)
    if mutant.kind == "bound" and isinstance(node, ast.Compare) and len(node.ops) == 1:
        assert isinstance(change, ast.Compare)
        names = [ast.Constant(type(each.ops[0]).__name__) for each in (node, change)]
        return _call("bound", mutant, *names, node.left, *node.comparators)
    return None


def _without(node: ast.BoolOp, number: int, on: ast.expr) -> ast.AST:
    old = node.values[number]
    if isinstance(node.op, ast.And):
        new = ast.BoolOp(ast.Or(), [old, on])
    else:
        new = ast.BoolOp(ast.And(), [old, ast.UnaryOp(ast.Not(), on)])
    return ast.BoolOp(node.op, [*node.values[:number], new, *node.values[number + 1 :]])


def _general(mutant: Mutant, node: ast.AST, change: ast.AST) -> ast.AST:
    on = _call("on", mutant)
    if isinstance(node, ast.stmt):
        return ast.If(ast.UnaryOp(ast.Not(), on), [node], [])
    assert isinstance(node, ast.expr)
    assert isinstance(change, ast.expr)
    if all(map(_is_pure, ast.walk(node))):
        return _call("pure", mutant, _function(node), _function(change))
    return ast.IfExp(on, change, node)


def _is_pure(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        is_known = isinstance(node.func, ast.Name) and node.func.id in _PURE
        return is_known or (isinstance(node.func, ast.Attribute) and node.func.attr in _PURE)
    return not isinstance(node, ast.NamedExpr | ast.Yield | ast.YieldFrom | ast.Await)


def _function(body: ast.expr) -> ast.expr:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)


def _call(name: str, mutant: Mutant, *arguments: ast.expr) -> ast.expr:
    function = ast.Attribute(ast.Name(_SWITCH, ast.Load()), name, ast.Load())
    return ast.Call(function, [ast.Constant(mutant.id), *arguments], [])


class _Loader(importlib.machinery.SourceFileLoader):
    mutants: Sequence[Mutant] = ()
    switch: Switch

    def get_code(self, fullname: str) -> CodeType:
        source = self.get_data(self.path).decode()
        return compile(switched(source, self.mutants), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, _SWITCH, self.switch)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, mutants: Sequence[Mutant], switch: Switch) -> None:
        self.switch = switch
        self.by_module = defaultdict[str, list[Mutant]](list)
        for each in mutants:
            self.by_module[each.module].append(each)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.by_module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        loader = _Loader(fullname, spec.origin)
        loader.mutants, loader.switch = self.by_module[fullname], self.switch
        spec.loader = loader
        return spec


def install(mutants: Sequence[Mutant], active: str = "") -> Switch:
    early = [name for name in sys.modules if name.split(".")[0] in FOLDERS]
    assert not early, f"imported before: {early}"
    switch = Switch(active)
    sys.meta_path.insert(0, _Finder(mutants, switch))
    return switch
