"""Agents and ledger of two versions: while a stack is upgraded or rolled back, each reads what the other wrote."""

import json
from dataclasses import replace
from typing import Any

import pytest

from agents.kube.ledger import LedgerError, StoredLedger, stored_ledger
from tenancy.ledger import Ledger, Pool, QueueQuota, Seat
from tenancy.names import LEDGER, LEDGER_KEY

T4 = Pool(
    name="t4", node_selector={"gpu": "t4"}, nodes=1, device_count=1, memory_mib=15360, reserve_mib=1360, floor_mib=1536
)
NOW = Ledger(
    domain="viktorbarzin.me",
    pools=(T4,),
    seats=(Seat(name="llama-swap", tenant="llama-swap", pool="t4", gpumem_mib=5000),),
    quotas=(QueueQuota(queue="q", flavor="f", pool="t4", resource="viktorbarzin.me/gpumem", nominal=500),),
)

# As agents and components of commit 591a160 wrote and read it, which refused a key that they did not know.
BEFORE = {
    "domain": "viktorbarzin.me",
    "pools": [
        {
            "name": "t4",
            "node_selector": {"gpu": "t4"},
            "nodes": 1,
            "device_count": 1,
            "sharing": "memory",
            "memory_mib": 15360,
            "reserve_mib": 1360,
            "floor_mib": 1536,
            "time_slices": 4,
        }
    ],
    "seats": [{"name": "llama-swap", "tenant": "llama-swap", "pool": "t4", "gpumem_mib": 5000, "replicas": 1}],
    "on_demand": [],
    "unbudgeted": [],
    "quotas": [
        {
            "queue": "q",
            "flavor": "f",
            "pool": "t4",
            "resource": "viktorbarzin.me/gpumem",
            "nominal": 500,
            "borrowing": 0,
        }
    ],
    "queue_tenants": [],
}


def stored(data: dict[str, Any]) -> StoredLedger:
    metadata = {"name": LEDGER, "resourceVersion": "1"}
    return stored_ledger({"metadata": metadata, "data": {LEDGER_KEY: json.dumps(data)}}, "system")


def test_agents_read_the_ledger_of_the_version_before() -> None:
    assert stored(BEFORE).ledger() == NOW
    assert stored(BEFORE).unknown_keys() == ("ledger.pools.0.time_slices",)


def test_agents_of_the_version_before_know_every_key_of_a_ledger_without_new_promises() -> None:
    written: Any = NOW.to_data()
    assert written.keys() <= BEFORE.keys()
    for part in ("pools", "seats", "quotas"):
        assert written[part][0].keys() <= BEFORE[part][0].keys()  # type: ignore[index]


def test_agents_leave_out_what_a_later_version_added_and_read_the_rest() -> None:
    later: Any = json.loads(json.dumps(NOW.to_data()))
    later["leases"] = [{"tenant": "a"}]
    later["pools"][0]["mig"] = {"profile": "1g.5gb"}
    later["seats"][0]["until"] = "2027-01-01"
    assert stored(later).ledger() == NOW
    assert stored(later).unknown_keys() == ("ledger.leases", "ledger.pools.0.mig", "ledger.seats.0.until")


def test_a_ledger_of_this_version_has_no_unknown_key() -> None:
    assert stored(NOW.to_data()).unknown_keys() == ()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"sharing": "mig"}, r"ledger\.pools\.0\.sharing: must be one of memory, whole \(got 'mig'\); run pulumi up"),
        ({"memory_mib": "15Gi"}, r"ledger\.pools\.0\.memory_mib: must be a whole number \(got '15Gi'\)"),
    ],
)
def test_a_known_key_with_a_value_that_is_not_understood_is_refused(change: dict[str, Any], problem: str) -> None:
    later: Any = json.loads(json.dumps(NOW.to_data()))
    later["pools"][0] |= change
    with pytest.raises(LedgerError, match=problem):
        stored(later).ledger()


def test_a_ledger_under_another_key_is_refused() -> None:
    """So a version whose ledger means something else keeps agents of before from reading it."""
    moved = stored_ledger({"metadata": {"name": LEDGER, "resourceVersion": "1"}, "data": {"ledger.v2.json": "{}"}}, "s")
    with pytest.raises(LedgerError, match=f"has no key {LEDGER_KEY}; run pulumi up"):
        moved.ledger()


def test_a_drivers_part_of_its_own_is_a_new_promise() -> None:
    ledger = replace(NOW, pools=(replace(T4, driver_reserved_mib=600),))
    assert stored(ledger.to_data()).ledger() == ledger
    assert "driver_reserved_mib" in json.dumps(ledger.to_data())
