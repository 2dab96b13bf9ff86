"""Tests that a replay shows recycles, starts, stops, waits and refusals."""

from collections import Counter
from dataclasses import replace

from simulation.replay import Played, play
from simulation.stack import Stack
from tests.support import histories
from tests.support.histories import changed, pod, today
from tests.support.prod import drop, put
from tests.support.replay import BURST, growing

HOUSEHOLD = [pod("frigate", 1900), pod("portal-stt", 1500), pod("immich-server", 1200), pod("llama-swap", 4350)]


def raised() -> Stack:
    budgets = {"immich-ml": 4900, "llama-swap": 4360, "immich-server": 1200}
    return changed(*(put(f"residents {name} gpumem_mib", mib) for name, mib in budgets.items()))


def what(played: Played) -> Counter[str]:
    return Counter(f"{each.what} {each.workload}" for each in played.happened)


def test_who_keeps_its_budget_is_left_alone() -> None:
    played = play([*HOUSEHOLD, pod("immich-ml", 2100)], today())
    assert (played.happened, played.floors, played.short_seconds, played.notes) == ((), (), {}, ())
    assert (played.end - played.begin).total_seconds() == 600


def test_a_pod_over_its_budget_is_recycled_and_begins_its_life_over() -> None:
    played = play(histories.of(BURST), today())
    assert what(played) == {"recycled immich-ml": 2}
    assert {(each.declared_mib, each.used_mib > 5000) for each in played.happened} == {(3000, True)}


def test_a_budget_that_holds_what_was_used_is_not_recycled_and_the_device_stays_under_its_floor() -> None:
    over = pod("immich-ml", growing(2000, 4800, after=120, seconds=60))
    before, after = play([*HOUSEHOLD, over], today()), play([*HOUSEHOLD, over], raised(), before=today())
    assert what(before) == {"recycled immich-ml": 1}
    assert what(after) == {}
    assert sum(floor.seconds for floor in after.floors) > 300


def test_a_pod_that_the_history_lost_over_its_budget_goes_on_until_it_is_recycled_here() -> None:
    lost = pod("immich-ml", growing(2000, 4800, after=120, seconds=60), seconds=200)
    next_one = pod("immich-ml", 2000, after=230, seconds=370, number=2)
    assert what(play([*HOUSEHOLD, lost, next_one], today())) == {"recycled immich-ml": 1}
    kept = play([*HOUSEHOLD, lost, next_one], raised(), before=today())
    assert what(kept) == {}


def test_a_restart_of_the_history_is_one_here_and_no_recycle() -> None:
    first, second = pod("llama-swap", 4350, seconds=200), pod("llama-swap", 600, after=230, seconds=370, number=2)
    played = play([*HOUSEHOLD[:3], first, second], today())
    assert what(played) == {}


def test_a_pod_that_starts_after_the_historys_next_one_asks_for_what_that_one_did() -> None:
    first, second = pod("llama-swap", 4350, seconds=200), pod("llama-swap", 4350, seconds=700, after=205, number=2)
    leaks = pod("immich-ml", growing(2000, 5600, after=300, seconds=600), seconds=900)
    assert what(play([*HOUSEHOLD[:3], first, second, leaks], today())) == {"recycled immich-ml": 1}


def test_work_on_demand_is_let_in_and_put_out_again_where_it_has_ended() -> None:
    work = pod("ytdlp", 900, after=60, seconds=120)
    played = play([*HOUSEHOLD, pod("immich-ml", 2100, seconds=1500), work], today())
    assert what(played) == {"let in ytdlp": 1, "put out ytdlp": 1}


def test_work_on_demand_waits_where_a_seat_took_its_room() -> None:
    full = changed(put("pools t4 floor_mib", 4000))
    played = play([*HOUSEHOLD, pod("immich-ml", 2100), pod("ytdlp", 900, after=60, seconds=120)], full, before=today())
    assert what(played) == {"pending ytdlp": 1}


def test_a_seat_that_a_change_takes_away_is_refused_and_a_new_one_takes_all_that_it_is_given() -> None:
    other = changed(
        drop("residents portal-stt"),
        put("residents whisper", {"tenant": "signoz", "pool": "t4", "gpumem_mib": 1500}),
    )
    played = play([*HOUSEHOLD, pod("immich-ml", 2100)], other, before=today())
    assert what(played) == {"refused portal-stt": 1}
    assert played.happened[0].seconds == 600


def test_memory_that_is_nobodys_is_on_the_device_and_is_reported() -> None:
    stranger = pod("notebook", 300, after=60, namespace="somebody")
    played = play([*HOUSEHOLD, pod("immich-ml", growing(2000, 4800, after=120, seconds=60)), stranger], today())
    assert what(played)["recycled immich-ml"] == 1
    assert "somebody/notebook-5d4f8b7c9-00001" in played.notes[0]


def test_work_on_demand_that_prometheus_knows_of_is_let_in() -> None:
    query = {"address": "http://prometheus.monitoring:9090", "query": "sum(pending) or vector(0)"}
    asked = changed(drop("on_demand ytdlp http_json"), put("on_demand ytdlp prometheus", query))
    work = pod("ytdlp", 900, after=60, seconds=120)
    played = play([*HOUSEHOLD, pod("immich-ml", 2100, seconds=1500), work], asked)
    assert what(played) == {"let in ytdlp": 1, "put out ytdlp": 1}


def test_a_pod_for_which_its_namespaces_quota_has_no_room_is_refused_for_as_long() -> None:
    less = replace(today(), quotas={**today().quotas, "immich": 4799})
    played = play([*HOUSEHOLD, pod("immich-ml", 2100)], less)
    assert what(played) == {"refused immich-server": 1}
    assert played.happened[0].seconds == 600


def test_a_day_is_what_is_known_of_it() -> None:
    history, known = histories.days(1)
    assert what(play(history, today())) == known
