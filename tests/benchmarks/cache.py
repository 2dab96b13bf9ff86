"""How fast the extender's cache answers, without HTTP: `python -m tests.benchmarks.cache`.

1,000 nodes of 8 devices with 12,000 pods of ten sizes, in one process. CPU of this thread, for other work must not
count: the least of the calls and their median. The table goes into docs/benchmarks.md.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from agents.extender.cache.cache import Cache
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.cache.pod_info import PodInfo
from tenancy.devices.allocate import Ask, Scoring

NODES, DEVICES, DEVICE_MIB, PODS = 1_000, 8, 24_576, 12_000
CALLS, RELISTS = 200, 10
NAMES = tuple(f"node-{number:04}" for number in range(NODES))
ASK = Ask(2_000, cpu_milli=500)


def main() -> None:
    columns = [dict(figures(scoring)) for scoring in Scoring]
    print("| call | " + " | ".join(f"{scoring}, least | median" for scoring in Scoring) + " |")
    print("|---" * (1 + 2 * len(columns)) + "|")
    for call in columns[0]:
        print(f"| {call} | " + " | ".join(f"{ms:.2f} ms" for column in columns for ms in column[call]) + " |")


def figures(scoring: Scoring) -> Iterator[tuple[str, tuple[float, float]]]:
    cache, nodes, held = Cache(scoring), devices(), pods()
    yield "full relist", taken(RELISTS, lambda _: cache.replace(nodes, held, 0.0))
    yield "filter of an ask not seen before", taken(CALLS, lambda call: filtered(cache, call, Ask(1_000 + call)))
    yield "filter of 1,000 nodes, and its promise", taken(CALLS, lambda call: filtered(cache, call, ASK))
    yield (
        "filter, every node refused with its reason",
        taken(CALLS, lambda call: filtered(cache, call, Ask(DEVICE_MIB))),
    )
    yield "filter, every node hopeless", taken(CALLS, lambda call: filtered(cache, call, Ask(DEVICE_MIB + 1)))
    yield "bind, without the API", taken(CALLS, lambda call: bound(cache, call))


def filtered(cache: Cache, call: int, ask: Ask) -> None:
    cache.fit(f"filtered-{call}", ask, NAMES, 0.0)


def bound(cache: Cache, call: int) -> None:
    cache.assume(f"bound-{call}", Ask(1), NAMES[call], 0.0)


def taken(calls: int, ask: Callable[[int], None]) -> tuple[float, float]:
    """Milliseconds of CPU: the least, and the median."""
    found = []
    for call in range(calls):
        started = time.thread_time()
        ask(call)
        found.append(1000 * (time.thread_time() - started))
    return min(found), statistics.median(found)


def devices() -> Sequence[NodeDevices]:
    return [
        NodeDevices(
            node=name,
            pool="cards",
            devices=tuple(NodeDevice(index, f"GPU-{name}-{index}", DEVICE_MIB) for index in range(DEVICES)),
            cpu_milli=64_000,
        )
        for name in NAMES
    ]


def pods() -> Sequence[PodInfo]:
    """One on each device, the others by chance, as long as they fit."""
    dice = random.Random(0)  # noqa: S311 (no secret)
    places = [(name, index) for index in range(DEVICES) for name in NAMES]
    left, found = dict.fromkeys(places, DEVICE_MIB), []
    for number in range(PODS):
        node, index = place = places[number] if number < len(places) else dice.choice(places)
        ask = Ask(1_000 * dice.randrange(1, 11), cpu_milli=250 * dice.randrange(1, 9))
        if left[place] >= ask.mib:
            left[place] -= ask.mib
            found.append(PodInfo(uid=str(number), namespace="team", name="pod", node=node, ask=ask, indices=(index,)))
    return found


if __name__ == "__main__":
    main()
