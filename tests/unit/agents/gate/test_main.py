"""Tests the requests of the gate with a fake API server, exporters and probes."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest

from agents.gate import main as gate
from agents.gate.config import GateConfig
from agents.gate.probes import HttpJson, ProbeError, Window
from agents.kube.journal import JournalError
from agents.runtime.clock import Clock
from tenancy import names
from tenancy.ledger import Seat
from tests.support.exporters import card, measured
from tests.support.fake_cluster import T4, Fault, Served
from tests.support.gating import ALWAYS, JOURNAL_PATH, SETTINGS, TTS, add_deployment, add_journal, path_of, scale_by

START = datetime(2026, 11, 20, 3, 0, tzinfo=UTC)
NEVER = replace(TTS, demand=Window(between="04:00-05:00", time_zone="Etc/UTC"))
YTDLP = replace(ALWAYS, name="ytdlp", deployment="ytdlp")


@pytest.fixture
def roomy(served: Served) -> Iterator[Served]:
    add_journal(served.cluster)
    served.cluster.watches_last = True
    for each in (TTS, YTDLP):
        add_deployment(served.cluster, each)
    with measured(served, card(4096)):
        yield served


def run(served: Served, *gates: GateConfig, ahead: Callable[[float], int] = lambda second: 0, **changes: Any) -> int:
    settings = replace(SETTINGS, exporter_port=served.exporter_port, gates=gates or SETTINGS.gates, **changes)
    time = served.time

    def now() -> datetime:
        return START + timedelta(seconds=time.seconds + ahead(time.seconds))

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        served.cluster.now = now()

    served.cluster.now = now()
    clock = Clock(monotonic=lambda: time.seconds, sleep=sleep, now=now)
    return gate.run(settings, served.api(), clock, served.log())


def replicas(served: Served, of: GateConfig = TTS) -> int:
    return int(served.cluster.objects[path_of(of)]["spec"]["replicas"])


def messages(served: Served) -> list[str]:
    return [line["message"] for line in served.lines()[1:]]


def events(served: Served) -> list[tuple[str, str]]:
    return [(event["reason"], event["note"]) for event in served.cluster.events.values()]


def writes(served: Served) -> list[str]:
    return [url for method, url in served.cluster.requests if method == "PATCH"]


def test_a_gate_opens_once_when_enough_samples_agree(roomy: Served) -> None:
    assert run(roomy) == 0
    assert messages(roomy) == [
        "would open if more samples agree",
        "would open if more samples agree",
        "would open",
        "did open",
        "keep",
    ]
    assert replicas(roomy) == 1
    assert events(roomy) == [
        (names.EVENT_GATE_OPENED, "there is demand, and room: it is 03:00 in Etc/UTC, the window is 00:00-23:59")
    ]
    (event,) = roomy.cluster.events.values()
    assert event["metadata"]["namespace"] == event["regarding"]["namespace"] == "voice"
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("Deployment", "tts")


def journaled(served: Served) -> dict[str, Any]:
    data: str = served.cluster.objects[JOURNAL_PATH]["data"][names.JOURNAL_KEY]
    content: dict[str, Any] = json.loads(data)
    return content


def test_a_change_between_reading_and_writing_is_a_conflict_and_nobody_is_overwritten(roomy: Served) -> None:
    def change_when_it_acts() -> None:
        if len(writes(roomy)) == 3:
            scale_by(roomy.cluster, "kubectl", 2)

    roomy.cluster.before_patch = change_when_it_acts
    assert run(roomy) == 0
    assert replicas(roomy) == 2
    assert "skipped: the Deployment has changed" in messages(roomy)
    assert [reason for reason, _ in events(roomy)] == [names.EVENT_GATE_LEFT_ALONE]
    assert journaled(roomy)["tts"]["replicas"] == 0, "the act that did not happen is taken back"


def test_of_two_runs_at_once_one_acts(roomy: Served) -> None:
    def write_first() -> None:
        if len(writes(roomy)) == 2:
            roomy.cluster.objects[JOURNAL_PATH]["metadata"]["resourceVersion"] = roomy.cluster.next_version()

    roomy.cluster.before_patch = write_first
    assert run(roomy, run_seconds=21) == 0
    assert replicas(roomy) == 0
    assert messages(roomy)[-1] == "skipped: another run of the gate updated the journal in the meantime"


def test_a_run_that_died_between_journal_and_act_holds_its_headroom_for_a_while(roomy: Served) -> None:
    roomy.cluster.faults = [Fault("PATCH", path_of(), 0, times=100)]
    assert run(roomy, ALWAYS, run_seconds=21) == 1
    assert run(roomy, ALWAYS, YTDLP, run_seconds=21) == 0
    assert (replicas(roomy), replicas(roomy, YTDLP)) == (0, 0)
    assert "a run started to scale it and has not finished yet" in {line.get("why") for line in roomy.lines()}


def test_a_sample_that_is_old_when_it_is_acted_on_is_not_acted_on(roomy: Served) -> None:
    def answer_late() -> None:
        if len(writes(roomy)) == 2:
            roomy.time.seconds += 31

    roomy.cluster.before_patch = answer_late
    assert run(roomy) == 0
    assert "skipped: the API took so long that the sample is stale" in messages(roomy)
    assert replicas(roomy) == 0


@pytest.mark.parametrize("jump_seconds", [-3600, 3600])
def test_a_clock_that_jumps_is_no_time_to_decide_at(roomy: Served, jump_seconds: int) -> None:
    assert run(roomy, replace(NEVER, samples=1), run_seconds=31, ahead=lambda s: jump_seconds if s == 30 else 0) == 1
    assert replicas(roomy) == 0
    assert messages(roomy)[-1] == f"no gate is opened or closed: the clock jumped by {jump_seconds:+d} s"


def test_a_dry_run_tells_and_scales_nothing(roomy: Served) -> None:
    assert run(roomy, ALWAYS, replace(NEVER, name="ytdlp", deployment="ytdlp"), dry_run=True) == 0
    assert replicas(roomy) == 0
    assert set(writes(roomy)) == {JOURNAL_PATH}
    assert events(roomy) == [(names.EVENT_GATE_WOULD_OPEN, "would open: there is demand, and room")]


@pytest.mark.parametrize("error", [ProbeError, OverflowError])
def test_whatever_a_probe_raises_is_its_own_workloads_problem(roomy: Served, error: type[Exception]) -> None:
    """Before the fix, the probe of one tenant could end the gate's run for all tenants."""
    broken = HttpJson(url="http://queue/", field="pending")
    with mock.patch.object(HttpJson, "answer", side_effect=error("of a tenant")):
        assert run(roomy, replace(TTS, demand=broken), YTDLP) == 0
    assert (replicas(roomy), replicas(roomy, YTDLP)) == (0, 1)
    assert events(roomy)[0] == (
        names.EVENT_GATE_UNANSWERED,
        "whether there is demand is not known, so nothing changes: its probe fails; the gate's log says why",
    )


def test_a_gate_that_cannot_be_read_keeps_what_it_was_let_into(roomy: Served) -> None:
    other = replace(YTDLP, namespace="media")
    add_deployment(roomy.cluster, other, replicas=1)
    run(roomy, other, run_seconds=0)
    roomy.cluster.faults = [Fault("GET", path_of(other), 403, "Forbidden", "cannot get deployments", times=99)]
    assert run(roomy, ALWAYS, other) == 0
    assert replicas(roomy) == 0, "4096 MiB are free, and 2048 of them are the other's"
    assert journaled(roomy)["ytdlp"]["replicas"] == 1
    (note,) = [note for reason, note in events(roomy) if reason == names.EVENT_GATE_REFUSED]
    assert note.startswith("it cannot be read, so it stays as it is: GET ")
    assert note.endswith("cannot get deployments")


def test_without_the_right_to_scale_one_the_others_are_scaled(roomy: Served) -> None:
    roomy.cluster.faults = [Fault("PATCH", path_of(), 403, "Forbidden", "cannot patch deployments/scale", times=99)]
    assert run(roomy, replace(ALWAYS, need_mib=1), replace(YTDLP, need_mib=1)) == 0
    assert (replicas(roomy), replicas(roomy, YTDLP)) == (0, 1)
    (note,) = [note for reason, note in events(roomy) if reason == names.EVENT_GATE_REFUSED]
    assert note.startswith("could not open: PATCH ")
    assert note.endswith("cannot patch deployments/scale")


def wait_for_a_seat(served: Served, mib: int = 5000) -> None:
    seat = Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=mib)
    served.cluster.add_ledger(T4, seats=(seat,))
    served.cluster.add_pod("chat", "", str(mib), phase="Pending")
    waits = served.cluster.pods[-1]
    waits["metadata"] |= {"namespace": "chat", "creationTimestamp": "2026-11-20T03:00:00Z"}
    waits["spec"] |= {"nodeName": "", "schedulerName": names.SCHEDULER_NAME}


def test_for_a_waiting_seat_a_gate_closes_at_the_first_sample_and_no_probe_delays_it(roomy: Served) -> None:
    asked: list[str] = []
    scale_by(roomy.cluster, "helm", 1)
    wait_for_a_seat(roomy)
    slow = replace(YTDLP, demand=HttpJson(url="http://127.0.0.1:1/", field="pending"))
    answer = HttpJson.answer
    with mock.patch.object(HttpJson, "answer", lambda *given: asked.append(f"at {replicas(roomy)}") or answer(*given)):
        assert run(roomy, ALWAYS, slow, run_seconds=0) == 0
    assert replicas(roomy) == 0
    assert asked == ["at 0"], "the first gate closed before the second was asked"
    assert events(roomy)[0] == (
        names.EVENT_GATE_CLOSED,
        "a seat needs its memory: k8s-node1, gpu 0: 4096 MiB are free, the floor is 1536; chat/chat waits for 5000 MiB",
    )


def test_a_journal_that_cannot_be_read_ends_the_run(roomy: Served) -> None:
    roomy.cluster.objects[JOURNAL_PATH]["data"] = {names.JOURNAL_KEY: '{"tts": {"uid": 1}}'}
    with pytest.raises(JournalError, match=r"tts\.uid: must be a string .* delete its data to start over"):
        run(roomy)
