import io
import json
from pathlib import Path

import pytest

from agents.guard.processes import STALE_SECONDS, YOUNG_SECONDS, ProcessIndex
from agents.node import cgroup
from agents.node.cgroup import Container, ProcError
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from tests.support.fake_cluster import FakeTime

UID, OTHER = "0aaf3b32-5b3c-4a2e-9b54-0b5bba3ea9d4", "1bbf3b32-5b3c-4a2e-9b54-0b5bba3ea9d4"
ID = "a" * 64
POD, OTHER_POD = Container(UID, ID), Container(OTHER, ID)
PROBLEMS = ItemProblems(log=Log("guard", io.StringIO()))


def put(proc: Path, pid: int, path: str) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "cgroup").write_text(f"0::{path}\n")


def in_pod(uid: str) -> str:
    return f"/kubepods/burstable/pod{uid}/{ID}"


def grown(index: ProcessIndex, now: FakeTime) -> None:
    index.scan(PROBLEMS)
    now.seconds += YOUNG_SECONDS
    index.scan(PROBLEMS)


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
    assert index.scan(PROBLEMS) == {7: POD}


def test_a_process_that_joins_its_container_while_young_is_found(index: ProcessIndex, now: FakeTime) -> None:
    put(index.proc, 7, "/")
    assert index.scan(PROBLEMS) == {}
    now.seconds += YOUNG_SECONDS - 0.5
    put(index.proc, 7, in_pod(UID))
    assert index.scan(PROBLEMS) == {7: POD}


def test_a_number_that_another_process_has_now_is_found_out(index: ProcessIndex, now: FakeTime) -> None:
    put(index.proc, 7, in_pod(UID))
    grown(index, now)
    put(index.proc, 7, in_pod(OTHER))
    now.seconds += STALE_SECONDS
    assert index.scan(PROBLEMS) == {7: OTHER_POD}


def test_a_process_whose_control_group_cannot_be_read_is_reported_once_and_hides_no_other(
    index: ProcessIndex, now: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(index.proc, 7, in_pod(UID))
    put(index.proc, 8, in_pod(OTHER))
    read = cgroup.container_of

    def refused(pid: int, proc: Path) -> Container | None:
        if pid == 8:
            raise ProcError("process 8: its control group cannot be read: Permission denied")
        return read(pid, proc)

    output = io.StringIO()
    problems = ItemProblems(log=Log("guard", output))
    monkeypatch.setattr(cgroup, "container_of", refused)
    for _ in range(3):
        assert index.scan(problems) == {7: POD}
        assert problems.counts() == {"process": 1}
    (line,) = output.getvalue().splitlines()
    assert "the process 8 cannot be judged: process 8: its control group" in json.loads(line)["message"]
    monkeypatch.undo()
    assert index.scan(problems) == {7: POD, 8: OTHER_POD}
    assert not problems.counts()
