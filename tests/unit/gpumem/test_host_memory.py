"""Tests the report and the patch of advise --host-memory."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpumem import cli, host_memory, report
from gpumem.prometheus import MOST_POINTS, HistoryError, Prometheus
from tenancy.host_memory.history import UsageSample
from tests.support.memory_pools import INFERENCE, NODE_4

HEADER = "time,workload,mib\n"


def test_a_file_is_of_all_pools(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(HEADER + "60,inference,5000\n60,warehouse,1\n")
    other = replace(NODE_4, name="node-5", workloads=(replace(INFERENCE, name="warehouse"),))
    found = host_memory.read(str(file), [NODE_4, other], days=7)
    assert found["node-4"] == found["node-5"] == [UsageSample(60, "inference", 5000), UsageSample(60, "warehouse", 1)]


def test_a_name_that_nobody_has_is_an_error_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "usage.csv"
    file.write_text(f"{HEADER}60,inferenc,1\n")
    told = ":2: workload 'inferenc' is in no memory pool; known there: clickhouse, inference$"
    with pytest.raises(HistoryError, match=told):
        host_memory.read(str(file), [NODE_4], days=7)


@pytest.mark.parametrize(("days", "step"), [(1, 60), (7, 60), (30, 240), (365, 2880)])
def test_prometheus_is_asked_for_no_more_points_than_it_gives(
    days: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(Prometheus, "over", lambda *given: asked.append(given[-1]) or ())
    monkeypatch.setattr(Prometheus, "at", lambda *_: [])
    host_memory.read("http://prometheus", [NODE_4], days=days)
    assert set(asked) == {step}
    assert days * 86_400 / step <= MOST_POINTS


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
    assert f"\ninference{'':15}{inference_mib:>8}{'5120':>10}{inference_mib:>9}{'20480':>10}\n" in text
    assert f"\ntogether at most {inference_mib + 10_000} of 62464 MiB, 1970-01-01 00:00\n" in text
    assert "\ntwo or more peaked in 0.00% of the minutes\nshort with every victim gone: 0 of 2 hours\n" in text
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
