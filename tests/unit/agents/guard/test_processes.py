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


def grown(index: ProcessIndex, now: FakeTime) -> None:
    """Makes all current processes older than YOUNG_SECONDS."""
    index.scan()
    now.seconds += YOUNG_SECONDS
    index.scan()


@pytest.fixture
def now() -> FakeTime:
    return FakeTime()


@pytest.fixture
def index(tmp_path: Path, now: FakeTime) -> ProcessIndex:
    return ProcessIndex(now.clock(), tmp_path)


def test_processes_of_containers_are_found_and_others_are_not(index: ProcessIndex) -> None:
    put(index.proc, 7, in_pod(UID))
    put(index.proc, 8, "/system.slice/kubelet.service")
    (index.proc / "sys").mkdir()
    assert index.scan() == {7: POD}


def test_a_process_that_joins_its_container_while_young_is_found(index: ProcessIndex, now: FakeTime) -> None:
    """A container's first process begins in runc's control group, and joins the container's control group later."""
    put(index.proc, 7, "/")
    assert index.scan() == {}
    now.seconds += YOUNG_SECONDS - 0.5
    put(index.proc, 7, in_pod(UID))
    assert index.scan() == {7: POD}


def test_a_process_that_has_been_there_for_a_while_is_not_read_each_time(index: ProcessIndex, now: FakeTime) -> None:
    put(index.proc, 7, in_pod(UID))
    grown(index, now)
    (index.proc / "7" / "cgroup").write_text("unreadable")
    assert index.scan() == {7: POD}


def test_a_number_that_another_process_has_now_is_found_out(index: ProcessIndex, now: FakeTime) -> None:
    put(index.proc, 7, in_pod(UID))
    grown(index, now)
    put(index.proc, 7, in_pod(OTHER))
    now.seconds += STALE_SECONDS
    assert index.scan() == {7: OTHER_POD}


def test_a_process_that_was_gone_meanwhile_counts_as_new(index: ProcessIndex, now: FakeTime) -> None:
    put(index.proc, 7, in_pod(UID))
    grown(index, now)
    (index.proc / "7" / "cgroup").unlink()
    (index.proc / "7").rmdir()
    assert index.scan() == {}
    put(index.proc, 7, in_pod(OTHER))
    assert index.scan() == {7: OTHER_POD}
