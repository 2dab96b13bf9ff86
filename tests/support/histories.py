"""Makes random histories of GPU memory use for replays. `python -m tests.support.histories` prints one as CSV."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise

from simulation import stack
from simulation.stack import Stack
from simulation.tenants import STEADY
from stacks import settings
from tenancy.pod_history import PodHistory
from tests.support import prod
from tests.support.prod import Change
from tests.support.replay import CRASH_LOOP, Replay

BEGIN = 1_780_000_020.0  # a whole minute
STEP_SECONDS = 5
DAY, NOON, LEAKS = 86400, 43200, 900  # in seconds.
# Maps a workload to its namespace if the names differ.
_NAMESPACES = {"immich-server": "immich", "immich-ml": "immich"}


@cache
def today() -> Stack:
    return stack.stack_of(settings.parse(prod.raw()))


def changed(*changes: Change) -> Stack:
    config = prod.raw()
    for change in changes:
        change(config)
    return stack.stack_of(settings.parse(config))


def pod(
    workload: str,
    mib: int | Callable[[int], int],
    *,
    seconds: int = 600,
    after: int = 0,
    namespace: str = "",
    gpu: str = "GPU-0",
    number: int = 1,
) -> PodHistory:
    wants = mib if callable(mib) else lambda _: mib
    samples = ((BEGIN + after + age, wants(age)) for age in range(0, seconds + 1, STEP_SECONDS))
    space = namespace or _NAMESPACES.get(workload, workload)
    return PodHistory(space, f"{workload}-5d4f8b7c9-{number:05d}", gpu, tuple(samples))


def of(replay: Replay, phase: int = 0) -> list[PodHistory]:
    return [pod(each.name, each.wants, seconds=replay.seconds, after=phase) for each in replay.tenants]


def days(count: int) -> tuple[list[PodHistory], Counter[str]]:
    made, end = [], count * DAY
    restarts = {"immich-ml": range(NOON + LEAKS, end, DAY), "llama-swap": range(3600, end, 3 * DAY)}
    for name, mib in {**STEADY, "frigate": 1900}.items():
        for number, (start, until) in enumerate(pairwise([0, *restarts.get(name, ()), end])):

            def wants(age: int, start: int = start, name: str = name, mib: int = mib) -> int:
                at = start + age
                leaked = 6 * (at % DAY - NOON) if name == "immich-ml" and 0 <= at % DAY - NOON < LEAKS else 0
                return mib - 200 + 150 * (at // 3600 % 2) + leaked

            made.append(pod(name, wants, seconds=until - start - 30, after=start, number=number))
    made += [pod("ytdlp", 900, seconds=600, after=day * DAY + 3 * 3600, number=day) for day in range(count)]
    return made, Counter({"recycled immich-ml": count, "let in ytdlp": count, "put out ytdlp": count})


def lines(pods: Iterable[PodHistory]) -> Iterator[str]:
    yield "time,namespace,pod,gpu,mib"
    for each in pods:
        yield from (f"{at:.0f},{each.namespace},{each.pod},{each.gpu},{mib}" for at, mib in each.samples)


if __name__ == "__main__":
    print("\n".join(lines(of(CRASH_LOOP))))
