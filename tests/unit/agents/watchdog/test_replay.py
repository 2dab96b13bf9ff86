"""The two incidents on record, replayed: the watchdog restores the floor once, and ends a crash loop with an alert."""

import pytest

from tests.support.replay import BURST, CAP, CRASH_LOOP, DRIFT, SLOW_END, Ours, Polling, Replay
from tests.support.replay import GRACE_SECONDS as RECYCLE_GRACE_SECONDS

GRACE_SECONDS = 10
# The last pass of a run that may be the first to see, to the second pass of the next; then the pod's end.
LONGEST_SECONDS = 20 + 10 + GRACE_SECONDS


@pytest.mark.parametrize("phase", [0, 17, 43, 59])
@pytest.mark.parametrize("replay", [DRIFT, BURST], ids=["hours", "a minute"])
def test_the_arena_of_2026_06_02_is_recycled_and_its_neighbour_never_goes_short(replay: Replay, phase: int) -> None:
    told = replay.under(Ours(), phase=phase)
    assert told.crossed is not None
    assert told.recovery_seconds is not None
    assert told.recovery_seconds <= LONGEST_SECONDS
    assert {name for _, name in told.outcome.recycled} == {"immich-ml"}
    assert (told.denied_seconds, told.outcome.wrong) == (0, 0)


def test_a_pod_that_asks_for_long_gets_what_a_recycle_gives_and_is_not_recycled_again() -> None:
    ours, polling = (SLOW_END.under(design) for design in (Ours(), Polling()))
    assert (len(ours.outcome.recycled), ours.outcome.wrong) == (2, 0)
    assert ours.recovery_seconds is not None
    assert ours.recovery_seconds <= LONGEST_SECONDS + RECYCLE_GRACE_SECONDS - GRACE_SECONDS
    assert polling.outcome.wrong > 0


@pytest.mark.parametrize("phase", [0, 17, 43, 59])
def test_the_crash_loop_of_2026_07_07_ends_at_its_tenants_caps(phase: int) -> None:
    told = CRASH_LOOP.under(Ours(), phase=phase)
    for tenant in ("llama-swap", "immich-server"):
        moments = [at for at, name in told.outcome.recycled if name == tenant]
        assert all(sum(0 <= at - other < 3600 for other in moments) <= CAP for at in moments)
    assert told.outcome.wrong == 0
    assert told.outcome.capped
    assert told.outcome.capped[0] > told.outcome.recycled[CAP - 1][0]
