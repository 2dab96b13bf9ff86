"""Tests seats that are ResourceClaims. tests/e2e tests them on a real API server."""

from dataclasses import replace

import pytest

from components.claims import Claims, ClaimsArgs
from tenancy.choices import ConsumableShares
from tenancy.ledger import Seat
from tests.support.engine import Graph
from tests.support.given import LEDGER, declared

VISION = Seat(name="vision", tenant="vision", pool="t4", gpumem_mib=2048, replicas=2)
SPEECH = Seat(name="speech", tenant="vision", pool="t4", gpumem_mib=1000)
CLAIMED = replace(LEDGER, seats=(*LEDGER.seats, SPEECH, VISION), claimed=ConsumableShares.MEMORY)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Claims, "claims", ClaimsArgs(ledger=CLAIMED))


def test_a_claim_asks_for_its_part_of_the_reserve_too(graph: Graph) -> None:
    template = graph.one("ResourceClaimTemplate", "claims-vision-template").inputs
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    # 2048 x 15360 / 14000, rounded up to whole MiB
    assert request["exactly"]["capacity"]["requests"] == {"memory": "2247Mi"}


def test_devices_are_shared_only_if_the_driver_shares_memory(graph: Graph) -> None:
    alone = declared(Claims, "claims", ClaimsArgs(ledger=replace(CLAIMED, claimed=ConsumableShares.DISABLED)))
    chosen = [str(each.one("DeviceClass", "claims-chat-class").inputs["spec"]) for each in (graph, alone)]
    assert ["allowMultipleAllocations" in each for each in chosen] == [True, False]
    assert "extendedResourceName" not in chosen[0]


def test_a_tenants_quota_is_the_replicas_of_each_of_its_seats(graph: Graph) -> None:
    assert graph.one("ResourceQuota", "claims-vision-quota").inputs["spec"]["hard"] == {
        "speech.gpumem.example.com.deviceclass.resource.k8s.io/devices": "1",
        "vision.gpumem.example.com.deviceclass.resource.k8s.io/devices": "2",
    }


def test_quotas_and_policies_are_there_before_there_is_anything_to_claim(graph: Graph) -> None:
    limits = [*graph.all("ValidatingAdmissionPolicyBinding"), *graph.all("ResourceQuota")]
    assert len(limits) == 5
    for found in graph.all("DeviceClass"):
        assert all(graph.depends_on(found, limit) for limit in limits)
    for found in graph.all("ResourceClaimTemplate"):
        assert any(graph.depends_on(found, each) for each in graph.all("DeviceClass"))
