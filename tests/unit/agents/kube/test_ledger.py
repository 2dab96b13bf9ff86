"""Tests that agents read ledgers of other versions during an upgrade or a rollback."""

import json
from typing import Any

import pytest

from agents.kube.ledger import LedgerError, StoredLedger, stored_ledger
from tenancy.ledger import Ledger, QueueQuota, Seat
from tenancy.names import LEDGER, LEDGER_KEY
from tests.support.fake_cluster import T4

NOW = Ledger(
    domain="viktorbarzin.me",
    pools=(T4,),
    seats=(Seat(name="llama-swap", tenant="llama-swap", pool="t4", gpumem_mib=5000),),
    quotas=(QueueQuota(queue="q", flavor="f", pool="t4", resource="viktorbarzin.me/gpumem", nominal=500),),
)


def stored(data: dict[str, Any]) -> StoredLedger:
    metadata = {"name": LEDGER, "resourceVersion": "1"}
    return stored_ledger({"metadata": metadata, "data": {LEDGER_KEY: json.dumps(data)}}, "system")


def test_agents_leave_out_what_a_later_version_added_and_read_the_rest() -> None:
    later: Any = json.loads(json.dumps(NOW.to_data()))
    later["leases"] = [{"tenant": "a"}]
    later["pools"][0]["mig"] = {"profile": "1g.5gb"}
    later["seats"][0]["until"] = "2027-01-01"
    assert stored(later).ledger() == NOW
    assert stored(later).unknown_keys() == ("ledger.leases", "ledger.pools.0.mig", "ledger.seats.0.until")


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
    """A change of the ledger's meaning also changes its key in the ConfigMap, so that older agents do not read it."""
    moved = stored_ledger({"metadata": {"name": LEDGER, "resourceVersion": "1"}, "data": {"ledger.v2.json": "{}"}}, "s")
    with pytest.raises(LedgerError, match=f"has no key {LEDGER_KEY}; run pulumi up"):
        moved.ledger()
