"""Alerting rules on a simulated time line: what fires, and how many seconds after a fault. By Prometheus' promtool."""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SCRAPE_SECONDS = 15
# When the fault begins, right after a scrape, and how long after it the time line ends.
FAULT, AFTER_SECONDS = 300, 180

# The value of each series at a second of the time line; None while it is not exposed.
Series = Mapping[str, Callable[[int], float | None]]


def promtool() -> str:
    """Its path; skips the test where it is not installed."""
    path = shutil.which("promtool")
    if path is None:
        pytest.skip("promtool is not installed: the alerts' behaviour is NOT tested (Debian: apt install prometheus)")
    return path


def beats(*, until: int = FAULT + AFTER_SECONDS) -> Callable[[int], float]:
    """The time of a CronJob's last success: three seconds into each minute, none after `until`. So the run that was
    about to end when the fault began, and saw nothing of it, succeeds three seconds later."""

    def last(second: int) -> float:
        return max(0, (min(second, until) - 3) // 60 * 60 + 3)

    return last


@dataclass(frozen=True)
class TimeLine:
    """Rules, in the shape of PrometheusRule.spec, over series; `folder` takes promtool's files."""

    rules: Mapping[str, Any]
    series: Series
    folder: Path

    def assert_quiet_before(self) -> None:
        """No alert at all fires when the fault begins. Raises AssertionError with those that do."""
        told = self._contradiction('ALERTS{alertstate="firing"}', FAULT, [])
        assert told is None, told

    def seconds_until(self, alert: str) -> int | None:
        """From the fault until the alert fires, in steps of the rules' evaluation; None where it does not."""
        step = int(self.rules["groups"][0]["interval"].removesuffix("s"))
        low, high = 0, AFTER_SECONDS // step
        if not self.fires(alert, high * step):
            return None
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fires(alert, middle * step) else (middle + 1, high)
        return low * step

    def fires(self, alert: str, after_seconds: int) -> bool:
        """Whether the alert fires so long after the fault."""
        firing = f'group(ALERTS{{alertname="{alert}", alertstate="firing"}})'
        return self._contradiction(firing, FAULT + after_seconds, [{"labels": "{}", "value": 1}]) is None

    def _contradiction(self, expression: str, second: int, samples: list[dict[str, Any]]) -> str | None:
        """What promtool got instead of these samples; None where it got them."""
        group = self.rules["groups"][0]
        expected = {"expr": expression, "eval_time": f"{second}s", "exp_samples": samples}
        test = {
            "rule_files": ["rules.yaml"],
            "evaluation_interval": group["interval"],
            "tests": [
                {
                    "interval": f"{SCRAPE_SECONDS}s",
                    "input_series": [{"series": name, "values": _values(at)} for name, at in self.series.items()],
                    "promql_expr_test": [expected],
                }
            ],
        }
        (self.folder / "rules.yaml").write_text(json.dumps(self.rules))
        (self.folder / "test.yaml").write_text(json.dumps(test))
        told = subprocess.run(
            [promtool(), "test", "rules", self.folder / "test.yaml"], capture_output=True, text=True, check=False
        )
        said = told.stdout + told.stderr
        assert told.returncode == 0 or "got:" in said, said
        return said if told.returncode else None


def _values(at: Callable[[int], float | None]) -> str:
    shown = [at(second) for second in range(0, FAULT + AFTER_SECONDS + 1, SCRAPE_SECONDS)]
    return " ".join("stale" if value is None else repr(value) for value in shown)
