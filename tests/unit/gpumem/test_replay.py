"""Tests the report of the command replay."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpumem import cli, replay, report
from gpumem.paper import Paper
from gpumem.prometheus import HistoryError
from simulation.replay import Played
from simulation.replay_record import RecordedEvent, TimeBelowFloor
from tests.support.paths import ROOT

NOON = datetime(2026, 6, 2, 12, tzinfo=UTC)
HEADER = "time,namespace,pod,gpu,mib"


def history(folder: Path, *lines: str, header: str = HEADER) -> str:
    file = folder / "use.csv"
    file.write_text("\n".join([header, *lines, ""]))
    return str(file)


def played(*happened: RecordedEvent, floors: tuple[TimeBelowFloor, ...] = (), **given: object) -> Played:
    end = NOON + timedelta(hours=1)
    fields = {"short_seconds": {}, "notes": (), **given}
    return Played(begin=NOON, end=end, happened=happened, floors=floors, **fields)  # type: ignore[arg-type]


def recycled(minute: int, used_mib: int = 4800) -> RecordedEvent:
    at = NOON + timedelta(minutes=minute)
    device = "GPU-t4-1-0"
    return RecordedEvent(
        at=at, what="recycled", workload="immich-ml", used_mib=used_mib, declared_mib=3000, device=device
    )


def test_times_are_seconds_or_as_rfc_3339_has_them_in_any_order(tmp_path: Path) -> None:
    times = {"1780401615": 20, "2026-06-02T12:00:00Z": 10, "2026-06-02T14:00:30+02:00": 30.4}
    use = history(tmp_path, *(f"{at},a,p,0,{mib}" for at, mib in times.items()))
    (pod,) = replay.read(use, days=7, now=0)
    assert (pod.namespace, pod.pod, pod.gpu) == ("a", "p", "0")
    assert pod.samples == ((1780401600, 10), (1780401615, 20), (1780401630, 30))


def test_where_samples_are_missing_nothing_was_used(tmp_path: Path) -> None:
    times = (0, 15, 30, 600, 615)
    use = history(tmp_path, *(f"{at},a,p,0,10" for at in times))
    (pod,) = replay.read(use, days=7, now=0)
    assert pod.samples == ((0, 10), (15, 10), (30, 10), (45, 0), (600, 10), (615, 10))


def test_each_pod_and_device_is_apart(tmp_path: Path) -> None:
    use = history(tmp_path, "0,a,p,0,1", "0,a,p,1,2", "0,b,p,0,3")
    assert [(pod.namespace, pod.gpu) for pod in replay.read(use, days=7, now=0)] == [("a", "0"), ("a", "1"), ("b", "0")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("noon,a,p,0,1", r":3: time must be seconds .* 2026-06-02T12:00:00Z \(got 'noon'\)"),
        ("2026-06-02T12:00:00,a,p,0,1", ":3: time must be"),
        ("-5,a,p,0,1", ":3: time must be"),
        ("0,,p,0,1", ":3: namespace is empty"),
        ("0,a,p,0,-1", r":3: mib must be a number from 0 \(got '-1'\)"),
    ],
)
def test_a_line_that_is_no_sample_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(HistoryError, match=message):
        replay.read(history(tmp_path, "0,a,p,0,1", line), days=7, now=0)


@pytest.mark.parametrize("lines", [(), ("nonsense",)])
def test_a_file_without_use_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    with pytest.raises(HistoryError, match=r"nothing to replay|the columns must be time, namespace, pod, gpu, mib"):
        replay.read(history(tmp_path, header="time,pod" if lines else HEADER), days=7, now=0)


def text(*sides: tuple[str, Played]) -> str:
    return replay.replay_text(replay.replay([], sides), Paper())


def test_both_files_are_side_by_side_with_what_is_more_and_less() -> None:
    floor = TimeBelowFloor(at=NOON, device="GPU-t4-1-0", seconds=600)
    waits = RecordedEvent(at=NOON, what="pending", workload="frigate", seconds=300)
    today, changed = played(recycled(1), recycled(30)), played(recycled(5), waits, floors=(floor,))
    said = text(("Pulumi.prod.yaml", today), ("new.yaml", changed))
    assert "  immich-ml  recycled         2      1" in said
    assert "  frigate    pending          0      1: 5 min" in said
    assert "  t4-1-0     under its floor  0      1: 10 min" in said
    assert "! more under the change: frigate pending, t4-1-0 under its floor" in said
    assert "less under the change: immich-ml recycled" in said
    assert "2026-06-02T12:01:00Z  today    immich-ml  recycled at 4800 of 3000 MiB on t4-1-0" in said


def test_a_quiet_history_is_said_to_be_one() -> None:
    said = text(("a.yaml", played()), ("b.yaml", played(notes=("this",))))
    assert "nobody is recycled" in said
    assert "the change makes no difference to this history" in said
    assert "not known: this" in said


def test_of_many_events_the_first_are_listed() -> None:
    said = text(("a.yaml", played(*(recycled(minute) for minute in range(50)))))
    assert said.count("recycled at") == 40
    assert "and 10 more; -o json has all" in said


def test_the_command_plays_a_file_under_prod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    pods = {"immich/immich-ml-1": 5500, "llama-swap/llama-swap-1": 5000, "frigate/frigate-1": 2000}
    pods["immich/immich-server-1"] = 1700
    lines = (f"{at},{name.replace('/', ',')},0,{mib}" for at in range(0, 121, 15) for name, mib in pods.items())
    assert cli.main(["replay", "--from", history(tmp_path, *lines), "-o", "json"], {}) == report.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["pods"], found["sides"][0]["file"]) == ("replay", 4, "Pulumi.prod.yaml")
    assert [each["workload"] for each in found["sides"][0]["events"]] == ["immich-ml"]


def test_a_stack_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    use = history(tmp_path, "0,a,p,0,1")
    assert cli.main(["replay", "--from", use, "--stack", "nope", "--today", "gone.yaml"], {}) == report.FAILED
    error = capsys.readouterr().err
    assert "gone.yaml" in error
    assert "Pulumi.nope.yaml: no such file" in error
