"""Tests that other programs may not change the platform's objects."""

from typing import Any

import pytest

from policy.rule import an_object
from tenancy import names
from tests.support import graphs
from tests.support.consumers import WITH_MEMORY_POOLS
from tests.support.graphs import GPUMEM, LEDGER, UNKNOWN, Manifest, judge

SCHEDULING = "scheduling.k8s.io/v1"
CONFIG = WITH_MEMORY_POOLS
UNTIL = "is unknown until the update; write its value in the program, not another resource's output"
OWN = "is the platform's own, which this program would change; remove it, or name it otherwise"


def priority(name: str, value: object, **body: Any) -> Manifest:
    return an_object(SCHEDULING, "PriorityClass", name, value=value, **body)


def quota(name: str, namespace: str, **hard: str) -> Manifest:
    return an_object("v1", "ResourceQuota", name, namespace, spec={"hard": hard})


def limit_range(namespace: str, part: str, **resources: str) -> Manifest:
    return an_object("v1", "LimitRange", "x", namespace, spec={"limits": [{"type": "Container", part: resources}]})


def local_queue(name: str, namespace: str, queue: str) -> Manifest:
    return graphs.kueue("LocalQueue", name, namespace, spec={"clusterQueue": queue})


def of_cpus(name: str) -> Manifest:
    flavor = {"name": "any-cpu", "resources": [{"name": "example.com/licence", "nominalQuota": 1}]}
    groups = [{"coveredResources": ["example.com/licence"], "flavors": [flavor]}]
    return graphs.kueue("ClusterQueue", name, spec={"namespaceSelector": {}, "resourceGroups": groups})


GIVES = "to every container in {}, or asks it of them; remove it: quota and admission bound who has it"
REFUSED: dict[str, tuple[Manifest, str]] = {
    "the GPU's class": (priority("gpu-workload", 2_000_000), OWN),
    "a tenant's class": (priority("tier-2-gpu", 5), OWN),
    "a part of the GPU's class": (
        an_object(SCHEDULING, "PriorityClassPatch", "gpu-workload", preemptionPolicy="Never"),
        OWN,
    ),
    "a class above the GPU's": (
        priority("mine", 1_200_001),
        "value 1200001 is above that of gpu-workload, so that its pods preempt seats; write 1200000 or less, or "
        "preemptionPolicy: Never, or list it under admission.exempt_priorities of the platform's stack if only pods of "
        "exempt namespaces have it",
    ),
    "a tenant's quota": (quota(names.SEATS, "immich", **{f"requests.{GPUMEM}": "99999"}), OWN),
    "a memory pool's quota": (quota("memory-pool-homelab-disposable", "immich", pods="5"), OWN),
    "gpumem for every container": (
        limit_range("llama-swap", "max", **{GPUMEM: "5000"}),
        f"gives {GPUMEM} {GIVES.format('llama-swap')}",
    ),
    "a device of a node for every container": (
        limit_range("llama-swap", "min", **{"viktorbarzin.me/gpu-count": "1"}),
        f"gives viktorbarzin.me/gpu-count {GIVES.format('llama-swap')}",
    ),
    "a GPU for every container of nobody's": (
        limit_range("web", "defaultRequest", **{"nvidia.com/mig-1g.5gb": "1"}),
        f"gives nvidia.com/mig-1g.5gb {GIVES.format('web')}",
    ),
    "memory for every victim": (
        limit_range("agents", "default", memory="1Gi"),
        "gives memory to every container in agents, whose disposable pods go first because they ask for none; "
        "remove it",
    ),
    "a tenant's queue": (local_queue("team-a-gpu", "team-a", "gpu-cq"), OWN),
    "a queue to what is another tenant's": (
        local_queue("mine", "immich", "gpu-cq"),
        "ClusterQueue gpu-cq is for team-a; remove it, or add queues.local_queues.mine: {tenant: immich, "
        "cluster_queue: gpu-cq} to the platform's stack",
    ),
    "a queue to nobody knows what": (
        local_queue("mine", "team-a", "elsewhere"),
        "ClusterQueue elsewhere is in neither the ledger nor this program; remove it, or add",
    ),
    "the ledger's cluster queue": (graphs.cluster_queue("gpu-any", nominal=5), OWN),
    "the ledger's flavor": (graphs.kueue("ResourceFlavor", "gpu-any", spec={}), OWN),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_change_the_platforms_is_refused_in_one_line(case: str) -> None:
    manifest, message = REFUSED[case]
    reported = judge({"x": manifest}, CONFIG)
    assert len(reported) == 1, reported
    assert reported[0].startswith(f"platform: {manifest['kind']} "), reported
    assert message in reported[0]


ACCEPTED: dict[str, Manifest] = {
    "a class as high as the GPU's": priority("mine", 1_200_000),
    "a class above it that preempts nobody": priority("mine", 1_000_000_000, preemptionPolicy="Never"),
    "a class above it for the exempt": priority("longhorn-critical", 1_000_000_000),
    "another quota of a tenant": quota("cpus", "immich", **{"requests.cpu": "10"}),
    "a quota of nobody's": quota(names.SEATS, "web", pods="5"),
    "cores for every container": limit_range("immich", "default", cpu="1", memory="1Gi"),
    "a GPU for every container of the exempt": limit_range("nvidia", "default", **{"nvidia.com/gpu": "1"}),
    "a victim's disk": limit_range("agents", "max", **{"ephemeral-storage": "1Gi"}),
    "a second queue of the tenant's own": local_queue("nightly", "team-a", "gpu-cq"),
    "a queue of nobody's": local_queue("mine", "web", "elsewhere"),
    "another flavor": graphs.kueue("ResourceFlavor", "any-cpu", spec={}),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_stands_next_to_it_passes(case: str) -> None:
    assert judge({"x": ACCEPTED[case]}, CONFIG) == []


@pytest.mark.parametrize(
    ("manifest", "line"),
    [
        (
            priority("mine", UNKNOWN),
            f"priorities: PriorityClass mine: cannot be proven: value {UNTIL}",
        ),
        (
            local_queue("mine", "immich", UNKNOWN),
            f"queue-coverage: LocalQueue immich/mine: cannot be proven: spec.clusterQueue {UNTIL}",
        ),
        (
            limit_range("immich", "default", **{"nvidia.com/gpu": UNKNOWN}),
            f"platform: LimitRange immich/x: gives nvidia.com/gpu {GIVES.format('immich')}",
        ),
    ],
    ids=["a class", "a queue", "a limit"],
)
def test_what_is_unknown_of_it_is_one_line_as_well(manifest: Manifest, line: str) -> None:
    assert judge({"x": manifest}, CONFIG) == [line]


def test_a_class_for_the_exempt_is_for_nobody_else() -> None:
    def named(namespace: str) -> list[str]:
        spec = {"priorityClassName": "longhorn-critical", "containers": [{"name": "main", "image": "a:1.2.3"}]}
        return judge(
            {"x": an_object("apps/v1", "Deployment", "x", namespace, spec={"template": {"spec": spec}})}, CONFIG
        )

    assert named("nvidia") == []
    refused = "priorityClassName longhorn-critical is only for exempt namespaces: remove it"
    assert named("immich") == [f"admission: Deployment immich/x: {refused}"]
    assert named("web") == [
        f"admission: Deployment web/x: {refused}; or, for a driver, a device plugin or a part of the cluster, add web "
        "to admission.exempt_namespaces of the platform's stack"
    ]


def test_a_tenant_may_queue_for_what_the_program_itself_declares() -> None:
    program = {
        "x": local_queue("mine", "immich", "licences"),
        "queue": of_cpus("licences"),
        "flavor": ACCEPTED["another flavor"],
    }
    assert judge(program, CONFIG) == []


def test_in_the_platforms_own_program_nothing_is_somebody_elses() -> None:
    """The rule `ledger` reports the difference."""
    program = {"ledger": graphs.ledger_object(LEDGER)} | {case: manifest for case, (manifest, _) in REFUSED.items()}
    for config in (None, CONFIG):
        assert "platform" not in graphs.rules_of(judge(program, config))
