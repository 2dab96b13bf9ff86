"""Tests that a refused preview proposes to take back a part of the change, and that the policy pack accepts it."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from stacks import settings
from stacks.preview.events import Op, Resource
from stacks.preview.remedies import ledger_before, remedies
from tenancy.ledger import Ledger, Seat
from tenancy.names import LEDGER as LEDGER_NAME
from tenancy.names import LEDGER_KEY
from tests.support import fit_oracle, graphs, prod, search
from tests.support.graphs import LEDGER, put
from tests.support.prod import Raw

SPEECH = {"tenant": "portal-stt", "pool": "t4", "gpumem_mib": 1000}
# Each case has the keys that a change writes in prod's stack file, and the remedy.
CHANGES: dict[str, tuple[dict[str, object], str]] = {
    "one budget is raised": (
        {"residents.frigate.gpumem_mib": 3500},
        "raises residents.frigate.gpumem_mib from 2000 to 3500; write residents.frigate.gpumem_mib: 2488",
    ),
    "a resident is added": (
        {"residents.speech": SPEECH},
        "adds residents.speech with 1000 MiB; write residents.speech.gpumem_mib: 488",
    ),
    "a resident is added that has no room": (
        {"pools.t4.floor_mib": 2024, "residents.speech": SPEECH},
        "adds residents.speech with 1000 MiB; remove residents.speech",
    ),
    "replicas are added": (
        {"residents.frigate.replicas": 2},
        "raises residents.frigate.replicas from 1 to 2; write residents.frigate.replicas: 1",
    ),
    "the reserve is raised": (
        {"pools.t4.reserve_mib": 3000},
        "raises pools.t4.reserve_mib from 1360 to 3000; write pools.t4.reserve_mib: 2024",
    ),
    "the floor is raised": (
        {"pools.t4.floor_mib": 3000},
        "raises pools.t4.floor_mib from 1536 to 3000; write pools.t4.floor_mib: 2024",
    ),
    "a device is smaller": (
        {"pools.t4.memory_mib": 14_000},
        "lowers pools.t4.memory_mib from 15360 to 14000; write pools.t4.memory_mib: 14872",
    ),
    "an unbudgeted workload needs more": (
        {"unbudgeted.android-emulator.measured_mib": 2000},
        "raises unbudgeted.android-emulator.measured_mib from 154 to 2000; "
        "write unbudgeted.android-emulator.measured_mib: 910",
    ),
    "two budgets are raised, and each alone is too much": (
        {"residents.frigate.gpumem_mib": 3500, "residents.llama-swap.gpumem_mib": 6000},
        "raises residents.frigate.gpumem_mib from 2000 to 3500, raises residents.llama-swap.gpumem_mib from 5000 to "
        "6000; write residents.frigate.gpumem_mib: 2000, write residents.llama-swap.gpumem_mib: 5488",
    ),
    "two budgets are raised, and one of them is enough": (
        {"residents.frigate.gpumem_mib": 2400, "residents.llama-swap.gpumem_mib": 5300},
        "raises residents.frigate.gpumem_mib from 2000 to 2400, raises residents.llama-swap.gpumem_mib from 5000 to "
        "5300; write residents.frigate.gpumem_mib: 2188, or write residents.llama-swap.gpumem_mib: 5088",
    ),
}


def changed(changes: dict[str, object]) -> Raw:
    config = prod.raw()
    for key, value in changes.items():
        put(config, key, value)
    return config


def ledger_of(config: Raw) -> Ledger:
    return settings.parse(config).ledger()


def followed(config: Raw, line: str) -> Iterator[Raw]:
    """Yields the stack file after each way of the remedy."""
    for way in line.partition("; ")[2].split(", or "):
        after = json.loads(json.dumps(config))
        for key, number in re.findall(r"write (\S+): (\d+)", way):
            put(after, key, int(number))
        for key in re.findall(r"remove residents\.(\S+)", way):
            del after["residents"][key]
        yield after


@pytest.mark.parametrize("case", CHANGES)
def test_a_remedy_names_what_this_change_took_and_the_pack_accepts_it(case: str) -> None:
    changes, sentence = CHANGES[case]
    config = changed(changes)
    assert graphs.judge(prod.declared(config))
    (line,) = remedies(ledger_of(config), ledger_of(prod.raw()))
    assert line == f"t4: this change {sentence}"
    for after in followed(config, line):
        assert graphs.judge(prod.declared(after)) == []


def test_what_fits_needs_no_remedy() -> None:
    assert [*remedies(LEDGER.with_budgets({"frigate": 2100}), LEDGER)] == []


def test_a_stack_without_a_state_has_no_remedy_of_its_own() -> None:
    assert [*remedies(LEDGER.with_budgets({"llama-swap": 7000}), None)] == []


def test_seats_that_nobody_touched_are_not_named() -> None:
    change = LEDGER.with_budgets({"frigate": 13_000})
    (line,) = remedies(change, LEDGER)
    assert "frigate" in line
    assert "llama-swap" not in line


def test_a_pool_that_did_not_fit_before_gets_no_remedy() -> None:
    before = LEDGER.with_budgets({"llama-swap": 9000})
    assert [*remedies(before.with_budgets({"frigate": 2500}), before)] == []


@pytest.mark.search
def test_each_way_of_a_remedy_fits_and_a_pool_that_fitted_before_has_a_remedy() -> None:
    dice = search.dice("remedies")
    for _ in range(search.cases(50, soak=5000)):
        case = replace(fit_oracle.promises(dice), wanted=None)
        before = drawn_before(dice, case.ledger)
        lines = [line for line in remedies(case.ledger, before) if line.startswith("p: ")]
        seen = (search.seed(), case, before, lines)
        if fit_oracle.budgets_fit(case, {}):
            assert not lines, seen
        elif fit_oracle.budgets_fit(of(before), {}):
            assert len(lines) == 1, seen
        for way in [way for line in lines for way in line.partition("; ")[2].split(", or ")]:
            assert fit_oracle.budgets_fit(of(written(case.ledger, way)), {}), seen


def drawn_before(dice: Random, ledger: Ledger) -> Ledger:
    """Returns a ledger in which some seats are smaller or missing, and in which the pool may have more room."""
    pool, *others = ledger.pools
    seats = tuple(
        replace(seat, gpumem_mib=dice.randint(1, seat.gpumem_mib)) if dice.random() < 0.5 else seat
        for seat in ledger.seats
        if dice.random() < 0.8
    )
    if dice.random() < 0.4:
        pool = replace(pool, nodes=pool.nodes + 1, floor_mib=dice.randint(0, pool.floor_mib))
    return replace(ledger, pools=(pool, *others), seats=seats)


def of(ledger: Ledger) -> fit_oracle.Promises:
    return fit_oracle.Promises(ledger=ledger, pool=ledger.pools[0], wanted=None, least={})


def written(ledger: Ledger, way: str) -> Ledger:
    data: Any = ledger.to_data()
    parts = {"pools": data["pools"], "residents": data.setdefault("seats", [])}
    for part, name, key, number in re.findall(r"write (\w+)\.(\w+)\.(\w+): (\d+)", way):
        (entry,) = (entry for entry in parts[part] if entry["name"] == name)
        entry[key] = int(number)
    for name in re.findall(r"remove residents\.(\w+)", way):
        data["seats"] = [entry for entry in data["seats"] if entry["name"] != name]
    return Ledger.from_data(data)


def test_the_ledger_before_this_change_is_read_from_pulumis_state() -> None:
    before = {"metadata": {"name": LEDGER_NAME}, "data": {LEDGER_KEY: json.dumps(LEDGER.to_data())}}
    urn = "urn:pulumi:prod::gpu-tenancy::kubernetes:core/v1:ConfigMap::ledger"
    assert ledger_before([Resource(urn=urn, parent="", op=Op.UPDATE, before=before)]) == LEDGER
    assert ledger_before([Resource(urn=urn, parent="", op=Op.CREATE)]) is None


@pytest.mark.no_cover
def test_a_remedy_of_many_seats_is_not_searched_for_minutes() -> None:
    pool = replace(LEDGER.pools[0], nodes=250, device_count=2, floor_mib=0)
    ledger = replace(LEDGER, pools=(pool, *LEDGER.pools[1:]), seats=())
    many = [Seat(name=f"s{number}", tenant="t", pool="t4", gpumem_mib=3000 + number) for number in range(1200)]
    added = [replace(each, name=f"more-{each.name}") for each in many[:1000]]
    before, after = replace(ledger, seats=tuple(many)), replace(ledger, seats=(*many, *added))
    (line,) = remedies(after, before)
    assert line.count("adds residents.") == 8
    assert re.search(r" and \d+ more; take back the \d+ largest of these$", line)
