"""The rule on placement by device: each program breaks only it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tenancy import names
from tests.support import graphs
from tests.support.graphs import GPUMEM, SYSTEM, Program, judge, platform, put


def configured(change: Callable[[dict[str, Any]], object]) -> Program:
    """The platform with kube-scheduler's file changed."""
    program = platform()
    data = program["scheduler config"]["data"]
    config = json.loads(data["config.json"])
    change(config)
    data["config.json"] = json.dumps(config)
    return program


IN_THE_SCHEDULER: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "two that do not elect": (
        lambda c: put(c, "leaderElection.leaderElect", False),
        "several replicas need leader election by the Lease that the extender follows",
    ),
    "another Lease": (
        lambda c: put(c, "leaderElection.resourceName", "kube-scheduler"),
        "several replicas need leader election by the Lease that the extender follows",
    ),
    "no extender": (lambda c: put(c, "extenders", []), "it asks 0 extenders; ours binds"),
    "another resource": (
        lambda c: put(c, "extenders.0.managedResources.0.name", "a.com/gpumem"),
        f"its extender is asked for ['a.com/gpumem']; the ledger's resource is {GPUMEM}",
    ),
    "an extender that may be away": (lambda c: put(c, "extenders.0.ignorable", True), "its extender is ignorable"),
    "an extender that does not bind": (
        lambda c: put(c, "extenders.0.bindVerb", ""),
        "its extender must filter and bind, else no device is chosen",
    ),
    "an extender that is not asked whom to evict": (
        lambda c: put(c, "extenders.0.preemptVerb", ""),
        "its extender must preempt, else pods are evicted by the node's sum",
    ),
    "an extender that is sent whole nodes": (
        lambda c: put(c, "extenders.0.nodeCacheCapable", False),
        "its extender reads names of nodes alone (nodeCacheCapable: true)",
    ),
    "an extender of somebody else's": (
        lambda c: put(c, "extenders.0.urlPrefix", "https://extender.svc:9443"),
        "it looks for its extender at extender.svc:9443, which listens at 127.0.0.1:9443",
    ),
    "another port": (
        lambda c: put(c, "extenders.0.urlPrefix", "https://127.0.0.1:9444"),
        "it looks for its extender at 127.0.0.1:9444, which listens at 127.0.0.1:9443",
    ),
}


@pytest.mark.parametrize("case", IN_THE_SCHEDULER)
def test_a_wrong_configuration_of_the_scheduler_breaks_only_its_rule(case: str) -> None:
    change, message = IN_THE_SCHEDULER[case]
    reported = judge(configured(change))
    assert graphs.rules_of(reported) == {"scheduler"}
    assert any(message in line for line in reported), reported


def test_the_roles_that_kubernetes_made_for_a_scheduler_are_the_schedulers_alone() -> None:
    program = platform()
    bound = program[f"{names.SCHEDULER} ClusterRoleBinding"]
    kube = {**bound, "metadata": {"name": "kube"}, "roleRef": {"kind": "ClusterRole", "name": "system:kube-scheduler"}}
    assert judge(program | {"kube": kube}) == []
    other = {**kube, "subjects": [{"kind": "ServiceAccount", "name": names.WATCHDOG, "namespace": SYSTEM}]}
    assert judge(program | {"kube": other}) == [
        "rbac: ClusterRoleBinding kube: cannot be proven: gpu-vram-watchdog gets ClusterRole system:kube-scheduler, "
        "which is not in the graph"
    ]
