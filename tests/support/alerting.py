"""Evaluates alerting rules with promtool, and measures the seconds from a fault to its alert."""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRAPE_SECONDS = 15
# The fault begins at second FAULT, directly after a scrape.
FAULT, AFTER_SECONDS = 300, 180
FIRING = 'ALERTS{alertstate="firing"}'

# Maps each series to a function that returns its value at a second of the test, or None without a sample.
Series = Mapping[str, Callable[[int], float | None]]
Rules = Mapping[str, Any]


def promtool() -> str:
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed: the alerts' behaviour is NOT tested (make integration installs it)")
    return path


@dataclass(frozen=True, kw_only=True)
class Expected:
    expression: str
    at: str
    samples: Mapping[str, float]


Case = tuple[Mapping[str, str], Sequence[Expected]]


def contradiction(rules: Rules, folder: Path, *cases: Case, scrapes: str = "1m", evaluation: str = "1m") -> str | None:
    """Returns what differs between the series' results and what is expected of them, or None."""
    tests = [
        {
            "interval": scrapes,
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": each.expression,
                    "eval_time": each.at,
                    "exp_samples": [{"labels": labels, "value": value} for labels, value in each.samples.items()],
                }
                for each in expected
            ],
        }
        for series, expected in cases
    ]
    test = {"rule_files": ["rules.yaml"], "evaluation_interval": evaluation, "tests": tests}
    (folder / "rules.yaml").write_text(json.dumps(rules))
    (folder / "test.yaml").write_text(json.dumps(test))
    done = subprocess.run(
        [promtool(), "test", "rules", folder / "test.yaml"], capture_output=True, text=True, check=False
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0 or "got:" in text, text[-2000:]
    return text if done.returncode else None


def written(at: list[float | None]) -> str:
    return " ".join("stale" if value is None else repr(value) for value in at)


def beats(*, until: int = FAULT + AFTER_SECONDS) -> Callable[[int], float]:
    def last(second: int) -> float:
        return max(0, (min(second, until) - 3) // 60 * 60 + 3)

    return last


@dataclass(frozen=True)
class TimeLine:
    rules: Rules
    series: Series
    folder: Path

    def assert_only_then_fires(self, alert: str, after_seconds: int) -> None:
        """Nothing fires before the fault, and the alert does so many seconds after it."""
        firing = f'group(ALERTS{{alertname="{alert}", alertstate="firing"}})'
        self._assert(
            Expected(expression=FIRING, at=f"{FAULT}s", samples={}),
            Expected(expression=firing, at=f"{FAULT + after_seconds}s", samples={"{}": 1}),
        )

    def assert_never_fires(self, alert: str) -> None:
        seconds = FAULT + AFTER_SECONDS
        firing = f'count_over_time(ALERTS{{alertname="{alert}", alertstate="firing"}}[{seconds}s])'
        self._assert(Expected(expression=firing, at=f"{seconds}s", samples={}))

    def _assert(self, *expected: Expected) -> None:
        seconds = range(0, FAULT + AFTER_SECONDS + 1, SCRAPE_SECONDS)
        series = {name: written([at(second) for second in seconds]) for name, at in self.series.items()}
        evaluation = self.rules["groups"][0]["interval"]
        told = contradiction(
            self.rules, self.folder, (series, expected), scrapes=f"{SCRAPE_SECONDS}s", evaluation=evaluation
        )
        assert told is None, told
