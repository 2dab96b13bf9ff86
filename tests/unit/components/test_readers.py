from typing import Any

import pytest

from components.readers import operator_role, viewer_role
from tenancy import names

READS = {"get", "list"}


def rights(role: Any) -> set[tuple[str, str]]:
    return {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}


def test_a_viewer_reads_no_pod_and_of_config_maps_the_ledger_alone() -> None:
    assert {resource for _, resource in rights(viewer_role())} == {
        "configmaps",
        "nodes",
        "resourceslices",
        "clusterqueues",
    }
    (ledger,) = (rule for rule in viewer_role()["rules"] if "configmaps" in rule["resources"])
    assert (ledger["resourceNames"], ledger["verbs"]) == ([names.LEDGER], ["get"])


@pytest.mark.parametrize("role", [viewer_role(), operator_role()], ids=["viewer", "operator"])
def test_nobody_writes_and_nobody_reads_secrets(role: Any) -> None:
    assert {verb for verb, _ in rights(role)} <= READS
    assert not {resource for _, resource in rights(role)} & {"secrets", "serviceaccounts/token", "pods/exec"}
