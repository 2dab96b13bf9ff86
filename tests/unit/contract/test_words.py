"""Tests that no package has more unclear sentences than its limit.

Each package's limit must be close to its real number of unclear sentences.
"""

import json
from pathlib import Path

import pytest

from tests import words
from tests.support.paths import ROOT

FOUND = [each for path in words.files() for each in words.unclear(path)]
COUNTED = words.counted(FOUND)
LIMITS: dict[str, int] = json.loads(words.LIMITS.read_text())
# The gap lets two parallel changes pass without lowering a limit.
LEEWAY = 60


def age(found: words.Unclear) -> float:
    return -(ROOT / found.file).stat().st_mtime


@pytest.mark.parametrize("package", sorted({*COUNTED, *LIMITS}))
def test_no_package_has_more_unclear_sentences_than_its_limit(package: str) -> None:
    number, limit = COUNTED.get(package, 0), LIMITS.get(package, 0)
    newest = sorted((each for each in FOUND if each.package == package), key=age)[:20]
    listed = "\n".join(f"{each.file}: {each.reason}: {each.sentence}" for each in newest)
    assert number <= limit, f"write {number - limit} of these in plain words, the newest files first:\n{listed}"
    assert limit - number <= LEEWAY, "lower the limits: python -m tests.words --lower"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# X\n\nWhat the node has.\n", "begins with a question word and asks nothing"),
        ("The pod whose seat waits.\n", "who is for people"),
        ("The log says why.\n", "software that speaks or hears"),
        ("No pod starts without a budget.\n", "a double negative"),
        (f"{'word ' * 26}\n", "over 25 words"),
        ("| a | It is read anew. |\n", "an old word"),
    ],
)
def test_an_unclear_sentence_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    assert [each.reason for each in words.unclear(page)] == [reason]


def test_code_links_and_questions_are_clear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("Who waits? `kubectl gpumem who` shows it.\n\n```text\nWhat it said\n```\n[page](told.md)\n")
    module = tmp_path / "module.py"
    module.write_text('"""Returns the MiB."""\n\nWHO = "told"  # in MiB\n')
    assert [*words.unclear(module)] == []
    assert [each.sentence for each in words.unclear(page)] == []
