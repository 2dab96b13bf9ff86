"""Tests that the commands, files and tests in the docs exist, and that workflows pin their actions."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks import settings
from tenancy import names
from tests.support.imports import PACKAGES
from tests.support.paths import ROOT
from tests.support.prod import drop

DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
PAGE = re.compile(r"(?<![\w/.])docs/(?:adr/\d{4}|[\w/-]+\.(?:md|json)\b)")
# Files in these folders name pages of the docs.
NAMING = (*PACKAGES, "examples", "tests", "toolchain", ".github")
PREFIX = "gpu-tenancy:"
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(doc: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", doc.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("doc", [*DOCS, *WORKFLOWS], ids=name)
def test_every_make_target_exists(doc: Path) -> None:
    pattern = r"`[^`]+`|^(?:    |```).*$|^make .*$" if doc.suffix == ".md" else r"run: .*|^ +make .*"
    typed = " ".join(re.findall(pattern, doc.read_text(), re.M))
    assert set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", typed)) <= TARGETS


@pytest.mark.parametrize("doc", DOCS, ids=name)
def test_every_link_and_every_test_that_is_named_is_there(doc: Path) -> None:
    text = doc.read_text()
    for to, anchor in re.findall(r"\]\(([^)\s#:]*)#?([^)\s:]*)\)", text):
        target = doc.parent / to if to else doc
        assert target.exists(), to
        assert not anchor or anchor in anchors(target), f"{to}#{anchor}"
    for file, function in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert f"def {function}" in (ROOT / file).read_text(), f"{file}::{function}"


def test_every_page_that_the_code_names_is_there() -> None:
    suffixes = {".py", ".yaml", ".yml", ".json", ".toml", ""}
    ours = [*ROOT.glob("*"), *(file for folder in NAMING for file in (ROOT / folder).rglob("*"))]
    read = (file for file in ours if file.is_file() and file.suffix in suffixes and file.name != ".coverage")
    texts = {name(file): file.read_text() for file in read}
    named = {(file, page) for file, text in texts.items() for page in PAGE.findall(text)}
    assert len(named) > 20
    assert [each for each in sorted(named) if not [*ROOT.glob(f"{each[1]}*")]] == []


def test_every_page_has_its_place_on_the_site() -> None:
    placed = re.findall(r"[\w./-]+(?:\.md|/)(?=[\s,\]])", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    pages = {name(doc) for doc in DOCS}
    lost = [page for page in pages if page not in placed and f"{page.rpartition('/')[0]}/" not in placed]
    assert (lost, [page for page in placed if page.endswith(".md") and not (ROOT / page).exists()]) == ([], [])


def blocks(doc: Path) -> list[tuple[dict[str, Any], list[str]]]:
    texts = re.findall(r"^```yaml\n(.*?)^```", doc.read_text(), re.M | re.S)
    shown = [
        (yaml.load(text, yaml.CSafeLoader), re.findall(rf"^# Leave out {PREFIX}([\w.]*\w)", text, re.M))
        for text in texts
    ]
    return [
        (block, left_out)
        for block, left_out in shown
        if isinstance(block, dict) and any(str(key).startswith(PREFIX) for key in block)
    ]


def merged(below: Any, above: Any) -> Any:
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{key: merged(below.get(key), value) for key, value in above.items()}}


@pytest.mark.parametrize("doc", [doc for doc in DOCS if blocks(doc)], ids=name)
def test_settings_that_a_page_shows_are_settings(doc: Path) -> None:
    prod = yaml.load((ROOT / "Pulumi.prod.yaml").read_text(), yaml.CSafeLoader)["config"]
    for block, left_out in blocks(doc):
        shown = {key.removeprefix(PREFIX): value for key, value in merged(prod, block).items()}
        for path in left_out:
            drop(path.replace(".", " "))(shown)
        settings.parse(shown)


SERIES = {value for key, value in vars(names).items() if key.startswith("METRIC_")}


@pytest.mark.parametrize("doc", DOCS, ids=name)
def test_every_series_that_is_named_is_served(doc: Path) -> None:
    named = set(
        re.findall(r"`((?:gpu|memory_guard)_\w+_(?:bytes|seconds|total|processes|pods|seats))\b", doc.read_text())
    )
    assert named - SERIES == set()


def test_where_do_i_change_names_symbols_that_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Where do I change")[2]
    rows = re.findall(r"\| `([^`]+)` \| `(\w+)` \|$", text, re.MULTILINE)
    assert 20 < len(rows) <= 40
    missing = [row for row in rows if not re.search(rf"^(?:def|class) {row[1]}\b|^{row[1]}\b", source(row[0]), re.M)]
    assert missing == []


def source(path: str) -> str:
    return (ROOT / path).read_text()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_foreign_actions_are_pinned_by_commit_with_their_version_beside(workflow: Path) -> None:
    for action, rest in re.findall(r"uses: ([^.\s]\S*)(.*)", workflow.read_text()):
        assert re.fullmatch(r"[\w-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action + rest)


def test_a_job_that_runs_a_pull_requests_code_has_credentials_only_in_an_environment() -> None:
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for name, job in yaml.safe_load(workflow.read_text())["jobs"].items():
            used = set(re.findall(r"secrets\.[A-Z_]+", yaml.safe_dump(job)))
            assert not used or "environment" in job, f"{workflow.name}: {name} has {used}"
