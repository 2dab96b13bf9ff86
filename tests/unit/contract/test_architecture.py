"""docs/architecture.md, "Where do I change ...?": each row names a file and a symbol that are there."""

import ast
import re

import pytest

from tests.support.paths import ROOT

ROW = re.compile(r"^\| (?P<question>[^|`]+) \| `(?P<file>[^`]+)` \| `(?P<symbol>\w+)` \|$", re.MULTILINE)


def _section() -> str:
    text = (ROOT / "docs" / "architecture.md").read_text()
    return text.partition("## Where do I change ...?")[2].partition("\n## ")[0]


ROWS = [match.groupdict() for match in ROW.finditer(_section())]


def _defined(path: str) -> set[str]:
    """What a module defines at its top level."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


def test_the_table_has_at_least_fifteen_rows_and_all_are_read() -> None:
    lines = [line for line in _section().splitlines() if line.startswith("| ") and "`" in line]
    assert len(ROWS) == len(lines) >= 15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["question"].strip())
def test_what_a_row_names_is_there(row: dict[str, str]) -> None:
    assert row["symbol"] in _defined(row["file"])


def test_no_question_has_two_answers() -> None:
    questions = [row["question"] for row in ROWS]
    assert len(set(questions)) == len(questions)
