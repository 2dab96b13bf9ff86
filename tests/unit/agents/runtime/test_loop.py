"""Tests that a loop logs the start and the end of a problem."""

from collections.abc import Sequence

import pytest

from agents.runtime.errors import AgentError
from agents.runtime.loop import ProblemLog, keep_running
from tests.support.fake_cluster import Served


def logged(served: Served, problems: Sequence[str | None]) -> list[tuple[str, str]]:
    left = [*problems]

    def step() -> None:
        if not left:
            raise ValueError("a bug")
        if found := left.pop(0):
            raise AgentError(found)

    problem = ProblemLog(log=served.log(), failing="names stay as they were", recovered="names are up to date again")
    with pytest.raises(ValueError, match="a bug"):
        keep_running(step, problem, lambda: served.time.sleep(5))
    return [(line["level"], line["message"]) for line in served.lines()]


def test_a_problem_is_logged_when_it_changes_and_when_it_is_over(served: Served) -> None:
    assert logged(served, [None, "away", "away", "refused", None, None, "away"]) == [
        ("error", "names stay as they were: away"),
        ("error", "names stay as they were: refused"),
        ("info", "names are up to date again"),
        ("error", "names stay as they were: away"),
    ]
    assert served.time.slept == [5] * 7, "it pauses after each step"
