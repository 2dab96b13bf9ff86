"""Every fault that lasts three minutes has an alert, by promtool over what the simulation would have had scraped."""

from pathlib import Path

import pytest

from tests.simulation import alerts, faults
from tests.simulation.faults import Entry, Plan
from tests.simulation.system import Shape

LONG = {"seconds": 900.0}
FAULTS = (
    *(Entry(900.0, "exporter", {"node": "k8s-node1", "kind": kind, **LONG})
      for kind in ("gone", "hangs", "fails", "frozen", "lies", "partial")),
    Entry(900.0, "node_dies", {"node": "k8s-node1", **LONG}),
    Entry(900.0, "outage", LONG),
    Entry(900.0, "label", {"node": "k8s-node1", "key": "present", **LONG}),
)  # fmt: skip


@pytest.mark.parametrize("entry", FAULTS, ids=str)
def test_a_fault_that_lasts_has_an_alert(entry: Entry, tmp_path: Path) -> None:
    (heard,) = alerts.listen(Plan(shape=Shape(), entries=(entry,), days=0.02), tmp_path)
    assert not heard.missed, heard
    assert not heard.before, heard


@pytest.mark.parametrize("seed", [3, 8])
def test_the_faults_of_a_seed_have_alerts(seed: int, tmp_path: Path) -> None:
    plan = faults.draw(seed, days=0.5, density=8)
    heard = alerts.listen(plan, tmp_path)
    assert [each for each in heard if each.missed] == []
