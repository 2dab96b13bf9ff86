"""Configures all tests."""

import os
import signal
import threading
from collections.abc import Generator

import pytest

from tests.support import search, skips
from tests.support.paths import ROOT

pytest_plugins = (
    "tests.support.fixtures",
    "tests.support.project",
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "search: tries cases at random, few by default (tests/support/search.py)")
    search.prepare()  # The workers of pytest start later, and inherit the seed from this process.
    os.environ["PATH"] += f"{os.pathsep}{ROOT / '.toolchain' / 'bin'}"
    os.environ.setdefault("GOGC", "400")  # A high GOGC saves CPU time of Go programs, but costs host memory.
    _hear_interrupts()


def _hear_interrupts() -> None:
    """A shell starts background programs with SIGINT ignored, and child processes inherit this."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.search)
        if item.get_closest_marker("search"):
            item.add_marker(pytest.mark.no_cover)  # Coverage would double what they cost.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _judge_skip(report)
    if report.failed and item.get_closest_marker("search"):
        report.sections.append(("the search's seed", search.how_to_repeat()))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _judge_skip(report)
    return report


def _judge_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail") or not skips.is_ci(os.environ):
        return
    assert isinstance(report.longrepr, tuple), report.longrepr
    *_, reason = report.longrepr
    if not skips.is_allowed(reason):
        report.outcome = "failed"
        report.longrepr = skips.refusal(reason)
