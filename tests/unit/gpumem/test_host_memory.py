"""A history of use, from files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpumem import cli, host_memory, report
from gpumem.prometheus import HistoryError
from tenancy.host_memory.history import UsageSample
from tests.support.graphs import INFERENCE, NODE_4

HEADER = "time,workload,mib\n"


def read(source: str, days: int = 7) -> list[UsageSample]:
    return host_memory.read(source, [NODE_4], days=days)["node-4"]


@pytest.mark.parametrize("days", ["0", "-1", "1.5", "a week"])
def test_days_are_a_whole_number_from_one_on(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["advise", "--host-memory", "--stack", "prod", "--from", "usage.csv", f"--days={days}"], {})
    assert "must be a whole number from 1 to 9999" in capsys.readouterr().err


def test_a_file_has_a_line_a_sample(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(HEADER + "60,inference,5000\n120,clickhouse,1.5\n")
    assert read(str(file)) == [UsageSample(60, "inference", 5000), UsageSample(120, "clickhouse", 1.5)]


def test_a_file_as_a_spreadsheet_writes_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    file.write_bytes(b"\xef\xbb\xbftime,workload,mib,note\r\n60,inference,5000,\r\n")
    assert read(str(file)) == [UsageSample(60, "inference", 5000)]


def test_a_file_is_of_all_pools(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(HEADER + "60,inference,5000\n60,warehouse,1\n")
    other = replace(NODE_4, name="node-5", workloads=(replace(INFERENCE, name="warehouse"),))
    found = host_memory.read(str(file), [NODE_4, other], days=7)
    assert found["node-4"] == found["node-5"] == [UsageSample(60, "inference", 5000), UsageSample(60, "warehouse", 1)]


NO_HISTORY = {
    "other columns": (b"time,mib\n", r": the columns must be time, workload, mib, each once \(got \['time', 'mib'\]\)"),
    "nothing": (b"", "the columns must be time, workload, mib"),
    "no number": (b"60,inference,much\n", r":2: mib must be a number from 0 \(got 'much'\)"),
    "a time of day": (b"60,inference,1\n12:00,inference,1\n", r":3: time must be a number from 0 \(got '12:00'\)"),
    "a column too few": (b"60,inference\n", r":2: mib must be a number from 0 \(got None\)"),
    "not a number": (b"60,inference,nan\n", r":2: mib must be a number from 0 \(got 'nan'\)"),
    "less than nothing": (b"60,inference,-1\n", r":2: mib must be a number from 0 \(got '-1'\)"),
    "without end": (b"60,inference,1e999\n", r":2: mib must be a number from 0 \(got '1e999'\)"),
    "a name that nobody has": (
        b"60,inferenc,1\n",
        ":2: workload 'inferenc' is in no memory pool; known there: clickhouse, inference",
    ),
    "no text": (b"\xff\xfe", "is no CSV file in UTF-8"),
}


@pytest.mark.parametrize("case", NO_HISTORY)
def test_a_file_that_is_no_history_is_an_error_with_line_and_key(tmp_path: Path, case: str) -> None:
    content, message = NO_HISTORY[case]
    file = tmp_path / "usage.csv"
    file.write_bytes(content if case in ("other columns", "nothing", "no text") else HEADER.encode() + content)
    with pytest.raises(HistoryError, match=message):
        read(str(file))


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="cannot be read: No such file"):
        read(str(tmp_path / "usage.csv"))


def prod_history(inference_mib: int) -> str:
    rows = [
        f"{minute * 60},{name},{mib}\n"
        for minute in range(120)
        for name, mib in (("inference", inference_mib), ("embeddings", 5000), ("clickhouse", 5000))
    ]
    return HEADER + "".join(rows)


@pytest.mark.parametrize(("inference_mib", "code"), [(INFERENCE.steady_mib, 0), (INFERENCE.steady_mib + 1, 3)])
def test_the_report_of_prod_ends_with_whether_the_declarations_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inference_mib: int, code: int
) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(prod_history(inference_mib))
    assert cli.main(["advise", "--host-memory", "--stack", "prod", "--from", str(file)], {}) == code
    text = capsys.readouterr().out
    assert text.startswith("node-4: 120 minutes of all workloads, 1970-01-01 00:00 to 1970-01-01 01:59\n")
    assert ("! memory_pools.node-4.workloads.inference.steady_mib: usually holds 5121" in text) == bool(code)


def test_a_history_without_a_workload_is_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(HEADER + "60,inference,5000\n")
    assert cli.main(["advise", "--host-memory", "--stack", "prod", "--from", str(file)], {}) == 1
    assert "none at all: clickhouse, embeddings" in capsys.readouterr().err


def test_what_does_not_hold_comes_with_the_patch_that_the_gate_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(prod_history(5300))
    cli.main(["advise", "--host-memory", "--stack", "prod", "--from", str(file)], {})
    text = capsys.readouterr().out
    assert "what inference held asks for steady_mib 5376\nthat fits, by settings and policy pack:" in text
    changed = [line for line in text.splitlines() if line.startswith(("+ ", "- "))]
    assert changed == ["-          steady_mib: 5120", "+          steady_mib: 5376"]


def test_what_the_node_cannot_hold_is_no_patch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(prod_history(40_000))
    assert (
        cli.main(["advise", "--host-memory", "--stack", "prod", "--from", str(file), "-o", "json"], {}) == report.WAITS
    )
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["patch"]) == ("host-memory", None)
    assert found["refused"]
    (inference,) = (use for use in found["pools"][0]["workloads"] if use["workload"] == "inference")
    assert set(inference["contradictions"]) == {"steady_mib", "request_mib", "peak_mib"}


def test_host_memory_needs_the_stack_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["advise", "--host-memory", "--from", "usage.csv"], {}) == report.FAILED
    assert capsys.readouterr().err.startswith("gpumem: --host-memory needs the stack file that declares the pools")
