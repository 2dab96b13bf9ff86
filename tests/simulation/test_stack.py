"""Tests that the simulation and a replay read the same values from a stack file as the program declares."""

import json

import pytest

from simulation.stack import environ_of
from tenancy.ledger import Ledger
from tenancy.names import GATE, LEDGER_KEY, RECONCILE, SCHEDULER, WATCHDOG
from tests.simulation.stack import CHANGES, config, stack
from tests.support import prod

AGENTS = {RECONCILE: "capacity-cron-job", WATCHDOG: "watchdog-cron-job", GATE: "gate-cron-job"}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_stack_without_the_engine_is_the_one_that_the_program_declares(kind: str) -> None:
    objects, found = prod.declared(config(kind)), stack(kind)
    (text,) = (each["data"][LEDGER_KEY] for each in objects.values() if LEDGER_KEY in each.get("data", {}))
    cron_jobs = {agent: objects[name]["spec"] for agent, name in AGENTS.items()}
    environ = {agent: environ_of(spec["jobTemplate"]["spec"]["template"]["spec"]) for agent, spec in cron_jobs.items()}
    environ[SCHEDULER] = environ_of(objects["scheduler-deployment"]["spec"]["template"]["spec"], "extender")
    assert (found.ledger_text, found.ledger) == (text, Ledger.from_data(json.loads(text)))
    assert found.environ == environ
    assert found.overlaps == {agent: spec.get("concurrencyPolicy") != "Forbid" for agent, spec in cron_jobs.items()}
