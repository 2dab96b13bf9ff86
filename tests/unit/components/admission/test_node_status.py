"""Tests that reconcile's admission policy names every field of a node's status."""

import json
from importlib import resources

from components.admission import node_status
from tenancy.names import Names

SPEC = node_status.reconcile_writes(Names("example.com"), "system")["spec"]
HELD = {validation["expression"] for validation in SPEC["validations"]}


def test_every_field_of_the_status_but_the_two_maps_is_held() -> None:
    schemas = resources.files("kubernetes_validate") / "kubernetes-json-schema" / "v1.36.0-local"
    status = set(json.loads((schemas / "nodestatus-v1.json").read_text())["properties"])
    assert {"capacity", "allocatable", *node_status.STATUS} == status
    assert {f"object.?status.{field} == oldObject.?status.{field}" for field in node_status.STATUS} <= HELD
