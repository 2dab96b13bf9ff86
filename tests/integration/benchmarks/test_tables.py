"""The tables in the docs are what the simulations show: seconds each, so they are not among the unit tests."""

from tests.benchmarks import gates, watchdog
from tests.support.paths import ROOT


def test_the_gates_are_compared_as_they_are() -> None:
    assert "\n".join(gates.table()) in (ROOT / "docs" / "benchmarks.md").read_text()


def test_the_two_watchdogs_are_compared_as_they_are() -> None:
    assert watchdog.table() in (ROOT / "docs" / "watchdog.md").read_text(encoding="utf-8")
