"""Tests the demo's numbers and text, and its simulated device."""

from pathlib import Path

import pytest
import yaml

from tests.support.prod import PROD, raw
from toolchain.cluster import card
from toolchain.cluster.card import LEFT_MIB, REST_MIB, TOTAL_MIB, Card
from toolchain.cluster.prod import STEADY_MIB, TTS_MIB, budgets
from toolchain.demo import __main__ as demo
from toolchain.demo.story import FLOOR_MIB


def test_the_storys_numbers_are_prods() -> None:
    prod = raw()
    assert budgets() == {app: prod["residents"][app]["gpumem_mib"] for app in STEADY_MIB}
    assert prod["pools"]["t4"]["floor_mib"] == FLOOR_MIB
    assert prod["on_demand"]["tts"]["need_mib"] == TTS_MIB
    assert prod["pools"]["t4"]["memory_mib"] == TOTAL_MIB


def test_only_the_loading_times_of_prod_are_changed() -> None:
    document = yaml.safe_load(PROD.read_text())
    demo.shorten_waits(document["config"])
    prod, fast = raw(), {key.partition(":")[2]: value for key, value in document["config"].items()}
    assert {key for key in prod if prod[key] != fast[key]} == {"watchdog", "gate"}
    assert fast["gate"].keys() - prod["gate"].keys() == {"starting_seconds"}
    assert fast["watchdog"].keys() - prod["watchdog"].keys() == {"minimum_age_seconds"}


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[str, int]]:
    found: dict[int, tuple[str, int]] = {}
    monkeypatch.setattr(card, "processes", found.items)
    return found


@pytest.fixture
def t4(tmp_path: Path) -> Card:
    return Card(script=tmp_path / "card", wants={"frigate": 1900, "immich-ml": 2100})


def test_the_card_shows_what_the_processes_hold(processes: dict[int, tuple[str, int]], t4: Card) -> None:
    processes |= {7: ("frigate", 1007), 8: ("immich-ml", 1008)}
    t4.turn()
    mib = 2**20
    used = REST_MIB + 4000
    assert t4.script.read_text().splitlines() == [
        "0",
        f"device GPU-real {TOTAL_MIB * mib} {(TOTAL_MIB - used) * mib} {used * mib}",
        f"compute 7 {1900 * mib}",
        f"compute 8 {2100 * mib}",
    ]
    assert (t4.holds("frigate"), t4.free_mib) == (1900, TOTAL_MIB - used)
    del processes[7]
    t4.turn()
    assert t4.held == {8: 2100}


def test_a_leak_grows_each_turn_and_leaves_a_rest(processes: dict[int, tuple[str, int]], t4: Card) -> None:
    processes[7] = ("frigate", 1007)
    t4.turn()
    t4.leak("frigate", 150)
    t4.turn()
    assert t4.holds("frigate") == 2050
    t4.leak("frigate", TOTAL_MIB)
    t4.turn()
    t4.turn()
    assert t4.free_mib == LEFT_MIB


def test_a_process_that_needs_more_than_the_free_memory_is_killed(
    processes: dict[int, tuple[str, int]], t4: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(card.os, "kill", lambda pid, _: killed.append(pid))
    processes |= {7: ("frigate", 1007), 8: ("immich-ml", 1008)}
    t4.wants["immich-ml"] = TOTAL_MIB
    t4.turn()
    assert (killed, t4.died, t4.held) == ([1008], ["immich-ml"], {7: 1900})
