"""The demo's story and its screen: what is said, in which order, how wide; and a card that is told by processes."""

from pathlib import Path

import pytest

from tenancy import names
from tests.support.prod import raw
from toolchain.cluster import card
from toolchain.cluster.card import LEFT_MIB, REST_MIB, TOTAL_MIB, Card
from toolchain.cluster.prod import STEADY_MIB, TTS_MIB, budgets
from toolchain.demo import __main__ as demo
from toolchain.demo.screen import Page, Said
from toolchain.demo.stage import Stage
from toolchain.demo.story import FLOOR_MIB, Step, story

KEYS = ["residents", "leak", "night", "queue", "urgent", "seat"]
SAID = Said(
    reporter="gpu-demand-gate", reason="GpuGateOpened", about="deployment tts", note="there is demand,\nand room"
)


def step(key: str) -> Step:
    (found,) = (each for each in story() if each.key == key)
    return found


def test_the_story_is_complete_and_in_its_order() -> None:
    assert [each.key for each in story()] == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_each_step_says_what_happens_why_and_what_to_type(key: str) -> None:
    found = step(key)
    assert found.why.endswith(".")
    assert found.type.startswith("kubectl ")
    assert found.told


@pytest.mark.parametrize("key", KEYS)
def test_the_stage_knows_each_step(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []
    for each in KEYS:
        monkeypatch.setattr(Stage, f"_{each}", lambda self, each=each: played.append(each))
    Stage(api=None, card=None).play(key)  # type: ignore[arg-type]
    assert played == [key]


def test_the_agents_words_are_looked_for_by_their_own_reasons() -> None:
    reasons = {told.reason for each in story() for told in each.told}
    assert reasons >= {names.EVENT_RECYCLED, names.EVENT_GATE_OPENED, names.EVENT_GATE_CLOSED, names.EVENT_SEAT_HELD}


def test_the_storys_numbers_are_prods() -> None:
    prod = raw()
    assert budgets() == {app: prod["residents"][app]["gpumem_mib"] for app in STEADY_MIB}
    assert prod["pools"]["t4"]["floor_mib"] == FLOOR_MIB
    assert prod["on_demand"]["tts"]["need_mib"] == TTS_MIB
    assert prod["pools"]["t4"]["memory_mib"] == TOTAL_MIB


def test_of_prod_nothing_is_changed_but_how_long_a_model_may_load() -> None:
    prod, fast = raw(), raw()
    demo.in_fast_steps(fast)
    assert {key for key in prod if prod[key] != fast[key]} == {"watchdog", "gate"}
    assert fast["gate"].keys() - prod["gate"].keys() == {"starting_seconds"}
    assert fast["watchdog"].keys() - prod["watchdog"].keys() == {"minimum_age_seconds"}


def test_where_no_node_can_be_hosted_it_says_in_a_sentence_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo.node, "why_not", lambda: "a real node needs root")
    assert demo.main() == 1
    assert capsys.readouterr() == ("", "make demo: a real node needs root\n")


def test_without_a_compiler_there_is_no_simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.node, "why_not", lambda: None)
    monkeypatch.setattr(demo.paths, "missing", lambda _: [])
    monkeypatch.setattr(demo.shutil, "which", lambda _: None)
    assert demo.why_not() == "the simulated GPU needs a C compiler: install gcc and libc6-dev"


@pytest.mark.parametrize(("characters", "refused"), [(60, False), (61, True)])
def test_a_folder_too_long_for_sockets_is_refused(
    monkeypatch: pytest.MonkeyPatch, characters: int, refused: bool
) -> None:
    """60 and those of `/gpu-tenancy-demo-12345678/cluster/kubelet.sock` are 107, which Linux takes."""
    monkeypatch.setattr(demo.node, "why_not", lambda: None)
    monkeypatch.setattr(demo.paths, "missing", lambda _: [])
    monkeypatch.setattr(demo.shutil, "which", lambda _: "cc")
    where = "/" * characters
    monkeypatch.setattr(demo.tempfile, "gettempdir", lambda: where)
    assert (demo.why_not() is not None) is refused


def test_a_step_is_told_with_its_number_its_cause_and_why() -> None:
    first, *rest = Page(width=80).beginning(2, 6, step("leak")).splitlines()
    assert first == f"2 of 6: {step('leak').cause}"
    assert " ".join(line.strip() for line in rest) == step("leak").why
    assert max(map(len, rest)) <= 80


def test_what_came_of_it_is_told_in_the_agents_words_on_lines_of_that_width() -> None:
    lines = Page(width=60).outcome(step("night"), 12.4, [SAID]).splitlines()
    assert lines[0].startswith("  after 12 s: the gate scaled tts from 0 to 1")
    assert "gpu-demand-gate says GpuGateOpened of deployment tts: there is demand, and room" in " ".join(
        line.strip() for line in lines
    )
    assert lines[-1] == "  see it: kubectl get events -n tts --field-selector reason=GpuGateOpened"
    assert max(map(len, lines[:-1])) <= 60


def test_what_begins_is_told_with_its_second_on_lines_of_that_width() -> None:
    lines = Page(width=40).line(9.4, "prod is rolled out on it: budgets, queues, admission, agents").splitlines()
    assert lines == ["[  9 s] prod is rolled out on it:", "        budgets, queues, admission,", "        agents"]


def test_without_an_event_the_step_is_told_all_the_same() -> None:
    assert len(Page().outcome(step("urgent"), 1, []).splitlines()) == 2


def test_only_a_terminal_has_colours() -> None:
    assert "\x1b" not in Page().title(1, 6, step("leak"))
    assert Page(colour=True).title(1, 6, step("leak")).startswith("\x1b[1m1 of 6")


def test_the_summary_has_each_step_and_its_seconds() -> None:
    told = Page(width=400).summary([(step("leak"), 25.6), (step("seat"), 3)]).splitlines()
    assert told == [
        f"   26 s  {step('leak').cause}: {step('leak').effect}",
        f"    3 s  {step('seat').cause}: {step('seat').effect}",
    ]


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


def test_who_asks_for_more_than_is_left_dies_of_it(
    processes: dict[int, tuple[str, int]], t4: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(card.os, "kill", lambda pid, _: killed.append(pid))
    processes |= {7: ("frigate", 1007), 8: ("immich-ml", 1008)}
    t4.wants["immich-ml"] = TOTAL_MIB
    t4.turn()
    assert (killed, t4.died, t4.held) == ([1008], ["immich-ml"], {7: 1900})
