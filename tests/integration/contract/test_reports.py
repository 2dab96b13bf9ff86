"""What a run of the tests reports beyond their outcomes: refused skips in CI, and the seed of a search that failed."""

import pytest

pytest_plugins = ("pytester",)

CONFTEST = "from tests.conftest import *\n"
TESTS = """
import pytest

def test_without_a_gpu():
    pytest.skip("NO NVIDIA GPU: not compared")

def test_without_a_program():
    pytest.skip("promtool is not installed")

@pytest.mark.skipif(True, reason="some kernel")
def test_marked():
    pass

@pytest.mark.xfail(reason="known")
def test_expected_to_fail():
    assert False

@pytest.mark.search
def test_search():
    pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, request: pytest.FixtureRequest) -> pytest.Pytester:
    pytester.makeini(f"[pytest]\naddopts = -p no:cacheprovider -rfEs\npythonpath = {request.config.rootpath}\n")
    pytester.makeconftest(CONFTEST)
    return pytester


@pytest.mark.parametrize(("ci", "refused"), [("", False), ("false", False), ("true", True)])
def test_in_ci_a_skip_fails_unless_its_reason_is_listed(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, refused: bool
) -> None:
    monkeypatch.setenv("CI", ci)
    project.makepyfile(TESTS)
    done = project.runpytest_subprocess()
    expected = {
        "passed": 1,
        "xfailed": 1,
        "skipped": 1 if refused else 3,
        **({"failed": 1, "errors": 1} if refused else {}),
    }
    done.assert_outcomes(**expected)
    done.stdout.fnmatch_lines(["SKIPPED * NO NVIDIA GPU: not compared"])
    if refused:
        done.stdout.fnmatch_lines(["*promtool is not installed", "In CI a skip fails unless tests/support/skips.py*"])


def test_a_module_that_skips_itself_fails_in_ci(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    project.makepyfile('import pytest\npytest.skip("no reason", allow_module_level=True)\n')
    done = project.runpytest_subprocess()
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*no reason", "In CI a skip fails unless tests/support/skips.py*"])


def test_the_seed_of_a_search_that_fails_is_in_its_report(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile(
        """
import pytest
from tests.support import search

@pytest.mark.search
def test_it():
    assert search.dice("it").random() == 0
"""
    )
    monkeypatch.setenv("GPU_TENANCY_SEED", "4711")
    given = project.runpytest_subprocess()
    given.assert_outcomes(failed=1)
    given.stdout.fnmatch_lines(["*GPU_TENANCY_SEED=4711 repeats it"])
    monkeypatch.delenv("GPU_TENANCY_SEED")
    fresh = [project.runpytest_subprocess().stdout.str() for _ in range(2)]
    seeds = [line for text in fresh for line in text.splitlines() if "GPU_TENANCY_SEED=" in line]
    assert len(set(seeds)) == 2
