"""Tests how tests/mutants draws mutants and switches them on."""

import ast
import re
from types import SimpleNamespace

import pytest

from tests.mutants import hook, judged
from tests.mutants.places import KINDS, Mutant, mutants
from tests.mutants.sample import COUNT, PAGE, sample, shares, sources

CODE = "\n".join(
    (
        "def allowed(size, most, names):",
        "    if size < 0:",
        "        return 'negative'",
        "    kept = [name for name in names if name]",
        "    return 'yes' if size <= most and kept else 'no'",
    )
)


def _run(mutant: Mutant, switch: hook.Switch, *arguments: object) -> object:
    space = {"__mutants__": switch}
    exec(compile(hook.switched(CODE, [mutant]), "code", "exec"), space)  # noqa: S102 (the code above)
    return SimpleNamespace(**space).allowed(*arguments)


def _of(kind: str, after: str) -> Mutant:
    return next(each for each in mutants("code", CODE) if each.kind == kind and each.after == after)


CASES = {
    "bound": ("size < most", (5, 5, ["a"]), "yes", "no"),
    "guard": ("pass", (-1, 5, ["a"]), "negative", "yes"),
    "condition": ("size <= most", (5, 5, [""]), "no", "yes"),
    "filter": ("for name in names", (5, 5, [""]), "no", "yes"),
    "choice": ("'yes'", (6, 5, ["a"]), "no", "yes"),
    "connective": ("size <= most or kept", (6, 5, ["a"]), "no", "yes"),
    "number": ("1", (0, 5, ["a"]), "yes", "negative"),
}


@pytest.mark.parametrize("kind", CASES)
def test_a_mutant_changes_a_result_only_when_it_is_switched_on(kind: str) -> None:
    after, arguments, usual, wrong = CASES[kind]
    mutant = _of(kind, after)
    assert _run(mutant, hook.Switch(), *arguments) == usual
    assert _run(mutant, hook.Switch(mutant.id), *arguments) == wrong


@pytest.mark.parametrize("kind", ["bound", "guard", "filter", "choice"])
def test_the_switch_records_a_context_only_if_the_mutant_changes_something(kind: str) -> None:
    after, arguments, *_ = CASES[kind]
    mutant, switch = _of(kind, after), hook.Switch()
    switch.context = "same"
    _run(mutant, switch, 1, 5, ["a"])
    assert switch.seen.get(mutant.id, set()) == set()
    switch.context = "differs"
    _run(mutant, switch, *arguments)
    assert switch.seen[mutant.id] == {"differs"}


def test_every_drawn_mutant_compiles_and_every_kind_is_drawn() -> None:
    drawn = sample()
    assert len(drawn) == len({each.id for each in drawn}) == COUNT
    assert {each.kind for each in drawn} == {*KINDS}
    for each in drawn:
        compile(hook.switched(sources()[each.module], [each]), each.module, "exec")


def test_a_function_has_at_most_one_drawn_mutant() -> None:
    places = [(each.module, each.function) for each in sample()]
    assert len(places) == len({*places})


def test_the_largest_remainders_get_the_rest() -> None:
    assert shares({"a": 50, "b": 30, "c": 20}, 4) == {"a": 2, "b": 1, "c": 1}


def test_an_id_stays_the_same_when_another_line_is_added() -> None:
    before = {each.id for each in mutants("code", CODE)}
    after = {each.id for each in mutants("code", CODE.replace("    kept", "    size += 0\n    kept"))}
    assert before < after


def test_log_lines_text_and_annotations_have_no_mutants() -> None:
    code = "def f(self):\n    '''Adds 1.'''\n    self.log.info(f'{1}')\n    x: int | None = None\n"
    assert mutants("code", code) == []


def test_every_judged_mutant_is_on_the_page() -> None:
    text = PAGE.read_text()
    for mutant in {*judged.EQUIVALENT, *judged.NO_PROMISE}:
        assert re.search(rf"^\| {mutant} ", text, re.MULTILINE), f"{mutant} is not drawn: remove it from judged.py"


def test_the_imports_of_the_hook_come_before_the_agents() -> None:
    names = {node.module for node in ast.walk(ast.parse(PAGE.with_name("hook.py").read_text()))
             if isinstance(node, ast.ImportFrom)}  # fmt: skip
    assert not {name for name in names if name and name.split(".")[0] in ("agents", "tenancy")}
