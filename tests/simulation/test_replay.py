"""Replays the examples of docs/concepts/watchdog.md with prod's stack file."""

from collections import Counter

import pytest

from simulation.replay import Played, play
from tests.support import histories
from tests.support.replay import BURST, CRASH_LOOP, DRIFT, Replay

LONGEST_SECONDS = 20 + 10 + 10
# The default recycle limit of each tenant (components/agents/watchdog.py).
RECYCLE_LIMIT = 4


def recycled(played: Played) -> Counter[str]:
    return Counter(each.workload for each in played.happened if each.what == "recycled")


@pytest.mark.parametrize("phase", [0, 17])
@pytest.mark.parametrize(("replay", "recycles"), [(DRIFT, 1), (BURST, 2)], ids=["hours", "a minute"])
def test_the_arena_of_2026_06_02_is_recycled_and_its_neighbour_never_goes_short(
    replay: Replay, recycles: int, phase: int
) -> None:
    played = play(histories.of(replay, phase), histories.today())
    assert recycled(played) == {"immich-ml": recycles}
    assert len(played.floors) == recycles
    assert max(floor.seconds for floor in played.floors) <= LONGEST_SECONDS
    assert played.short_seconds == {}


def test_the_crash_loop_of_2026_07_07_ends_at_its_tenants_recycle_limits() -> None:
    played = play(histories.of(CRASH_LOOP, phase=43), histories.today())
    assert recycled(played) == {"llama-swap": 8, "immich-server": 8}
    for name in ("llama-swap", "immich-server"):
        moments = [each.at.timestamp() for each in played.happened if (each.what, each.workload) == ("recycled", name)]
        assert all(sum(0 <= at - other < 3600 for other in moments) <= RECYCLE_LIMIT for at in moments)
