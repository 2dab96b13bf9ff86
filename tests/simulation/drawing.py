"""Draws a cluster, and a plan of faults and of tenants' acts, from a seed.

A plan has a theme, which decides how often each kind of fault occurs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tenancy.choices import Sharing
from tenancy.names import GATE, RECONCILE, SYSTEM_NAMESPACE, WATCHDOG, journal
from tests.simulation.hostile import ANSWERS, TRICKS
from tests.simulation.kueue import KINDS
from tests.simulation.plan import DAY, Entry, Plan
from tests.simulation.stack import PROD_POOL, drawn, is_drawn, nodes_of, stack
from tests.simulation.system import Shape

HOURS = 1.35
SPAN = HOURS / 24  # The number of days in a drawn plan.
AN_HOUR = 22.0  # The mean number of faults and acts in an hour, without demand and Jobs.
BEGIN_SECONDS = 400.0
SECONDS = (30.0, 60.0, 200.0, 600.0, 1800.0)
Kind = tuple[float, str, dict[str, Any]]

_JOURNAL = f"PATCH /api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{journal(WATCHDOG)}"
# The weights of the four kinds of faults in each theme: tenants, nodes, agents and the API server.
_THEMES: Mapping[str, tuple[float, float, float, float]] = {
    "tenants": (1.0, 0.05, 0.05, 0.0),
    "nodes": (1.0, 0.8, 0.1, 0.0),
    "agents": (1.0, 0.1, 0.8, 0.0),
    "api": (1.0, 0.1, 0.2, 0.8),
    "all": (1.0, 0.4, 0.4, 0.4),
}


@dataclass(frozen=True, kw_only=True)
class Cast:
    residents: tuple[str, ...]
    gated: tuple[str, ...]
    nodes: tuple[str, ...]
    replaceable: tuple[str, ...]
    spaces: Mapping[str, str]
    churns: str
    queue_mib: int
    schedulers: int


def draw(seed: int, days: float = SPAN, an_hour: float = AN_HOUR) -> Plan:
    dice = Random(seed)  # noqa: S311 (a simulation)
    shape = _shape(dice, seed)
    cast, more = _cast(shape), Random(f"more {seed}")  # noqa: S311 (a simulation)
    drawn = [*_entries(dice, cast, days, an_hour)]
    entries = sorted([*drawn, *_rare(more, cast, drawn, days * DAY)], key=lambda entry: entry.at)
    return Plan(shape=shape, entries=tuple(entries), days=days, seed=seed)


def _shape(dice: Random, seed: int) -> Shape:
    if dice.random() < 0.65:
        shape = Shape(stack=drawn(seed), schedulers=dice.choice((1, 2)))
    else:
        shapes = (Shape(), Shape(stack="queue"), Shape(stack="two nodes", nodes=2), Shape(stack="two devices", cards=2))
        shape = dice.choices(shapes, weights=(4, 2, 2, 2))[0]
    return replace(shape, outside_mib=dice.choice((300, 450, 600, 800))) if dice.random() < 0.3 else shape


def _cast(shape: Shape) -> Cast:
    ledger = stack(shape.stack).ledger
    memory = [pool for pool in ledger.pools if pool.sharing is Sharing.MEMORY]
    own = is_drawn(shape.stack)
    pools = {pool.name for pool in memory if own or pool.name == PROD_POOL}
    seats = [seat for seat in ledger.seats if seat.pool in pools]
    gates = [each for each in ledger.on_demand if each.pool in pools and each.name != "tts"]
    alike = [[f"k8s-node{number}" for number in range(1, shape.nodes + 1)]]
    if own:
        alike = [nodes_of(pool) for pool in memory]
    return Cast(
        residents=tuple(seat.name for seat in seats),
        gated=tuple(each.name for each in gates),
        nodes=tuple(name for names in alike for name in names),
        replaceable=tuple(name for names in alike if len(names) > 1 for name in names),
        spaces={each.name: each.tenant for each in (*seats, *gates)},
        churns=next((each.name for each in ledger.unbudgeted), ""),
        queue_mib=max(map(ledger.quota_mib, pools)),
        schedulers=shape.schedulers,
    )


def _entries(dice: Random, cast: Cast, days: float, an_hour: float) -> Iterator[Entry]:
    begin, span = BEGIN_SECONDS, days * DAY - BEGIN_SECONDS - 300.0
    hours = span / 3600.0
    count = max(1, round(hours * an_hour * (0.4 + 1.2 * dice.random())))
    if dice.random() < 0.25:
        begin, span, count = begin + dice.random() * span * 2 / 3, span / 3, 2 * count
    for name in cast.gated:
        for _ in range(round(hours * 3 * dice.random() + 0.5)):
            yield Entry(_moment(dice, begin, span), "demand", _demand(dice, name))
    if cast.queue_mib:
        yield from _jobs(dice, cast, begin, span, round(hours * 4 * dice.random() + 1))
    if dice.random() < 0.3 and len(cast.residents) > 1:
        yield from _company(dice, cast, begin, span)
    if dice.random() < 0.4:
        yield from _rollout(dice, cast, begin, span)
    if dice.random() < 0.6 and cast.replaceable:
        at = _moment(dice, begin, max(span - 2400.0, 1.0))
        yield Entry(at, "node_dies", {"node": dice.choice(cast.replaceable), "seconds": dice.choice((900.0, 1800.0))})
    groups = _groups_of(dice.choices([*_THEMES], (4, 2, 2, 1, 1))[0])
    for _ in range(count):
        what, given = _drawn(dice, cast, groups)
        yield Entry(_moment(dice, begin, span), what, given)


def _rare(dice: Random, cast: Cast, drawn: Sequence[Entry], seconds: float) -> Iterator[Entry]:
    """Yields the entries of rare worlds, in about a third of the plans. Other random numbers than those of the other
    entries decide, so that a new rare world does not change all plans.
    """
    begin, span = BEGIN_SECONDS, max(seconds - 2400.0, 1.0)
    if dice.random() < 0.1 and not any(entry.what.startswith("clock") for entry in drawn):
        yield Entry(0.0, "undated", {"seconds": seconds})
    if dice.random() < 0.1 and cast.gated:  # the gate's first pass cannot read the workload
        yield Entry(0.0, "hidden", {"namespace": cast.spaces[dice.choice(cast.gated)], "status": 403, "seconds": 600.0})
    if dice.random() < 0.12:
        yield from _dying(dice, dice.choice(cast.residents), _moment(dice, begin, span))
    if dice.random() < 0.15 and len(cast.residents) > 1:
        yield from _crowd(dice, cast, _moment(dice, begin, span))


def _dying(dice: Random, name: str, at: float) -> Iterator[Entry]:
    """A pod that needs long to end exceeds its budget while it ends."""
    yield Entry(at, "slow_end", {"name": name, "grace": dice.choice((100, 120, 140)), "seconds": 900.0})
    yield Entry(round(at + 1.0, 1), "restart", {"name": name})
    yield Entry(round(at + 3.0, 1), "burst", {"name": name, "mib": dice.choice((4000, 9000)), "seconds": 900.0})


def _crowd(dice: Random, cast: Cast, at: float) -> Iterator[Entry]:
    """Half of the residents exceed their budgets while the others start again, in all pools."""
    over = dice.sample(cast.residents, k=len(cast.residents) // 2)
    for name in over:
        mib = dice.choice((1500, 4000, 9000))
        yield Entry(round(at + 5.0 * dice.random(), 1), "burst", {"name": name, "mib": mib, "seconds": 900.0})
    for name in cast.residents:
        if name not in over:
            yield Entry(round(at + 10.0, 1), "restart", {"name": name, "pulls": 20.0})


def _groups_of(theme: str) -> tuple[float, float, float, float]:
    return _THEMES[theme]


def _moment(dice: Random, begin: float, span: float) -> float:
    return round(begin + dice.random() * span, 1)


def _jobs(dice: Random, cast: Cast, begin: float, span: float, count: int) -> Iterator[Entry]:
    for number in range(count):
        mib = min(dice.choice((500, 1000, 1500)), cast.queue_mib)
        given = {"name": f"job-{number}", "mib": mib, "over": dice.choice((0, 0, 300, 2500))}
        given |= {"seconds": float(dice.choice((120, 600, 1800))), "rank": dice.choice((100, 1000))}
        given |= {"kind": dice.choice(("Job", "Job", *KINDS))}
        yield Entry(_moment(dice, begin, span), "job", given)


def _company(dice: Random, cast: Cast, begin: float, span: float) -> Iterator[Entry]:
    first, second = dice.sample(cast.residents, 2)
    at, seconds = round(begin + dice.random() * max(span - 2400.0, 0.0), 1), 2400.0
    troubles: list[tuple[str, dict[str, Any]]] = [
        ("refuses", {"name": first, "status": dice.choice((500, 403))}),
        ("blocks", {"name": first}),
        ("slow_end", {"name": first, "grace": 3600}),
        ("hidden", {"namespace": cast.spaces[first], "status": 403}),
        ("lost", {"part": f"{WATCHDOG} PATCH"}),
    ]
    if cast.churns:
        troubles.append(("churn", {"name": cast.churns, "lives": 3.0, "pods": 8}))
    what, given = dice.choice(troubles)
    yield Entry(at, what, given if what == "lost" else {**given, "seconds": seconds})
    for name in (first, second):
        at = round(at + 60.0 + 600.0 * dice.random() ** 2, 1)
        mib = dice.choice((700, 1500, 2500, 4000))
        yield Entry(at, "burst", {"name": name, "mib": mib, "seconds": seconds, "lies": True})


def _rollout(dice: Random, cast: Cast, begin: float, span: float) -> Iterator[Entry]:
    at = _moment(dice, begin, span)
    for name in dice.sample(cast.residents, k=max(len(cast.residents) * 2 // 3, 1)):
        if dice.random() < 0.2:
            yield Entry(at, "blocks", {"name": name, "seconds": 600.0, "new": dice.random() < 0.5})
        yield Entry(round(at + 4.0 * dice.random(), 1), "restart", {"name": name, "pulls": dice.choice((1.0, 20.0))})


def _demand(dice: Random, name: str) -> dict[str, Any]:
    over = {"over": dice.choice((500, 2000))} if dice.random() < 0.15 else {}
    return {"name": name, "seconds": float(dice.choice((60, 600, 1800))), **over}


def _drawn(dice: Random, cast: Cast, weights: Sequence[float]) -> tuple[str, dict[str, Any]]:
    seconds = dice.choice(SECONDS)
    groups = (_of_tenants, _of_nodes, _of_agents, _of_the_api)
    group = dice.choices(groups, weights)[0]
    kinds = group(dice, cast, seconds)
    chosen = dice.choices(kinds, weights=[weight for weight, _, _ in kinds])[0]
    return chosen[1], chosen[2]


def _of_tenants(dice: Random, cast: Cast, seconds: float) -> Sequence[Kind]:
    name, node = dice.choice(cast.residents), dice.choice(cast.nodes)
    space = cast.spaces[dice.choice((*cast.residents, *cast.gated))]
    kinds: list[Kind] = [
        (10, "restart", {"name": name, "pulls": float(dice.choice((1, 2, 20, 90)))}),
        (8, "idle", {"name": name, "mib": dice.choice((300, 900, 1200)), "seconds": seconds}),
        (8, "burst", {"name": name, "mib": dice.choice((400, 1500, 4000, 9000)), "seconds": seconds}),
        (6, "burst", {"name": name, "mib": dice.choice((1500, 4000, 9000)), "seconds": seconds, "lies": True}),
        (6, "leak", {"name": name, "mib": dice.choice((20, 100, 500)), "seconds": seconds}),
        (2, "leak", {"name": name, "mib": dice.choice((100, 500)), "seconds": seconds, "lies": True}),
        (3, "crash_loop", {"name": name, "every": float(dice.choice((8, 20, 60))), "seconds": seconds}),
        (3, "slow_end", {"name": name, "grace": dice.choice((60, 600, 3600)), "seconds": seconds}),
        (3, "blocks", {"name": name, "seconds": seconds, "new": dice.random() < 0.3}),
        (3, "refuses", {"name": name, "status": dice.choice((500, 403)), "seconds": seconds}),
        (1, "hidden", {"namespace": space, "status": 403, "seconds": seconds}),
        (3, "outsider", {"node": node, "mib": dice.choice((300, 1500, 4000)), "seconds": seconds}),
    ]
    kinds.append((4, "hostile", {"name": name, "trick": dice.choice([*TRICKS]), "seconds": seconds}))
    if cast.gated:
        gated = dice.choice(cast.gated)
        kinds.append((3, "scales", {"name": gated, "replicas": dice.choice((0, 1, 1, 2)), "seconds": seconds}))
        kinds.append((2, "hostile_probe", {"name": gated, "answer": dice.choice([*ANSWERS]), "seconds": seconds}))
    if cast.churns:
        churn = {"name": cast.churns, "lives": float(dice.choice((5, 20))), "seconds": 100.0}
        kinds.append((1, "churn", churn))
    return kinds


def _of_nodes(dice: Random, cast: Cast, seconds: float) -> Sequence[Kind]:
    node = dice.choice(cast.nodes)
    trouble = dice.choice(("gone", "hangs", "frozen", "lies", "fails", "stalls", "loses", "partial", "halved"))
    return (
        (3, "node_dies", {"node": node, "seconds": seconds}),
        (3, "reboots", {"node": node, "forgets": dice.random() < 0.5}),
        (3, "label", {"node": node, "key": dice.choice(("memory", "count", "present")), "seconds": seconds}),
        (5, "exporter", {"node": node, "kind": trouble, "seconds": seconds}),
        (1, "overwrites", {"node": node, "seconds": seconds}),
        (1, "node_patch", {"node": node, "status": 422, "seconds": seconds}),
        (0.7, "destroys", {"seconds": seconds}),
    )


def _of_agents(dice: Random, cast: Cast, seconds: float) -> Sequence[Kind]:
    worker = dice.choice(("worker-1", "worker-2"))
    agent = dice.choice((RECONCILE, WATCHDOG, GATE, "extender"))
    kinds: list[Kind] = [
        (4, "kill", {"agent": agent, "requests": dice.randrange(12)}),
        (2, "twice", {"agent": dice.choice((WATCHDOG, GATE)), "seconds": seconds}),
        (1, "forgets", {}),
        (2, "extender_restarts", {"seconds": float(dice.choice((5, 30, 120)))}),
        (2, "node_dies", {"node": worker, "seconds": seconds}),
        (1, "clock_of_the_api", {"ahead": float(dice.choice((-400, 40, 3600))), "seconds": seconds}),
        (2, "clock", {"worker": worker, "ahead": float(dice.choice((-400, -20, 20, 400, 7200))), "seconds": seconds}),
    ]
    if cast.schedulers > 1:
        change = {"seconds": float(dice.choice((2, 16))), "killed": dice.random() < 0.5}
        kinds.append((8, "leader_changes", change))
    return kinds


def _of_the_api(dice: Random, _cast: Cast, seconds: float) -> Sequence[Kind]:
    kind = dice.choice(("lost", "doubled", "silent", "409", "410", "422", "429", "500"))
    return (
        (4, "api", {"kind": kind, "odds": dice.choice((0.02, 0.2, 0.6)), "seconds": seconds}),
        (2, "lost", {"part": dice.choice((_JOURNAL, "/eviction", "/binding", "/scale", "/status"))}),
        (2, "slow_api", {"latency": dice.choice((0.3, 3.0, 12.0)), "seconds": seconds}),
        (2, "outage", {"seconds": seconds}),
        (3, "watches_break", {}),
    )
