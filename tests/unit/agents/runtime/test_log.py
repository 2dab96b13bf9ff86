"""Tests that the agent writes each log line as JSON, without a delay."""

import io

import pytest

from agents.runtime.log import Log


class Stream(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.flushed = 0

    def write(self, text: str) -> int:
        self.writes.append(text)
        return len(text)

    def flush(self) -> None:
        self.flushed = len(self.writes)


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_each_line_is_one_flushed_write_so_that_those_of_two_threads_do_not_mix(stream: Stream) -> None:
    log = Log("guard", stream)
    log.info("x" * 10_000)
    assert stream.flushed == 1
    log.error("two\nlines")
    assert [text.count("\n") for text in stream.writes] == [1, 1]
    assert all(text.endswith("}\n") for text in stream.writes)
    assert stream.flushed == 2
