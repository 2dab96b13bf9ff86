"""Draws plans of faults and of tenants' acts from a seed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tenancy.names import GATE, RECONCILE, SYSTEM_NAMESPACE, WATCHDOG, journal
from tests.simulation.plan import DAY, Entry, Plan
from tests.simulation.system import Shape


def draw(seed: int, days: float = 1.0, density: float = 6.0) -> Plan:
    """Returns a plan with at most `density` entries a day. In a storm, there are twice as many entries."""
    dice = Random(seed)  # noqa: S311 (a simulation)
    shapes = (Shape(), Shape(stack="queue"), Shape(stack="two nodes", nodes=2), Shape(stack="two devices", cards=2))
    shape = dice.choices(shapes, weights=(5, 2, 2, 1))[0]
    if dice.random() < 0.3:
        shape = replace(shape, outside_mib=dice.choice((300, 450, 600, 800)))
    entries = sorted(_entries(dice, shape, days, density), key=lambda entry: entry.at)
    return Plan(shape=shape, entries=tuple(entries), days=days, seed=seed)


_JOURNAL = f"PATCH /api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{journal(WATCHDOG)}"
# The seat portal-stt is missing, because one of the simulated clusters has a queue in place of this seat.
RESIDENTS = ("immich-ml", "llama-swap", "frigate", "immich-server")
GATED = ("ebook2audiobook", "ytdlp")


def _entries(dice: Random, shape: Shape, days: float, density: float) -> Iterator[Entry]:
    begin, span = 900.0, days * DAY - 1800.0
    count = max(1, round(days * density * dice.random()))
    if dice.random() < 0.35:  # a storm: twice as many entries within two hours
        begin, span, count = 900.0 + dice.random() * max(span - 7200.0, 0.0), min(7200.0, span), 2 * count
    nodes = [f"k8s-node{number}" for number in range(1, shape.nodes + 1)]
    for name in GATED:
        for _ in range(dice.randrange(3)):
            yield Entry(round(begin + dice.random() * span, 1), "demand", _demand(dice, name))
    if shape.stack == "queue":
        for number in range(dice.randrange(1, 6)):
            over = dice.choice((0, 0, 300, 2500))
            given = {"name": f"job-{number}", "mib": dice.choice((500, 1000, 1500)), "over": over}
            given |= {"seconds": float(dice.choice((300, 1800, 7200))), "rank": dice.choice((100, 1000))}
            yield Entry(round(begin + dice.random() * span, 1), "job", given)
    if dice.random() < 0.2:
        yield from _company(dice, begin, span)
    for _ in range(count):
        at = round(begin + dice.random() * span, 1)
        what, given = _drawn(dice, nodes)
        yield Entry(at, what, given)


def _company(dice: Random, begin: float, span: float) -> Iterator[Entry]:
    """Yields the entries of two offenders and of a fault that concerns the first offender.

    The fault must not protect the second offender.
    """
    first, second = dice.sample(RESIDENTS, 2)
    at, seconds = round(begin + dice.random() * max(span - 3600.0, 0.0), 1), 5400.0
    space = {"immich-ml": "immich", "immich-server": "immich"}.get(first, first)
    troubles: Sequence[tuple[str, dict[str, Any]]] = (
        ("refuses", {"name": first, "status": dice.choice((500, 403))}),
        ("blocks", {"name": first}),
        ("slow_end", {"name": first, "grace": 3600}),
        ("hidden", {"namespace": space, "status": 403}),
        ("lost", {"part": f"{WATCHDOG} PATCH"}),
        ("churn", {"name": "android-emulator", "lives": 3.0, "pods": 8}),
    )
    what, given = dice.choice(troubles)
    yield Entry(at, what, given if what == "lost" else {**given, "seconds": seconds})
    for name in (first, second):
        at = round(at + 60.0 + 600.0 * dice.random() ** 2, 1)
        mib = dice.choice((700, 1500, 2500, 4000))
        yield Entry(at, "burst", {"name": name, "mib": mib, "seconds": seconds, "lies": True})


def _demand(dice: Random, name: str) -> dict[str, Any]:
    over = {"over": dice.choice((500, 2000))} if dice.random() < 0.15 else {}
    return {"name": name, "seconds": float(dice.choice((600, 1800, 7200))), **over}


def _drawn(dice: Random, nodes: Sequence[str]) -> tuple[str, dict[str, Any]]:
    name = dice.choice(RESIDENTS)
    seconds = float(dice.choice((60, 200, 600, 1800, 5400)))
    node, worker = dice.choice(nodes), dice.choice(("worker-1", "worker-2"))
    kinds: Sequence[tuple[float, str, dict[str, Any]]] = (
        (10, "restart", {"name": name, "pulls": float(dice.choice((1, 2, 20, 90)))}),
        (8, "idle", {"name": name, "mib": dice.choice((300, 900, 1200)), "seconds": seconds}),
        (8, "burst", {"name": name, "mib": dice.choice((400, 1500, 4000, 9000)), "seconds": seconds}),
        (4, "burst", {"name": name, "mib": dice.choice((1500, 4000, 9000)), "seconds": seconds, "lies": True}),
        (6, "leak", {"name": name, "mib": dice.choice((20, 100, 500)), "seconds": seconds}),
        (2, "leak", {"name": name, "mib": dice.choice((100, 500)), "seconds": seconds, "lies": True}),
        (3, "crash_loop", {"name": name, "every": float(dice.choice((8, 20, 60))), "seconds": seconds}),
        (3, "slow_end", {"name": name, "grace": dice.choice((60, 600, 3600)), "seconds": seconds}),
        (3, "blocks", {"name": name, "seconds": seconds}),
        (3, "refuses", {"name": name, "status": dice.choice((500, 403)), "seconds": seconds}),
        (1, "hidden", {"namespace": dice.choice(("frigate", "ytdlp")), "status": 403, "seconds": seconds}),
        (2, "churn", {"name": "android-emulator", "lives": float(dice.choice((3, 5, 20))), "seconds": 200.0}),
        (3, "outsider", {"node": node, "mib": dice.choice((300, 1500, 4000)), "seconds": seconds}),
        (4, "api", {"kind": dice.choice(("lost", "doubled", "silent", "409", "410", "422", "429", "500")),
                    "odds": dice.choice((0.02, 0.2, 0.6)), "seconds": seconds}),
        (2, "lost", {"part": dice.choice((_JOURNAL,
                                          "/eviction", "/binding", "/scale", "/status"))}),
        (2, "slow_api", {"latency": dice.choice((0.3, 3.0, 12.0)), "seconds": seconds}),
        (2, "outage", {"seconds": seconds}),
        (1, "node_patch", {"node": node, "status": 422, "seconds": seconds}),
        (3, "watches_break", {}),
        (4, "kill", {"agent": dice.choice((RECONCILE, WATCHDOG, GATE, "extender")), "requests": dice.randrange(12)}),
        (2, "twice", {"agent": dice.choice((WATCHDOG, GATE)), "seconds": seconds}),
        (2, "extender_restarts", {"seconds": float(dice.choice((5, 30, 120)))}),
        (2, "node_dies", {"node": node, "seconds": seconds}),
        (2, "node_dies", {"node": worker, "seconds": seconds}),
        (3, "reboots", {"node": node, "forgets": dice.random() < 0.5}),
        (3, "label", {"node": node, "key": dice.choice(("memory", "count", "present")), "seconds": seconds}),
        (2, "clock", {"worker": worker, "ahead": float(dice.choice((-400, -20, 20, 400, 7200))), "seconds": seconds}),
        (5, "exporter", {"node": node, "kind": dice.choice(("gone", "hangs", "frozen", "lies", "fails", "partial")),
                         "seconds": seconds}),
    )  # fmt: skip
    chosen = dice.choices(kinds, weights=[weight for weight, _, _ in kinds])[0]
    return chosen[1], chosen[2]
