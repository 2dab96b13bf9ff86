"""Tests that the journal keeps its content from one run to the next."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agents.kube.journal import Journal, JournalError
from tenancy.names import JOURNAL_KEY
from tests.support.fake_cluster import SYSTEM, Served

NAME = "gpu-vram-watchdog-journal"
PATH = f"/api/v1/namespaces/{SYSTEM}/configmaps/{NAME}"


def journal(served: Served) -> Journal:
    return Journal(api=served.api(), namespace=SYSTEM, name=NAME)


@pytest.fixture
def declared(served: Served) -> Served:
    served.cluster.objects[PATH] = {"metadata": {"name": NAME, "resourceVersion": "7"}}
    return served


def test_what_a_run_writes_the_next_one_reads(declared: Served) -> None:
    first = journal(declared)
    written = first.write({"evictions": [1, 2]}, after=first.read())
    assert written is not None
    assert journal(declared).read() == written
    assert written.content == {"evictions": [1, 2]}
    again = journal(declared).write({}, after=written)
    assert again is not None
    assert journal(declared).read().content == {}


class LostAnswer:
    def __init__(self, served: Served, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.answer, self.meanwhile, self.lost = served.cluster.answer, meanwhile, False
        served.cluster.answer = self  # type: ignore[method-assign, assignment]

    def __call__(self, method: str, url: str, body: Any) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        answered = self.answer(method, url, body)
        if method == "PATCH" and not self.lost:
            self.lost = True
            self.meanwhile()
            raise ConnectionAbortedError
        return answered


def test_a_write_whose_answer_is_lost_is_ours_though_its_retry_meets_a_conflict(declared: Served) -> None:
    record = journal(declared).read()
    LostAnswer(declared)
    written = journal(declared).write({"by": "us"}, after=record)
    assert written is not None
    assert written == journal(declared).read()


def test_the_same_content_from_another_writer_is_not_ours(declared: Served) -> None:
    """Two runs that decide in the same second write the same content."""
    one, other = journal(declared), journal(declared)
    seen = one.read()
    assert other.write({"by": "both"}, after=seen) is not None
    assert one.write({"by": "both"}, after=seen) is None


def test_a_journal_that_went_is_not_written(declared: Served) -> None:
    record = journal(declared).read()
    del declared.cluster.objects[PATH]
    assert journal(declared).write({}, after=record) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7"])
def test_what_is_no_journal_is_no_empty_one(declared: Served, text: str) -> None:
    declared.cluster.objects[PATH]["data"] = {JOURNAL_KEY: text}
    with pytest.raises(JournalError, match=f"ConfigMap {NAME}, {JOURNAL_KEY}: is not a JSON object"):
        journal(declared).read()
