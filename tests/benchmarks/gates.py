"""`python -m tests.benchmarks.gates`: our gate and that of record 0000's cluster on the same curves.

No clock, no chance: the same figures everywhere."""

import random
from collections.abc import Callable, Iterator

from tests.support.gate_curves import CronJobs, Curve, Ours, Outcome, Policy, Scenario, play, steady, tenant

HOUR = 3600
BUSY = steady(1)


def rises(low: int, high: int, begin: int, end: int) -> Curve:
    return lambda second: high if begin <= second < end else low


def noisy(mib: int, by: int) -> Curve:
    dice = random.Random(20261121)  # noqa: S311 (no secret)
    levels = [mib + dice.randint(-by, by) for _ in range(HOUR)]
    return lambda second: levels[second // 15 % len(levels)]


def flickering() -> Callable[[int], int | None]:
    """Each half-minute there is work or there is none, and each tenth probe fails."""
    dice = random.Random(20261121)  # noqa: S311 (no secret)
    answers = [None if turn % 10 == 9 else dice.randint(0, 1) for turn in range(HOUR)]
    return lambda second: answers[second // 30 % len(answers)]


TTS, YTDLP = tenant("tts", 2048, BUSY), tenant("ytdlp", 2048, BUSY)
SCENARIOS = (
    Scenario(name="room for one, all the time", tenants=(TTS,), residents=steady(9000), seconds=2 * HOUR),
    Scenario(name="two tenants, room for one", tenants=(TTS, YTDLP), residents=steady(11264), seconds=2 * HOUR),
    Scenario(
        name="the second comes while the first loads",
        tenants=(
            tenant("tts", 2048, BUSY, load_seconds=600),
            tenant("ytdlp", 2048, rises(0, 1, 240, 2 * HOUR)),
        ),
        residents=steady(11264),
        seconds=2 * HOUR,
    ),
    Scenario(
        name="a full card, and an exporter that is blind for 20 minutes",
        tenants=(TTS,),
        residents=steady(13600),
        seconds=2 * HOUR,
        seen=lambda second: not HOUR <= second < HOUR + 1200,
    ),
    Scenario(
        name="a resident bursts for 10 minutes",
        tenants=(TTS,),
        residents=rises(9000, 12000, HOUR + 100, HOUR + 700),
        seconds=2 * HOUR,
    ),
    Scenario(
        name="residents that waver about the limit", tenants=(TTS,), residents=noisy(11520, 400), seconds=2 * HOUR
    ),
    Scenario(
        name="demand that flickers",
        tenants=(tenant("tts", 2048, flickering()),),
        residents=steady(7000),
        seconds=2 * HOUR,
    ),
)


def policies() -> dict[str, Policy]:
    return {
        "ours": Ours(),
        "record 0000, floor 6 GiB": CronJobs(floor_mib=6144),
        "record 0000, floor 3.5 GiB": CronJobs(floor_mib=3584),
    }


def outcomes() -> Iterator[tuple[str, str, Outcome]]:
    """Scenario, policy, what came of it."""
    for scenario in SCENARIOS:
        for name, policy in policies().items():
            yield scenario.name, name, play(scenario, policy)


def table() -> list[str]:
    lines = [
        "| curve | gate | opened | of these into no room | under the floor | least free | demand served |",
        "|---|---|---|---|---|---|---|",
    ]
    for scenario, policy, outcome in outcomes():
        served = f"{outcome.served_seconds / outcome.wanted_seconds:.0%}" if outcome.wanted_seconds else "none asked"
        title = scenario if policy == "ours" else ""
        lines.append(
            f"| {title} | {policy} | {outcome.openings} | {outcome.no_room} | {outcome.under_floor_seconds} s "
            f"| {outcome.least_free_mib} MiB | {served} |"
        )
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
