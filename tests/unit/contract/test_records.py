"""Whoever cites a record or an ADR cites a page that is there."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

RECORDS = ROOT / "docs" / "records"
# Everything in the checkout but hidden folders (.venv, .toolchain, .state), which are not the project's text.
TEXTS = {
    str(path.relative_to(ROOT)): path
    for top in ROOT.iterdir()
    if not top.name.startswith(".") or top.name == ".github"
    for path in ([top] if top.is_file() else top.rglob("*"))
    if path.suffix in (".py", ".md", ".yaml", ".yml", ".json", ".toml")
}


def pages(folder: Path) -> dict[str, list[str]]:
    """Pages by number."""
    found: dict[str, list[str]] = {}
    for page in folder.glob("[0-9][0-9][0-9][0-9]-*.md"):
        found.setdefault(page.name[:4], []).append(page.name)
    return found


def cited(pattern: str) -> set[str]:
    """What the pattern's group finds in any tracked text."""
    return {number for path in TEXTS.values() if path.is_file() for number in re.findall(pattern, path.read_text())}


def test_each_record_that_is_cited_has_a_page_and_each_page_is_cited() -> None:
    numbers = cited(r"\b[Rr]ecord[ _](\d{4})\b") | cited(r"_record_(\d{4})")
    assert numbers == set(pages(RECORDS))


def test_each_adr_that_is_cited_by_name_has_a_page() -> None:
    numbers = cited(r"\bADR (\d{4})\b")
    assert numbers
    assert numbers <= set(pages(ROOT / "docs" / "adr"))


@pytest.mark.parametrize("folder", ["records", "adr"])
def test_the_index_lists_each_page_once_and_no_two_pages_share_a_number(folder: str) -> None:
    numbered = pages(ROOT / "docs" / folder)
    listed = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\)", (ROOT / "docs" / folder / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted((number, name) for number, names in numbered.items() for name in names)
    assert all(len(names) == 1 for names in numbered.values())


def test_nothing_cites_a_record_by_a_name_that_is_not_in_the_repository() -> None:
    former = re.compile(r"\bseed[ _]00\d", re.IGNORECASE)
    assert [name for name, path in TEXTS.items() if path.is_file() and former.search(path.read_text())] == []
