"""Tests the memory that a pod declares by its limits or its ResourceClaims."""

from dataclasses import replace
from typing import Any

import pytest

from tenancy.choices import ConsumableShares
from tenancy.ledger import Ledger, Pool, Seat

POOL = Pool(name="t4", node_selector={"gpu": "t4"}, nodes=1, device_count=1, memory_mib=15360)
LEDGER = Ledger(
    domain="example.com",
    claimed=ConsumableShares.MEMORY,
    pools=(POOL,),
    seats=(
        Seat(name="chat", tenant="chat", pool="t4", gpumem_mib=5000),
        Seat(name="speech", tenant="chat", pool="t4", gpumem_mib=700, replicas=2),
        Seat(name="vision", tenant="vision", pool="t4", gpumem_mib=3000),
    ),
)


def pod(*templates: str, gpumem: str = "0") -> dict[str, Any]:
    claims = [{"name": f"claim-{at}", "resourceClaimTemplateName": name} for at, name in enumerate(templates)]
    limits = {"example.com/gpumem": gpumem}
    return {"containers": [{"name": "main", "resources": {"limits": limits}}], "resourceClaims": claims}


@pytest.mark.parametrize(
    ("spec", "mib"),
    [
        (pod(), 0),
        (pod(gpumem="5k"), 5000),
        (pod("chat-gpumem"), 5000),
        (pod("chat-gpumem", "speech-gpumem"), 5700),
        (pod("chat-gpumem", gpumem="100"), 5100),
        (pod("vision-gpumem"), 0),
        (pod("foreign"), 0),
        ({"containers": [], "resourceClaims": [{"name": "a", "resourceClaimName": "mine"}]}, 0),
    ],
    ids=[
        "nothing",
        "limits",
        "a claim on a seat",
        "claims on two seats",
        "a claim and limits",
        "another tenant's seat",
        "another driver's template",
        "a claim of its own",
    ],
)
def test_a_pod_declares_its_limits_and_the_seats_that_it_claims(spec: dict[str, Any], mib: int) -> None:
    assert LEDGER.declared_mib("chat", spec) == mib


def test_where_seats_are_no_claims_a_template_of_that_name_declares_nothing() -> None:
    assert replace(LEDGER, claimed=None).declared_mib("chat", pod("chat-gpumem", gpumem="100")) == 100
