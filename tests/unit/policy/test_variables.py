"""Tests that each admission policy declares the variables that its expressions read."""

import json
import re
from dataclasses import replace

from tenancy.admission.parts import AdmissionRules, parts
from tenancy.frameworks import FRAMEWORKS
from tenancy.ledger import Seat
from tests.support.consumers import FULL


def test_seats_on_several_devices_of_another_tenant_are_no_variable_of_a_queue_tenants_policy() -> None:
    """Before the fix, the API server refused the policy, because it read an undefined field."""
    seats = (
        Seat(name="own", tenant="team-a", pool="t4", gpumem_mib=500),
        Seat(name="wide", tenant="immich", pool="t4", gpumem_mib=100, devices_per_pod=2),
    )
    ledger = replace(FULL, seats=(*FULL.seats, *seats))
    assert ledger.admission is not None
    rules = AdmissionRules(ledger=ledger, terms=ledger.admission, frameworks=[FRAMEWORKS[n] for n in ledger.frameworks])
    for policy in parts(rules):
        declared = {variable["name"] for variable in policy["spec"].get("variables", ())}
        read = set(re.findall(r"variables\.(\w+)", json.dumps(policy["spec"])))
        assert read <= declared, policy["metadata"]["name"]
