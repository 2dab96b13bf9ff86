"""A record across runs: of two writers one wins, and what cannot be read is not taken for empty."""

import pytest

from agents.kube.client import ApiError
from agents.kube.journal import Journal, JournalError, Record
from tenancy.names import JOURNAL_KEY
from tests.support.fake_cluster import SYSTEM, Fault, Served

NAME = "gpu-vram-watchdog-journal"
PATH = f"/api/v1/namespaces/{SYSTEM}/configmaps/{NAME}"


def journal(served: Served) -> Journal:
    return Journal(api=served.api(), namespace=SYSTEM, name=NAME)


@pytest.fixture
def declared(served: Served) -> Served:
    """As its component leaves it: without data."""
    served.cluster.objects[PATH] = {"metadata": {"name": NAME, "resourceVersion": "7"}}
    return served


def test_a_journal_that_nobody_wrote_is_empty(declared: Served) -> None:
    assert journal(declared).read() == Record(version="7", content={})


def test_what_a_run_writes_the_next_one_reads(declared: Served) -> None:
    first = journal(declared)
    written = first.write({"evictions": [1, 2]}, after=first.read())
    assert written is not None
    assert journal(declared).read() == written
    assert written.content == {"evictions": [1, 2]}
    again = journal(declared).write({}, after=written)
    assert again is not None
    assert journal(declared).read().content == {}


def test_of_two_who_read_the_same_one_writes(declared: Served) -> None:
    one, other = journal(declared), journal(declared)
    seen_by_one, seen_by_other = one.read(), other.read()
    assert one.write({"by": "one"}, after=seen_by_one) is not None
    assert other.write({"by": "other"}, after=seen_by_other) is None
    assert other.read().content == {"by": "one"}


def test_a_journal_that_went_is_not_written(declared: Served) -> None:
    record = journal(declared).read()
    del declared.cluster.objects[PATH]
    assert journal(declared).write({}, after=record) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7"])
def test_what_is_no_journal_is_no_empty_one(declared: Served, text: str) -> None:
    declared.cluster.objects[PATH]["data"] = {JOURNAL_KEY: text}
    with pytest.raises(JournalError, match=f"ConfigMap {NAME}, {JOURNAL_KEY}: is not a JSON object"):
        journal(declared).read()


@pytest.mark.parametrize("status", [403, 503])
def test_a_write_without_an_answer_is_an_error(declared: Served, status: int) -> None:
    declared.cluster.faults = [Fault("PATCH", PATH, status, times=9)]
    with pytest.raises(ApiError, match=str(status)):
        journal(declared).write({}, after=Record(version="7"))


def test_a_missing_journal_is_an_error(served: Served) -> None:
    with pytest.raises(ApiError, match="404"):
        journal(served).read()
