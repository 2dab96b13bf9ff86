"""The table of attacks: each is tried by a test that exists, and none is left open."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "security.md"


def rows() -> dict[str, list[str]]:
    """The cells of each numbered row: attack, what stops it, its tests."""
    lines = re.findall(r"^\| ([TH]\d+) \| (.+?) \| (.*?) \|(.*)\|$", PAGE.read_text(), re.M)
    return {number: [attack, stops, tests] for number, attack, stops, tests in lines}


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def named(text: str) -> list[str]:
    """Test ids: path::function."""
    return re.findall(r"`(tests/[\w/]+\.py::\w+)`", text)


def test_every_attack_is_there_once() -> None:
    numbers = re.findall(r"^\| ([TH]\d+) \|", PAGE.read_text(), re.M)
    assert [each for each in numbers if each.startswith("T")] == [f"T{number}" for number in range(1, 17)]
    assert len(numbers) == len(set(numbers)) == len(rows())


@pytest.mark.parametrize("row", sorted(rows()))
def test_an_attack_is_stopped_and_tried(row: str) -> None:
    _, stops, tests = rows()[row]
    assert stops not in ("", "open"), "say what stops it"
    assert named(tests), "name the test that tries it, as `path::test_function`"


@pytest.mark.parametrize("test", sorted(set(named(PAGE.read_text()))))
def test_every_test_that_the_page_names_exists(test: str) -> None:
    path, _, function = test.partition("::")
    assert (ROOT / path).is_file()
    assert function in functions(ROOT / path)


def test_the_page_names_tests_in_that_form_alone() -> None:
    """Else the check above would pass over them."""
    text = PAGE.read_text()
    assert len(re.findall(r"tests/\S*::", text)) == len(named(text))
