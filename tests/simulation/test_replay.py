"""docs/watchdog.md's replays, as histories under prod's stack file: the same pods are recycled, as often."""

from collections import Counter

import pytest

from simulation.replay import Played, play
from tests.support import histories
from tests.support.replay import BURST, CAP, CRASH_LOOP, DRIFT, GRACE_SECONDS, SLOW_END, Ours, Replay

# The last pass of a run that may be the first to see, to the second pass of the next; then the pod's end, and one more.
LONGEST_SECONDS = 20 + 10 + 10


def recycled(played: Played) -> Counter[str]:
    return Counter(each.workload for each in played.happened if each.what == "recycled")


@pytest.mark.parametrize("phase", [0, 17])
@pytest.mark.parametrize("replay", [DRIFT, BURST], ids=["hours", "a minute"])
def test_the_arena_of_2026_06_02_is_recycled_as_the_documented_replay_has_it(replay: Replay, phase: int) -> None:
    told = replay.under(Ours(), phase=phase)
    played = play(histories.of(replay, phase), histories.today())
    assert recycled(played) == Counter(name for _, name in told.outcome.recycled)
    assert set(recycled(played)) == {"immich-ml"}
    assert len(played.floors) == recycled(played).total()
    assert max(floor.seconds for floor in played.floors) <= LONGEST_SECONDS
    assert played.short_seconds == {}


@pytest.mark.parametrize("phase", [0, 17])
def test_a_pod_that_uses_its_whole_grace_is_recycled_as_often(phase: int) -> None:
    told = SLOW_END.under(Ours(), phase=phase)
    played = play(histories.of(SLOW_END, phase), histories.today(), drains_seconds=150)
    assert recycled(played) == Counter(name for _, name in told.outcome.recycled)
    assert max(floor.seconds for floor in played.floors) <= LONGEST_SECONDS + GRACE_SECONDS


def test_the_crash_loop_of_2026_07_07_ends_at_its_tenants_caps() -> None:
    told = CRASH_LOOP.under(Ours(), phase=43)
    played = play(histories.of(CRASH_LOOP, phase=43), histories.today())
    assert recycled(played) == Counter(name for _, name in told.outcome.recycled)
    for name in ("llama-swap", "immich-server"):
        moments = [each.at.timestamp() for each in played.happened if (each.what, each.workload) == ("recycled", name)]
        assert all(sum(0 <= at - other < 3600 for other in moments) <= CAP for at in moments)
