"""Tests that the generated pages are up to date, and that their examples are valid."""

import re
from pathlib import Path

import pulumi
import pytest

from components.monitoring.rules import alerts as rules
from tenancy import names
from tests.support.engine import build
from tests.support.healthy import ARGS, HEALTHY
from tests.support.paths import ROOT
from toolchain.pages import __main__ as pages
from toolchain.pages import alerts, metrics

PACKAGE = ROOT / "docs" / "reference" / "package"
MADE = pages.pages()


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.stem)
def test_a_page_is_as_the_code_makes_it(path: Path) -> None:
    assert path.read_text() == MADE[path], "run `make schema`"


def test_every_alert_is_on_the_page() -> None:
    assert set(alerts.alerts_of_examples(ROOT)) == {alert.name for alert in rules(ARGS)}


def test_every_series_is_on_the_page_with_the_labels_of_a_healthy_clusters() -> None:
    ours = {value for name, value in vars(names).items() if name.startswith(("METRIC_", "RECORDED_"))}
    assert ours == {*re.findall(r"^\| `([\w:]+)` \|", metrics.page(), re.MULTILINE)}
    listed = {name: set(each.labels) for _, served in metrics.AGENTS.values() for name, each in served.items()}
    shown = [re.fullmatch(r"(\w+)\{(.*)\}", series) for series in HEALTHY]
    labels = {found[1]: set(re.findall(r'(\w+)="', found[2])) for found in shown if found and found[1] in listed}
    assert len(labels) > 20
    by_prometheus = {"node", "instance", "job", "namespace", "pod", "container"}
    assert {name: more for name, found in labels.items() if (more := found - listed[name] - by_prometheus)} == {}


def test_the_example_of_the_platform_is_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    pulumi.runtime.set_all_config({"kubernetes:enableConfigMapMutable": "true"})
    (example,) = re.findall(r"```python\n(.*?)```", (PACKAGE / "platform.md").read_text(), re.DOTALL)
    graph = build(lambda: exec(example, {}))  # noqa: S102 (our own page)
    pulumi.runtime.set_all_config({})
    assert graph.exports["residents"]["llm"]["namespace"] == "chat"
