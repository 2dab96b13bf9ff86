"""What the docs tell people to type exists, and what they link to is there."""

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: str(doc.relative_to(ROOT)))
def test_every_make_target_in_the_docs_exists(doc: Path) -> None:
    typed = " ".join(re.findall(r"`[^`]+`|^(?:    |```).*$|^make .*$", doc.read_text(), re.M))
    named = set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", typed))
    assert named <= targets()


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: str(doc.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(doc: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", doc.read_text()) if "://" not in link]
    missing = [link for link in links if not (doc.parent / link.partition("#")[0]).exists()]
    assert missing == []


def anchors(doc: Path) -> set[str]:
    """Of the headings, as GitHub and GitLab make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", doc.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: str(doc.relative_to(ROOT)))
def test_every_link_to_a_heading_finds_it(doc: Path) -> None:
    links = re.findall(r"\]\(([^)\s:]*)#([^)\s]+)\)", doc.read_text())
    assert [(to, anchor) for to, anchor in links if anchor not in anchors(doc.parent / to if to else doc)] == []


def test_the_readme_names_the_three_commands_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make preview" in readme
    assert "make test" in readme
    assert "make demo" in readme
    assert "make test" in (ROOT / ".ci" / "run").read_text()
