from pathlib import Path

import pytest

from agents.guard.processes import STALE_SECONDS, YOUNG_SECONDS, ProcessIndex
from agents.node.cgroup import Container
from tests.support.fake_cluster import FakeTime

UID, OTHER = "0aaf3b32-5b3c-4a2e-9b54-0b5bba3ea9d4", "1bbf3b32-5b3c-4a2e-9b54-0b5bba3ea9d4"
ID = "a" * 64
POD, OTHER_POD = Container(UID, ID), Container(OTHER, ID)


def put(proc: Path, pid: int, path: str) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "cgroup").write_text(f"0::{path}\n")


def in_pod(uid: str) -> str:
    return f"/kubepods/burstable/pod{uid}/{ID}"


def grown(census: ProcessIndex, now: FakeTime) -> None:
    """All that is there now is young no more."""
    census.take()
    now.seconds += YOUNG_SECONDS
    census.take()


@pytest.fixture
def now() -> FakeTime:
    return FakeTime()


@pytest.fixture
def census(tmp_path: Path, now: FakeTime) -> ProcessIndex:
    return ProcessIndex(now.clock(), tmp_path)


def test_processes_of_containers_are_found_and_others_are_not(census: ProcessIndex) -> None:
    put(census.proc, 7, in_pod(UID))
    put(census.proc, 8, "/system.slice/kubelet.service")
    (census.proc / "sys").mkdir()
    assert census.take() == {7: POD}


def test_a_process_that_joins_its_container_while_young_is_found(census: ProcessIndex, now: FakeTime) -> None:
    """As runc's does: it begins in runc's own control group."""
    put(census.proc, 7, "/")
    assert census.take() == {}
    now.seconds += YOUNG_SECONDS - 0.5
    put(census.proc, 7, in_pod(UID))
    assert census.take() == {7: POD}


def test_a_process_that_has_been_there_for_a_while_is_not_read_each_time(census: ProcessIndex, now: FakeTime) -> None:
    put(census.proc, 7, in_pod(UID))
    grown(census, now)
    (census.proc / "7" / "cgroup").write_text("unreadable")
    assert census.take() == {7: POD}


def test_a_number_that_another_process_has_now_is_found_out(census: ProcessIndex, now: FakeTime) -> None:
    put(census.proc, 7, in_pod(UID))
    grown(census, now)
    put(census.proc, 7, in_pod(OTHER))
    now.seconds += STALE_SECONDS
    assert census.take() == {7: OTHER_POD}


def test_a_process_that_was_gone_meanwhile_counts_as_new(census: ProcessIndex, now: FakeTime) -> None:
    put(census.proc, 7, in_pod(UID))
    grown(census, now)
    (census.proc / "7" / "cgroup").unlink()
    (census.proc / "7").rmdir()
    assert census.take() == {}
    put(census.proc, 7, in_pod(OTHER))
    assert census.take() == {7: OTHER_POD}


def test_a_process_that_ends_while_it_is_read_is_left_out(census: ProcessIndex) -> None:
    (census.proc / "7").mkdir()
    assert census.take() == {}
