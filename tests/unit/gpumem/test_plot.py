"""Tests the drawings of advise --plot."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gpumem import cli, report
from gpumem.plot import peaks
from gpumem.proposal import UseSample
from tests.support.paths import ROOT


def test_a_picture_keeps_every_peak_that_it_has_room_for() -> None:
    samples = [
        UseSample(minute, "s", 9000 if minute == 777 else minute % 7, pod) for minute in range(5000) for pod in "ab"
    ]
    drawn = peaks(samples, 100)
    assert len(drawn) == 100
    assert (777, 9000) in drawn
    assert peaks([UseSample(1, "s", 5, "a"), UseSample(1, "s", 7, "b")]) == [(1, 7)]
    assert peaks([]) == []


class Drawn:
    def __init__(self, **_: object) -> None:
        self.lines: list[str] = []

    def subplots(self) -> "Drawn":
        return self

    def plot(self, times: list[object], mib: list[float], **said: Any) -> None:
        self.lines.append(f"{said['label']} {max(mib):.0f}")

    def axhline(self, mib: int, **said: Any) -> None:
        self.lines.append(said["label"])

    def set(self, **_: object) -> None:
        pass

    def legend(self, **_: object) -> None:
        pass

    def savefig(self, path: Path) -> None:
        path.write_text("\n".join(self.lines))


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(ROOT)
    (tmp_path / "use.csv").write_text("time,seat,mib\n60,llama-swap,6996\n120,llama-swap,5000\n")
    return str(tmp_path / "use.csv")


def test_a_seat_that_was_used_is_drawn_with_both_budgets(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = ModuleType("matplotlib.figure")
    figure.Figure = Drawn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", figure)
    folder = tmp_path / "a" / "b"
    cli.main(["advise", "--from", use, "--stack", "prod", "--plot", str(folder), "--plot-format", "png"], {})
    assert {path.name: path.read_text().splitlines() for path in folder.iterdir()} == {
        "llama-swap.png": ["used 6996", "budget 5000", "proposed 7000"]
    }
    assert cli.main(["advise", "--from", use, "--stack", "prod", "--plot", use], {}) == report.FAILED


def test_without_matplotlib_it_reports_how_to_get_it(
    use: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert cli.main(["advise", "--from", use, "--stack", "prod", "--plot", "pictures"], {}) == report.FAILED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gpumem: --plot needs matplotlib (")
