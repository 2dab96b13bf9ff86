"""Measures the CPU of one filter of the extender's cache: `python -m tests.benchmarks.filter`.

64 nodes of four devices have pods on every device. A tenant has 100 absent seats in several sizes.
"""

import random
import statistics
import time
from collections.abc import Sequence

from agents.extender.cache.cache import Cache
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.cache.pod_info import NO_SEAT, Entitlement, PodInfo
from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger, Pool, Seat

DEVICES, DEVICE_MIB, PODS, SEATS = 4, 24_576, 500, 100
FILTERS, WARM_UP = 100, 20
NAMES = tuple(f"node-{number:04}" for number in range(64))
SEATED = Entitlement(pools=frozenset({"cards"}), tenant="residents")


def main() -> None:
    print("| absent seats | sizes | pod | CPU ms of a filter (p50) |\n|---|---|---|---|")
    for seats, sizes, entitlement in (
        (0, 1, NO_SEAT),
        (0, 10, NO_SEAT),
        (SEATS, 1, NO_SEAT),
        (SEATS, 1, SEATED),
        (SEATS, 10, NO_SEAT),
        (SEATS, 10, SEATED),
    ):
        pod = "in its seat" if entitlement.pools else "without a seat"
        print(f"| {seats} | {sizes} | {pod} | {filter_ms(seats, sizes, entitlement):.3f} |", flush=True)


def filter_ms(seats: int, sizes: int, entitlement: Entitlement) -> float:
    cache, found = Cache(), []
    cache.promise(ledger(seats, sizes))
    cache.replace(devices(), pods(), 0.0)
    for number in range(WARM_UP + FILTERS):
        request = MemoryRequest(size_mib(number % sizes), cpu_milli=500)
        started = time.thread_time()
        answer = cache.fit(f"filtered-{number}", request, NAMES, 0.0, entitlement)
        found.append(1000 * (time.thread_time() - started))
        if not answer.nodes:
            raise SystemExit(f"pod {number} fits on no node")
    return statistics.median(found[WARM_UP:])


def size_mib(size: int) -> int:
    return 2_000 + 100 * size


def ledger(seats: int, sizes: int) -> Ledger:
    pool = Pool(name="cards", node_selector={}, nodes=len(NAMES), device_count=DEVICES, memory_mib=DEVICE_MIB)
    each = [
        Seat(name=f"seat-{size}", tenant="residents", pool="cards", gpumem_mib=size_mib(size), replicas=seats // sizes)
        for size in range(sizes if seats else 0)
    ]
    return Ledger(domain="example.com", pools=(pool,), seats=tuple(each))


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
    """Returns one pod on each device, and further pods at random as long as they fit."""
    dice = random.Random(0)  # noqa: S311
    places = [(name, index) for index in range(DEVICES) for name in NAMES]
    left, found = dict.fromkeys(places, DEVICE_MIB), []
    for number in range(PODS):
        node, index = place = places[number] if number < len(places) else dice.choice(places)
        request = MemoryRequest(1_000 * dice.randrange(1, 11), cpu_milli=250 * dice.randrange(1, 9))
        if left[place] >= request.mib:
            left[place] -= request.mib
            found.append(PodInfo(uid=str(number), namespace="team", node=node, request=request, indices=(index,)))
    return found


if __name__ == "__main__":
    main()
