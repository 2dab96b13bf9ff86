"""The pages of the package are current, and their examples are right."""

import re
from pathlib import Path

import pulumi
import pytest

import gpu_tenancy
from tests.support.engine import build
from tests.support.paths import ROOT
from toolchain import pages


@pytest.mark.parametrize("name", pages.COMPONENTS)
def test_a_page_says_what_the_code_says(name: str) -> None:
    text = (pages.PAGES / f"{name}.md").read_text()
    assert text == pages.page(name, text), "run `make schema`"


def test_each_component_has_a_page_each_page_is_listed_and_every_argument_has_its_text() -> None:
    offered = {name for name in gpu_tenancy.__all__ if not name.endswith("Args")}
    assert {component.__name__ for component in pages.COMPONENTS.values()} == offered
    assert {path.stem for path in pages.PAGES.glob("*.md")} == {*pages.COMPONENTS, "README", "languages"}
    index = (ROOT / "docs" / "reference" / "package" / "README.md").read_text()
    assert all(f"({name}.md)" in index for name in pages.COMPONENTS)
    rows = [line for path in pages.PAGES.glob("*.md") for line in path.read_text().splitlines() if line[:3] == "| `"]
    assert rows
    assert [row for row in rows if row.endswith("|  |") or " any |" in row] == []


def test_the_example_of_the_platform_is_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    pulumi.runtime.set_all_config({"kubernetes:enableConfigMapMutable": "true"})
    (example,) = re.findall(r"```python\n(.*?)```", (pages.PAGES / "platform.md").read_text(), re.DOTALL)
    graph = build(lambda: exec(example, {}))  # noqa: S102 (our own page)
    pulumi.runtime.set_all_config({})
    assert graph.exports["residents"]["llm"]["namespace"] == "chat"
