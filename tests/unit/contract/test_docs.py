"""What the docs tell people to type exists, and what they link to is there."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
GENERATED = ("go.sum", "go.mod", ".lock", ".svg", ".png")
TRACKED = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
).stdout.split("\0")


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: str(doc.relative_to(ROOT)))
def test_every_make_target_in_the_docs_exists(doc: Path) -> None:
    named = set(
        re.findall(
            r"\bmake ([a-z][a-z-]*)", " ".join(re.findall(r"`[^`]+`|^(?:    |```).*$|^make .*$", doc.read_text(), re.M))
        )
    )
    assert named <= targets()


@pytest.mark.parametrize("doc", DOCS, ids=lambda doc: str(doc.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(doc: Path) -> None:
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", doc.read_text()) if "://" not in link]
    missing = [link for link in links if not (doc.parent / link.partition("#")[0]).exists()]
    assert missing == []


def test_the_readme_names_the_two_commands_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make preview" in readme
    assert "make test" in readme
    assert "make test" in (ROOT / ".ci" / "run").read_text()


def test_no_file_speaks_of_the_machine_it_was_written_on() -> None:
    """Paths of a developer's machine and unfinished work mean nothing to a user."""
    words = ["/".join(("", "work", "")), "/".join(("", "root", "")), "TO" + "DO", "FIX" + "ME"]
    texts = {name: ROOT / name for name in TRACKED if (ROOT / name).is_file() and not name.endswith(GENERATED)}
    found = [(name, word) for name, path in texts.items() for word in words if word in path.read_text(errors="ignore")]
    assert found == []
