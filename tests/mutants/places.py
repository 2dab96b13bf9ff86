"""Lists all mutants of a module. A mutant is one small mistake at one place of a function.

Four kinds of code have no mutants: code that runs on import, text, log lines and annotations.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

KINDS: Mapping[str, str] = {
    "bound": "`<` becomes `<=`, `>` becomes `>=`, or the reverse",
    "equality": "`==` becomes `!=`, `in` becomes `not in`, or the reverse",
    "condition": "one condition of `and` or `or` is missing",
    "connective": "`and` becomes `or`, or the reverse",
    "negation": "a `not` is missing",
    "filter": "the `if` of a comprehension is missing",
    "guard": "an `if` that leaves early is missing",
    "line": "a call or a change of a value is missing",
    "stale": "an attribute, or a field of `replace`, keeps its old value",
    "arithmetic": "`+` becomes `-`, or the reverse",
    "unit": "a factor or a divisor is missing",
    "number": "a whole number is one larger, or another number ten times as large",
    "extreme": "`min` becomes `max`, `any` becomes `all`, or the reverse",
    "choice": "`a if c else b` always takes one of the two values",
    "part": "the last part of a union or of a list is missing",
    "end": "the last item instead of the first one, or the reverse",
}
_BOUNDS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_EQUALITY = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In}
_EXTREMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LEAVES = (ast.Return, ast.Continue, ast.Raise, ast.Break)
_TEXT = (ast.List, ast.Tuple, ast.JoinedStr)
Change = tuple[str, ast.AST]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    module: str
    function: str
    kind: str
    line: int
    before: str
    after: str
    place: int
    choice: int
    id: str


def mutants(module: str, source: str) -> list[Mutant]:
    """The id of a mutant stays the same while other lines of its function change."""
    found, seen = [], Counter[tuple[str, ...]]()
    for place, (function, node) in enumerate(inside(ast.parse(source))):
        for choice, (kind, new) in enumerate(changes(node)):
            before, after = _text(node), _text(new)
            key = (module, function, kind, before, after)
            seen[key] += 1
            name = sha256("\n".join((*key, str(seen[key]))).encode()).hexdigest()[:8]
            line: int = getattr(node.target if isinstance(node, ast.comprehension) else node, "lineno", 0)
            found.append(
                Mutant(
                    module=module,
                    function=function,
                    kind=kind,
                    line=line,
                    before=before,
                    after=after,
                    place=place,
                    choice=choice,
                    id=name,
                )
            )
    return found


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.comprehension):
        return ast.unparse(ast.GeneratorExp(ast.Constant(...), [node]))[1:-1].replace("... ", "", 1)
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}: {ast.unparse(node.body[0])}"
    return ast.unparse(node)


def inside(tree: ast.AST, function: str = "", running: bool = False) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.ClassDef):
            yield from _each(child.body, f"{function}{child.name}.", running=False)
        elif isinstance(child, ast.FunctionDef):
            yield from _each(child.body, f"{function}{child.name}.", running=True)
        elif running and not _is_silent(child):
            yield function.rstrip("."), child
            yield from inside(child, function, running)
        elif not running and isinstance(child, ast.stmt):
            yield from inside(child, function, running)


def _each(body: list[ast.stmt], function: str, *, running: bool) -> Iterator[tuple[str, ast.AST]]:
    yield from inside(ast.Module(body=body, type_ignores=[]), function, running)


def _is_silent(node: ast.AST) -> bool:
    if isinstance(node, ast.AnnAssign):
        return True
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Constant):
        return True
    logs = isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[0].split(".")[-1] in ("log", "_log")
    return logs or isinstance(node, ast.JoinedStr | ast.arguments)


def changes(node: ast.AST) -> Iterator[Change]:
    if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
        return
    for kind in (_comparison, _boolean, _binary, _number, _call, _statement, _other):
        yield from kind(node)


def _comparison(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Compare):
        return
    for number, found in enumerate(node.ops):
        for kind, table in (("bound", _BOUNDS), ("equality", _EQUALITY)):
            if new := table.get(type(found)):
                ops = [*node.ops[:number], new(), *node.ops[number + 1 :]]
                yield kind, ast.Compare(node.left, ops, node.comparators)


def _boolean(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negation", node.operand
    if not isinstance(node, ast.BoolOp):
        return
    for number in range(len(node.values)):
        rest = [*node.values[:number], *node.values[number + 1 :]]
        yield "condition", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
    yield "connective", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def _binary(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.BinOp) or any(_is_text(each) for each in (node.left, node.right)):
        return
    if isinstance(node.op, ast.Add | ast.Sub):
        yield "arithmetic", ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
    elif isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
        yield "unit", node.left
    elif isinstance(node.op, ast.BitOr):
        yield "part", node.left


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, _TEXT) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _number(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        yield "number", ast.Constant(node.value + 1)
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        yield "number", ast.Constant(node.value * 10 or 10.0)
    if isinstance(node, ast.Subscript) and ast.unparse(node.slice) in ("0", "-1"):
        yield "end", ast.Subscript(node.value, ast.Constant(-1 if ast.unparse(node.slice) == "0" else 0), node.ctx)


def _call(node: ast.AST) -> Iterator[Change]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return
    if new := _EXTREMES.get(node.func.id):
        yield "extreme", ast.Call(ast.Name(new, ast.Load()), node.args, node.keywords)
    if node.func.id == "replace":
        for number, each in enumerate(node.keywords):
            if each.arg:
                rest = [*node.keywords[:number], *node.keywords[number + 1 :]]
                yield "stale", ast.Call(node.func, node.args, rest)


def _statement(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Assign) and all(isinstance(each, ast.Attribute) for each in node.targets):
        yield "stale", ast.Pass()
    elif (isinstance(node, ast.Assign) and all(isinstance(each, ast.Subscript) for each in node.targets)) or (
        isinstance(node, ast.AugAssign | ast.Delete)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    ):
        yield "line", ast.Pass()
    elif isinstance(node, ast.If) and not node.orelse and isinstance(node.body[0], _LEAVES):
        yield "guard", ast.Pass()


def _other(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.comprehension):
        for number in range(len(node.ifs)):
            rest = [*node.ifs[:number], *node.ifs[number + 1 :]]
            yield "filter", ast.comprehension(node.target, node.iter, rest, node.is_async)
    elif isinstance(node, ast.IfExp):
        yield "choice", node.body
        yield "choice", node.orelse
    elif (
        isinstance(node, ast.List | ast.Tuple | ast.Set)
        and len(node.elts) > 1
        and isinstance(node.elts[-1], ast.Starred)
    ):
        new = ast.Set(node.elts[:-1]) if isinstance(node, ast.Set) else type(node)(node.elts[:-1], node.ctx)
        yield "part", new
