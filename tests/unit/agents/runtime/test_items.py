"""Tests that an error of one item does not stop the work on other items."""

import io
import json
from collections.abc import Callable

import pytest

from agents.kube.errors import ApiError
from agents.runtime.errors import AgentError, StoppedError
from agents.runtime.items import ItemProblems, Unjudged, judged
from agents.runtime.log import Log


def raising(error: BaseException) -> Callable[[], int]:
    def judge() -> int:
        raise error

    return judge


def endless() -> int:
    return endless()


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        (raising(AgentError("spec.x: is not a name")), "spec.x: is not a name"),
        (raising(ValueError("'x' is not a quantity")), "'x' is not a quantity"),
        (raising(KeyError("uid")), "KeyError: 'uid'"),
        (raising(MemoryError()), "MemoryError: "),
        (raising(OverflowError("too large")), "OverflowError: too large"),
        (raising(ValueError()), "ValueError"),
        (raising(AgentError("\x1b[2J é \ud800")), "\\x1b[2J \\xe9 \\ud800"),
        (raising(ApiError("GET /x", 403, "Forbidden", "no")), "GET /x: 403 Forbidden: no"),
    ],
)
def test_whatever_an_item_raises_is_its_reason(judge: Callable[[], int], why: str) -> None:
    found = judged(judge)
    assert isinstance(found, Unjudged)
    assert found.why == why


@pytest.mark.parametrize("error", [ApiError("GET /x", None, "NoAnswer", "reset"), StoppedError(), KeyboardInterrupt()])
def test_what_ends_the_whole_pass_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)):
        judged(raising(error))


def test_a_problem_is_logged_when_it_begins_and_when_it_changes() -> None:
    output = io.StringIO()
    problems = ItemProblems(log=Log("test", output))
    for _ in range(3):
        assert problems.judge("pod", "n/p", raising(ValueError("bad")), lambda why: 7) == 7
    problems.relist()
    assert problems.counts() == {}
    problems.note("pod", "n/p", "bad")
    problems.note("node", "a", "worse")
    assert problems.counts() == {"pod": 1, "node": 1}
    assert problems.judge("pod", "n/p", lambda: 1, lambda why: None) == 1
    assert problems.counts() == {"node": 1}
    problems.note("pod", "n/p", "bad in another way")
    messages = [json.loads(line)["message"] for line in output.getvalue().splitlines()]
    assert messages == [
        "the pod n/p cannot be judged: bad",
        "the node a cannot be judged: worse",
        "the pod n/p cannot be judged: bad in another way",
    ]


def test_an_item_without_any_lesser_result_is_left_out() -> None:
    problems = ItemProblems(log=Log("test", io.StringIO()))
    assert problems.judge("pod", "n/p", raising(KeyError()), lambda why: endless()) is None
