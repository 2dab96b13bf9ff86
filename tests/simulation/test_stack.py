"""Tests that the simulation reads the same values from a stack file as the Pulumi program."""

import json

import pytest

from tenancy.ledger import Ledger
from tenancy.names import GATE, LEDGER_KEY, RECONCILE, SCHEDULER, WATCHDOG
from tests.simulation import drawn_stack
from tests.simulation.model.stack import environ_of
from tests.simulation.stack import CHANGES, config, drawn, stack
from tests.support import prod

AGENTS = {RECONCILE: "capacity-cron-job", WATCHDOG: "watchdog-cron-job", GATE: "gate-cron-job"}


@pytest.mark.parametrize("kind", [*CHANGES, *map(drawn, range(1, 4))])
def test_a_stack_without_the_engine_is_the_one_that_the_program_declares(kind: str) -> None:
    objects, found = prod.declared(config(kind)), stack(kind)
    (text,) = (each["data"][LEDGER_KEY] for each in objects.values() if LEDGER_KEY in each.get("data", {}))
    cron_jobs = {agent: objects[name]["spec"] for agent, name in AGENTS.items()}
    environ = {agent: environ_of(spec["jobTemplate"]["spec"]["template"]["spec"]) for agent, spec in cron_jobs.items()}
    environ[SCHEDULER] = environ_of(objects["scheduler-deployment"]["spec"]["template"]["spec"], "extender")
    assert (found.ledger_text, found.ledger) == (text, Ledger.from_data(json.loads(text)))
    assert found.environ == environ
    assert found.overlaps == {agent: spec.get("concurrencyPolicy") != "Forbid" for agent, spec in cron_jobs.items()}


def test_drawn_stacks_are_valid_and_differ() -> None:
    ledgers = [stack(drawn(seed)).ledger for seed in range(1, 41)]
    assert all(drawn_stack.is_valid(config(drawn(seed))) for seed in range(1, 41))
    assert {len(ledger.shared_pools) for ledger in ledgers} == {1, 2, 3}
    assert {pool.device_count for ledger in ledgers for pool in ledger.shared_pools} == {1, 2, 4}
    assert {seat.devices_per_pod for ledger in ledgers for seat in ledger.seats} == {1, 2}
    assert {bool(ledger.queue_tenants) for ledger in ledgers} == {True, False}


def test_a_stack_whose_seats_do_not_fit_is_drawn_again() -> None:
    raw = config(drawn(1))
    name = next(iter(raw["residents"]))
    raw["residents"][name] = {**raw["residents"][name], "gpumem_mib": 100_000}
    assert not drawn_stack.is_valid(raw)
