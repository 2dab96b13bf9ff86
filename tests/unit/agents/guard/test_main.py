"""Tests the guard's passes and reports. tests/integration/kernel tests the guard with real processes."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread, current_thread

import pytest

from agents.guard.follow import AdjustmentRule, PodWatcher, ProtectedPod
from agents.guard.main import STALE_SECONDS, ProcessGuard, Settings, rule_of
from agents.guard.oom_score_adj import AdjOutcome, OomScoreError
from agents.kube.events import Event
from agents.node.cgroup import Container
from agents.runtime import exposition
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from tenancy import names
from tests.support.fake_cluster import FakeTime

LLM = ProtectedPod(namespace="inference", name="llm-0", uid="uid-llm", adj=474)
DB = ProtectedPod(namespace="signoz", name="db", uid="uid-db", adj=900)
REFUSAL = "oom_score_adj cannot be lowered to 474: Permission denied"


@dataclass
class Node:
    processes: dict[int, tuple[str, int]] = field(default_factory=dict)
    container: str = "c"
    stubborn: set[int] = field(default_factory=set)
    error: Exception = field(default_factory=lambda: OomScoreError(REFUSAL))
    broken: bool = False

    def scan(self, problems: ItemProblems) -> Mapping[int, Container]:
        if self.broken:
            raise OSError("there is no /proc")
        return {pid: Container(uid, self.container) for pid, (uid, _) in self.processes.items()}

    def hold(self, pid: int, container: Container, adj: int) -> AdjOutcome:
        uid, value = self.processes[pid]
        assert container.pod_uid == uid
        if value <= adj:
            return AdjOutcome.LOW
        if pid in self.stubborn:
            raise self.error
        self.processes[pid] = (uid, adj)
        return AdjOutcome.LOWERED


@dataclass
class Guarded:
    node: Node = field(default_factory=Node)
    now: FakeTime = field(default_factory=FakeTime)
    output: io.StringIO = field(default_factory=io.StringIO)
    told: list[tuple[str, str, str, bool]] = field(default_factory=list)
    guard: ProcessGuard = field(init=False)

    def __post_init__(self) -> None:
        nobody = AdjustmentRule(members=frozenset(), allocatable_mib=1000, memory_mib=1000)
        log = Log("guard", self.output)
        follower = PodWatcher(api=None, node="node-4", rule=nobody, clock=self.now.clock(), log=log)  # type: ignore[arg-type]
        follower.last = {"uid-llm": LLM, "uid-db": DB}
        self.guard = ProcessGuard(
            scan=self.node.scan,
            hold=self.node.hold,
            follower=follower,
            tell=self.tell,
            clock=self.now.clock(),
            log=Log("guard", self.output),
        )

    def tell(self, event: Event) -> None:
        self.told.append((event.regarding.name, event.reason, event.note, event.warning))

    def lines(self) -> list[str]:
        return [json.loads(line)["message"] for line in self.output.getvalue().splitlines()]

    def value(self, name: str, pod: str) -> float:
        status, body = self.guard.metrics()
        assert status == 200, body
        (found,) = (s for s in exposition.parse(body) if s.name == name and s.labels["pod"] == pod)
        return found.value


@pytest.fixture
def guarded() -> Guarded:
    return Guarded()


def test_every_process_of_a_protected_pod_is_held_at_its_pods_value_and_no_other(guarded: Guarded) -> None:
    others = {10: ("uid-vm", 1000), 11: ("uid-web", 1000)}
    guarded.node.processes = {7: ("uid-llm", 869), 8: ("uid-llm", 1000), 9: ("uid-db", 920), **others}
    guarded.guard.pass_once()
    assert guarded.node.processes == {7: ("uid-llm", 474), 8: ("uid-llm", 474), 9: ("uid-db", 900), **others}


def test_a_pod_is_told_what_was_set_and_the_log_at_each_start_of_a_container(guarded: Guarded) -> None:
    for container in ("first", "second"):
        guarded.node.container, guarded.node.processes = container, {7: ("uid-llm", 869)}
        guarded.guard.pass_once()
    note = "the oom_score_adj of its processes is kept at 474: a disposable pod is killed first"
    assert guarded.told == [("llm-0", "OomScoreLowered", note, False)] * 2
    assert guarded.lines() == ["lowered", "lowered"]


def test_a_container_whose_processes_are_lowered_again_and_again_is_told_of_once(guarded: Guarded) -> None:
    """Some programs raise their own oom_score_adj."""
    for pid in (7, 8, 9):
        guarded.node.processes = {6: ("uid-llm", 474), pid: ("uid-llm", 869)}
        guarded.guard.pass_once()
        assert guarded.node.processes[pid] == ("uid-llm", 474)
        guarded.guard.pass_once()
    assert len(guarded.told) == 1
    assert guarded.lines() == ["lowered"]


def test_a_pod_is_told_once_that_it_could_not_be_done(guarded: Guarded) -> None:
    guarded.node.processes, guarded.node.stubborn = {7: ("uid-llm", 869), 8: ("uid-llm", 869)}, {7, 8}
    guarded.guard.pass_once()
    guarded.guard.pass_once()
    assert guarded.told == [("llm-0", "OomScoreNotLowered", REFUSAL, True)]
    assert guarded.lines() == [REFUSAL]
    guarded.node.stubborn = set()
    guarded.guard.pass_once()
    guarded.node.processes, guarded.node.stubborn = {9: ("uid-llm", 869)}, {9}
    guarded.guard.pass_once()
    assert [reason for _, reason, _, _ in guarded.told[1:]] == ["OomScoreLowered", "OomScoreNotLowered"]


@pytest.mark.parametrize(
    "error", [OSError("I/O error"), ValueError("not a number"), OverflowError("too large"), RecursionError("too deep")]
)
def test_an_error_of_one_process_leaves_all_other_processes_protected(guarded: Guarded, error: Exception) -> None:
    guarded.node.processes, guarded.node.stubborn = {7: ("uid-llm", 869), 8: ("uid-llm", 869), 9: ("uid-db", 950)}, {7}
    guarded.node.error = error
    guarded.guard.pass_once()
    assert (guarded.node.processes[8][1], guarded.node.processes[9][1]) == (LLM.adj, DB.adj)
    assert guarded.value(names.METRIC_GUARD_UNHELD, "llm-0") == 1
    ((_, _, note, _),) = [told for told in guarded.told if told[1] == names.EVENT_UNGUARDED]
    assert str(error) in note


def test_a_pass_that_fails_is_no_success_and_the_next_one_recovers(guarded: Guarded) -> None:
    guarded.node.broken = True
    guarded.guard.pass_once()
    guarded.guard.pass_once()
    assert guarded.guard.metrics() == (503, "there is no /proc\n")
    assert guarded.lines() == ["no pass: there is no /proc"]
    guarded.node.broken = False
    guarded.guard.pass_once()
    assert guarded.guard.metrics()[0] == 200
    assert guarded.lines()[-1] == "passes again"


def test_passes_that_have_stopped_make_metrics_and_health_fail(guarded: Guarded) -> None:
    guarded.guard.pass_once()
    guarded.now.seconds = STALE_SECONDS + 1
    assert guarded.guard.metrics() == (503, "the last pass was 16 s ago\n")
    assert guarded.guard.health() == (503, "the last pass was 16 s ago\n")


def test_a_guard_that_has_lost_one_of_its_threads_is_to_be_restarted(guarded: Guarded) -> None:
    guarded.guard.pass_once()
    running, ended = current_thread(), Thread(target=int, name="following pods")
    ended.start()
    ended.join()
    guarded.guard.threads = (running,)
    assert guarded.guard.health() == (200, "ok\n")
    guarded.guard.threads = (running, ended)
    assert guarded.guard.health() == (503, "following pods has ended with an error\n")
    assert guarded.guard.metrics()[0] == 503


@pytest.mark.parametrize(("swap", "swap_mib"), [("", 0), ("SwapTotal: 0 kB\n", 0), ("SwapTotal: 8388604 kB\n", 8191)])
def test_the_rule_knows_the_machines_own_memory_and_swap(tmp_path: Path, swap: str, swap_mib: int) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal:       64000123 kB\nMemFree:        1 kB\n{swap}")
    settings = Settings(
        port=1, node_name="n", pod_name="p", protected=("a/b",), allocatable_mib=61952, victim_request_mib=64
    )
    assert rule_of(settings, tmp_path) == AdjustmentRule(
        members=frozenset({"a/b"}), allocatable_mib=61952, memory_mib=62500, victim_request_mib=64, swap_mib=swap_mib
    )
