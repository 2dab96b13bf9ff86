"""Configures all tests."""

import os
import signal
import threading
from collections.abc import Generator

import hypothesis
import pytest

from tests.support import search, skips
from tests.support.paths import ROOT

pytest_plugins = (
    "tests.support.fixtures",
    "tests.support.project",
)

# Hypothesis has no deadline, because busy machines are slow. It always uses the same examples, so that a test does not
# fail by chance. Tests with the mark `search` use new examples.
hypothesis.settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "search: tries cases at random, few by default (tests/support/search.py)")
    search.choose_seed()  # The workers of pytest start later, and inherit the seed from this process.
    os.environ["PATH"] += f"{os.pathsep}{ROOT / '.toolchain' / 'bin'}"
    os.environ.setdefault("GOGC", "400")  # A high GOGC saves CPU time of Go programs, but costs host memory.
    _hear_interrupts()


def _hear_interrupts() -> None:
    """A shell starts background programs with SIGINT ignored, and child processes inherit this."""
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
