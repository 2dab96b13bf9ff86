"""Configures all tests."""

import os
import signal
import threading
from collections.abc import Generator

import hypothesis
import pytest

from tests.support import search, skips

pytest_plugins = (
    "tests.support.fixtures",
    "tests.support.project",
)

# Hypothesis has no deadline, because a busy machine slows down any code. Hypothesis always uses the same examples,
# because a new example could fail after an unrelated change. Only tests with the mark `search` use new random examples.
hypothesis.settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "search: tries cases at random, few by default (tests/support/search.py)")
    search.choose_seed()  # The workers start later, and inherit the seed.
    os.environ.setdefault("GOGC", "400")  # This value saves CPU time of Go programs, and costs host memory.
    _hear_interrupts()


def _hear_interrupts() -> None:
    """Restores the default handler of SIGINT.

    A shell starts background programs with SIGINT ignored, and child processes inherit this setting. With this setting,
    programs that tests interrupt would never end.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _judge_skip(report)
    if report.failed and item.get_closest_marker("search"):
        report.sections.append(("the search's seed", f"{search.SEED}={search.seed()} repeats it"))
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
