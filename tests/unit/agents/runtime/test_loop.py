"""Loops that never end, and what they log."""

from collections.abc import Sequence

import pytest

from agents.runtime.errors import AgentError
from agents.runtime.loop import ProblemLog, keep_running
from tests.support.fake_cluster import Served


class EnoughError(Exception):
    """Ends what never ends."""


def logged(served: Served, problems: Sequence[str | None]) -> list[tuple[str, str]]:
    """What a loop logs whose steps have these problems."""
    left = [*problems]

    def step() -> None:
        if not left:
            raise EnoughError
        if found := left.pop(0):
            raise AgentError(found)

    problem = ProblemLog(log=served.log(), failing="names stay as they were", recovered="names are up to date again")
    with pytest.raises(EnoughError):
        keep_running(step, problem, lambda: served.time.sleep(5))
    return [(line["level"], line["message"]) for line in served.lines()]


def test_a_problem_is_logged_when_it_changes_and_when_it_is_over(served: Served) -> None:
    assert logged(served, [None, "away", "away", "refused", None, None, "away"]) == [
        ("error", "names stay as they were: away"),
        ("error", "names stay as they were: refused"),
        ("info", "names are up to date again"),
        ("error", "names stay as they were: away"),
    ]


def test_it_pauses_after_each_step_also_after_one_that_failed(served: Served) -> None:
    logged(served, [None, "away", None])
    assert served.time.slept == [5, 5, 5]


def test_an_error_that_nobody_can_answer_ends_the_loop(served: Served) -> None:
    problem = ProblemLog(log=served.log(), failing="", recovered="")

    def step() -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        keep_running(step, problem)
