"""Tests that the policy pack accepts the objects of popular charts without GPUs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.rule import an_object
from tenancy.host_memory.pool import HostMemoryPools
from tests.support.graphs import LEDGER, RBAC, Manifest, Program, judge
from tests.support.memory_pools import NODE_4

CHARTS: dict[str, dict[str, Any]] = yaml.load(
    Path(__file__).with_name("charts.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)


def program(chart: str) -> Program:
    given = CHARTS[chart]
    home = given["namespace"]
    account = {"kind": "ServiceAccount", "name": chart, "namespace": home}
    objects = [workload(each, home) for each in given["workloads"]]
    for number, right in enumerate(given.get("rights", ())):
        name, kind = right.get("name", f"{chart}-{number}"), right["kind"]
        within = home if kind == "Role" else None
        ref = {"apiGroup": RBAC, "kind": kind, "name": name}
        objects.append(
            an_object(f"{RBAC}/v1", f"{kind}Binding", f"{chart}-{number}", within, roleRef=ref, subjects=[account])
        )
        if "verbs" in right:
            rule = {"apiGroups": right["groups"], "resources": right["resources"], "verbs": right["verbs"]}
            rule |= {"resourceNames": right["names"]} if "names" in right else {}
            objects.append(an_object(f"{RBAC}/v1", kind, name, within, rules=[rule]))
    return {str(number): each for number, each in enumerate(objects)}


def workload(given: dict[str, Any], namespace: str) -> Manifest:
    spec: dict[str, Any] = {
        "containers": [container(number, each) for number, each in enumerate(given["containers"])],
        "volumes": [{"name": f"v{n}", "hostPath": {"path": p}} for n, p in enumerate(given.get("host_paths", ()))],
        "tolerations": given.get("tolerations", []),
        "nodeSelector": given.get("node_selector", {}),
        "hostNetwork": given.get("host_network", False),
    }
    template = {"metadata": {"labels": {"app.kubernetes.io/name": given["name"]}}, "spec": spec}
    versions = {"Job": "batch/v1", "CronJob": "batch/v1"}
    inner = {"jobTemplate": {"spec": {"template": template}}} if given["kind"] == "CronJob" else {"template": template}
    return an_object(versions.get(given["kind"], "apps/v1"), given["kind"], given["name"], namespace, spec=inner)


def container(number: int, given: dict[str, Any]) -> dict[str, Any]:
    amounts = {part: {"memory": given[part]} for part in ("requests", "limits") if part in given}
    context = {"privileged": True} if given.get("privileged") else {}
    return {"name": f"c{number}", "image": given["image"], "resources": amounts, "securityContext": context}


CONFIG = {"ledger": LEDGER.to_data(), "memory_pools": HostMemoryPools(pools=(NODE_4,)).to_data()}


@pytest.mark.no_cover
@pytest.mark.parametrize("chart", sorted(CHARTS))
def test_a_chart_that_uses_no_gpu_passes(chart: str) -> None:
    assert judge(program(chart), CONFIG) == []
