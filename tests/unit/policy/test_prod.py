"""The prod stack as its program declares it: it breaks no rule, and one wrong key in it breaks what it should."""

from functools import cache
from typing import Any

import pytest
import yaml

from stacks import platform, settings
from tests.support import graphs
from tests.support.graphs import judge, put
from tests.support.paths import ROOT
from tests.support.prod import declared

STACK = ROOT / "Pulumi.prod.yaml"


@cache
def _text() -> str:
    return STACK.read_text()


def configuration() -> dict[str, Any]:
    """What Pulumi.prod.yaml says, by the names of its parts."""
    document = yaml.safe_load(_text())
    return {key.removeprefix("gpu-tenancy:"): value for key, value in document["config"].items()}


def test_prod_breaks_no_rule() -> None:
    program = declared(configuration())
    assert len(program) > 80
    assert judge(program) == []


def test_prod_without_placement_by_device_breaks_no_rule() -> None:
    parts = {name: part for name, part in configuration().items() if name != "scheduler"}
    assert judge(declared(parts)) == []


def test_prod_with_claimed_seats_breaks_no_rule() -> None:
    parts = configuration() | {"scheduler": {"placement": "dra"}}
    del parts["reconcile"]
    assert judge(declared(parts)) == []


def moving(**seats: int) -> dict[str, Any]:
    """Prod with a second node for claims, to which these seats have moved, MiB by name."""
    parts = configuration()
    labels = dict.fromkeys(parts["pools"]["t4"]["node_selector"], "claims")
    pool = parts["pools"]["t4"] | {"node_selector": labels, "placement": "dra"}
    moved = {
        name: seat | ({"pool": "t4-claims", "gpumem_mib": seats[name]} if name in seats else {})
        for name, seat in parts["residents"].items()
    }
    return parts | {"pools": parts["pools"] | {"t4-claims": pool}, "residents": moved}


def test_prod_on_its_way_to_claims_breaks_no_rule() -> None:
    assert judge(declared(moving(frigate=2000))) == []


def test_a_seat_that_does_not_fit_where_it_moves_is_refused() -> None:
    (reported, *_) = judge(declared(moving(frigate=14001)))
    assert "t4-claims" in reported


def on_nvidias_devices(**scheduler: str) -> dict[str, Any]:
    without = ("reconcile", "on_demand", "unbudgeted", "gate")
    parts = {name: part for name, part in configuration().items() if name not in without}
    return parts | {"scheduler": {"placement": "dra", "driver": "gpu.nvidia.com", **scheduler}}


def test_prod_with_seats_on_nvidias_devices_breaks_no_rule_where_they_are_shared() -> None:
    assert judge(declared(on_nvidias_devices(consumable_shares="memory"))) == []


def test_prod_with_seats_on_nvidias_devices_is_refused_where_each_takes_a_whole_one() -> None:
    (reported,) = judge(declared(on_nvidias_devices()))
    assert reported == (
        "claims: t4: 5 pods with seats, 1 devices: a claim on gpu.nvidia.com takes a whole device unless that driver "
        "runs with the feature gate ConsumableShares and --consumable-shares=memory; if it does write "
        "scheduler.consumable_shares: memory, else have fewer seats, raise pools.t4, or write scheduler.placement: "
        "extender"
    )


def test_prod_whose_people_may_ask_kubectl_gpumem_breaks_no_rule() -> None:
    readers = {"viewers": ["team-a", "team-b"], "operators": ["platform"]}
    assert judge(declared(configuration() | {"readers": readers})) == []


# The key, its value, the rules, a part of the message.
MISTAKES: dict[str, tuple[str, object, str, str]] = {
    "a budget too large": (
        "residents.llama-swap.gpumem_mib",
        7000,
        "budgets",
        "t4: 15300 MiB promised, 14000 advertised (1300 over): llama-swap 7000, immich-ml 3000, …; "
        "lower a budget or raise pools.t4",
    ),
    "a replica too many": (
        "residents.frigate.replicas",
        3,
        "budgets",
        "17300 MiB promised, 14000 advertised (3300 over): frigate 2000 x 3, llama-swap 5000, …; lower a budget or its "
        "replicas, or raise pools.t4",
    ),
    "a smaller device": ("pools.t4.memory_mib", 14000, "budgets", "13300 MiB promised, 12640 advertised (660 over)"),
    "a larger reserve": ("pools.t4.reserve_mib", 3000, "budgets", "13300 MiB promised, 12360 advertised (940 over)"),
    "a workload without a budget that the reserve does not hold": (
        "unbudgeted.android-emulator.measured_mib",
        1000,
        "full-seats",
        "t4: a reserve of 1360 MiB for 1450: 450 of the driver and 1000 of workloads without a budget",
    ),
    "a workload without a budget that is larger than the reserve": (
        "unbudgeted.android-emulator.measured_mib",
        2000,
        "full-seats",
        "t4: a reserve of 1360 MiB for 2450: 450 of the driver and 2000 of workloads without a budget",
    ),
    "a workload without a budget that is larger than the card": (
        "unbudgeted.android-emulator.measured_mib",
        20000,
        "full-seats",
        "t4: a reserve of 1360 MiB for 20450: 450 of the driver and 20000 of workloads without a budget",
    ),
    "a floor that full seats are always under": (
        "pools.t4.floor_mib",
        5000,
        "full-seats",
        "t4: a device may have 13300 MiB promised, and its floor is 5000: 18300 of 15360 (2940 over)",
    ),
    "every MiB promised that is advertised": (
        "residents.llama-swap.gpumem_mib",
        5700,
        "full-seats",
        "t4: a device may have 14000 MiB promised, and its floor is 1536: 15536 of 15360 (176 over)",
    ),
    "a floor above the device": (
        "pools.t4.floor_mib",
        14001,
        "physical",
        "t4: floor 14001 MiB, but a device offers 14000",
    ),
    "a gate that never opens": (
        "on_demand.tts.need_mib",
        13_000,
        "agents",
        "tts: needs 13000 MiB above the floor of 1536, a device",
    ),
    "a margin that keeps a gate shut": (
        "on_demand.tts.margin_mib",
        12_000,
        "agents",
        "tts: needs 2048 MiB above the floor of 1536 and the margin of 12000",
    ),
    "a queue above the hardware": (
        "queues.cluster_queues.gpu-cq.quotas.gpu-any",
        {"nvidia.com/gpu": {"nominal": 2}},
        "gpu-quota",
        "ClusterQueue gpu-cq: may hand out 2 nvidia.com/gpu (nominal and borrowed) of batch, which has 1",
    ),
    "a queue that covers the wrong resource": (
        "queues.cluster_queues.gpu-cq.quotas.gpu-any",
        {"nvidia.com/mig-1g.5gb": {"nominal": 1}},
        "queue-coverage",
        "ClusterQueue gpu-cq: covers nvidia.com/mig-1g.5gb, but pool batch is handed out by nvidia.com/gpu",
    ),
    "a queue that never preempts": (
        "queues.cluster_queues.gpu-cq.preemption",
        {"within_cluster_queue": "Never"},
        "preemption",
        "withinClusterQueue is Never, so 2 WorkloadPriorityClasses change nothing",
    ),
    "a disposable class that preempts": (
        "priorities.homelab-disposable.preemption_policy",
        "PreemptLowerPriority",
        "priorities",
        "PriorityClass homelab-disposable: value -1000 makes its pods disposable",
    ),
    "an exception above the rule": (
        "priorities.tier-2-gpu.value",
        1_300_000,
        "priorities",
        "stamps tier-2-gpu (1300000), which is not below gpu-workload (1200000)",
    ),
    "no guard": (
        "memory_pools.node-4.guard",
        False,
        "memory-oom",
        "raise memory_pools.node-4.workloads.inference.request_mib to 19989 (19.5Gi), or have a victim that always "
        "holds 12299 (12.0Gi) (resident_least_mib), or let the kubelet come first: eviction_threshold_mib 16384",
    ),
    "no guard, and peaks above the requests": (
        "memory_pools.node-4.guard",
        False,
        "memory-oom",
        "node-4: at its peak of 6144 MiB embeddings, which requests 5120, leads every victim (agent-microvm holds 512) "
        "by 573 MiB in the kernel's ranking",
    ),
    "a GPU pod of another class than its memory pool's": (
        "admission.tenant_priorities",
        {"tts": "tier-2-gpu"},
        "memory-gpu",
        "stamps gpu-workload on inference, which has a GPU seat; its memory pool knows it by homelab-critical, and the "
        "API server would deny its pods; write admission.tenant_priorities.inference: homelab-critical",
    ),
    "a GPU pod whose memory pool is elsewhere": (
        "memory_pools.node-4.node_selector",
        {"kubernetes.io/hostname": "node-5"},
        "memory-gpu",
        "no node is both",
    ),
    "no victim": (
        "memory_pools.node-4.disposable",
        {},
        "memory-victim",
        "no pod is always there to be killed for it",
    ),
    "swapped classes": (
        "priorities",
        {
            "gpu-workload": {"value": 1_200_000},
            "tier-2-gpu": {"value": 600_000},
            "homelab-critical": {"value": -1000, "preemption_policy": "Never"},
            "homelab-disposable": {"value": 100_000},
        },
        "memory-eviction",
        "node-4: at its peak the kubelet evicts clickhouse, embeddings, inference (homelab-critical, -1000) before "
        "agent-microvm (homelab-disposable, 100000): both may be above their requests; give "
        "memory_pools.node-4.disposable.agent-microvm.priority a class below -1000",
    ),
    "a victim that requests more than a critical pod": (
        "memory_pools.node-4.disposable.agent-microvm",
        {
            "tenant": "agents",
            "priority": "homelab-disposable",
            "pods_least": 1,
            "pods_most": 2,
            "resident_least_mib": 7000,
            "resident_most_mib": 8000,
            "request_mib": 6000,
        },
        "memory-victim",
        "agent-microvm requests 6000 MiB; it holds from 7000, and clickhouse requests 5120",
    ),
    "a limit over the node": (
        "memory_pools.node-4.workloads.inference.limit_mib",
        65_536,
        "memory-limits",
        "node-4: inference may hold 65536 MiB, a node offers 62364",
    ),
    "one class that is too high for victims": (
        "priorities.homelab-disposable.value",
        200_000,
        "memory-eviction",
        "node-4: at its peak the kubelet evicts clickhouse, embeddings, inference (homelab-critical, 100000) before "
        "agent-microvm (homelab-disposable, 200000): both may be above their requests; give "
        "memory_pools.node-4.disposable.agent-microvm.priority a class below 100000",
    ),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("case", MISTAKES)
def test_one_wrong_key_is_refused_with_its_numbers(case: str) -> None:
    key, value, rules, message = MISTAKES[case]
    parts = configuration()
    put(parts, key, value)
    reported = judge(declared(parts))
    assert graphs.rules_of(reported) == set(rules.split())
    assert any(message in line for line in reported), reported


# Edits of the declared objects, as another program could make them: name, path, value, rule, part of the message.
EDITS: dict[str, tuple[str, str, object, str, str]] = {
    "a quota above the seats": (
        "immich-quota",
        "spec.hard",
        {f"requests.{graphs.GPUMEM}": "6k"},
        "resource-quota",
        "6000 MiB, the seats of immich have 4800",
    ),
    "a namespace that holds its pods to nothing": (
        "immich-namespace",
        "metadata.labels",
        {},
        "namespaces",
        "pod-security.kubernetes.io/enforce is missing, tenants.immich is held to baseline",
    ),
    "a role with a wildcard": ("watchdog-identity-cluster-role", "rules.0.verbs", ["*"], "rbac", "verbs holds '*'"),
    "a role with more": (
        "watchdog-identity-cluster-role",
        "rules.0.verbs",
        ["delete"],
        "rbac",
        "lets gpu-vram-watchdog delete nodes, which is not on its list",
    ),
    "a queue for nobody": (
        "queues-cluster-gpu-cq",
        "spec.namespaceSelector",
        None,
        "namespace-selector",
        "so nobody may use it",
    ),
    "an agent with privileges": (
        "exporter-daemon-set",
        "spec.template.spec.containers.0.securityContext.privileged",
        True,
        "hardened",
        "must not be privileged",
    ),
    "an exporter at another port": (
        "exporter-daemon-set",
        "spec.template.spec.containers.0.env",
        [{"name": "PORT", "value": "9999"}],
        "agents",
        "looks for the exporter at port 9401, it serves at 9999",
    ),
    "a guard that only warns": (
        "capacity-reconcile-writes-binding",
        "spec.validationActions",
        ["Warn"],
        "rbac",
        "add the ValidatingAdmissionPolicy that limits gpumem-reconcile",
    ),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("case", EDITS)
def test_one_wrong_field_is_refused(case: str) -> None:
    name, path, value, rule, message = EDITS[case]
    program = declared(configuration())
    put(program[name], path, value)
    reported = judge(program)
    assert graphs.rules_of(reported) == {rule}
    assert any(message in line for line in reported), reported


@pytest.mark.parametrize("by_device", [True, False])
def test_every_resident_that_takes_its_stanza_fits_its_seat(by_device: bool) -> None:
    given = configuration()
    if not by_device:
        del given["scheduler"]
    parsed = settings.parse(given)
    ledger = parsed.ledger()
    stanzas = platform.pod_stanzas(parsed, ledger)
    config = {"ledger": ledger.to_data()}
    for name, stanza in stanzas.items():
        workload = graphs.deployment(name, stanza["namespace"], 0)
        put(workload, "spec.template.spec.containers.0.resources", stanza["resources"])
        for field in ("nodeSelector", "tolerations", "priorityClassName"):
            put(workload, f"spec.template.spec.{field}", stanza[field])
        assert judge({name: workload}, config) == []
