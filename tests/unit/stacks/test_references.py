"""Tests that the settings refuse unknown names, missing parts and overlapping pools."""

import pytest

from stacks import settings
from tests.support.prod import Change, Raw, drop, put, raw, refusal

TENANTS = (
    "agents, android-emulator, ebook2audiobook, frigate, immich, inference, llama-swap, portal-stt, signoz, "
    "team-a, team-b, tts, ytdlp"
)
PRIORITIES = "gpu-workload, homelab-critical, homelab-disposable, tier-2-gpu"

# Each case has a key, an unknown name, the map without the name, and the proposed name.
DANGLING = [
    ("residents frigate pool", "a100", "pools", "known there: batch, node-4, t4"),
    ("residents frigate tenant", "frigates", "tenants", "did you mean frigate?"),
    ("on_demand tts pool", "a100", "pools", "known there: batch, node-4, t4"),
    ("unbudgeted android-emulator tenant", "zzz", "tenants", f"known there: {TENANTS}"),
    ("admission gpu_priority", "zzz", "priorities", f"known there: {PRIORITIES}"),
    ("admission tenant_priorities tts", "tier-3-gpu", "priorities", "did you mean tier-2-gpu?"),
    ("queues flavors gpu-any pool", "a100", "pools", "known there: batch, node-4, t4"),
    ("queues local_queues team-a-gpu cluster_queue", "gpu-qc", "queues.cluster_queues", "did you mean gpu-cq?"),
    ("queues local_queues team-a-gpu tenant", "team-c", "tenants", "did you mean team-b?"),
    ("memory_pools node-4 workloads inference priority", "homelab", "priorities", "did you mean homelab-critical?"),
    ("memory_pools node-4 disposable agent-microvm tenant", "agent", "tenants", "did you mean agents?"),
]


@pytest.mark.parametrize(("path", "name", "target", "instead"), DANGLING)
def test_a_name_that_leads_nowhere_is_refused(path: str, name: str, target: str, instead: str) -> None:
    line = f"gpu-tenancy:{path.replace(' ', '.')}: {name!r} is no key of {target}; {instead}"
    assert refusal(put(path, name)) == [line]


REFUSED: dict[str, tuple[Change, str]] = {
    "a class for a tenant that is not there": (
        put("admission tenant_priorities tt", "tier-2-gpu"),
        "admission.tenant_priorities.tt: 'tt' is no key of tenants; did you mean tts?",
    ),
    "a topology of a stack without topologies": (
        put("queues flavors gpu-any topology_name", "racks"),
        "queues.topologies: is missing though queues.flavors.gpu-any.topology_name names 'racks'; add it",
    ),
    "a quota of no flavor": (
        put("queues cluster_queues gpu-cq quotas", {"gpu-all": {"nvidia.com/gpu": {"nominal": 1}}}),
        "queues.cluster_queues.gpu-cq.quotas.gpu-all: 'gpu-all' is no key of queues.flavors; did you mean gpu-any?",
    ),
    "a cohort that is its own parent": (
        put("queues cohorts", {"lab": {"parent_name": "lab"}}),
        "queues.cohorts.lab.parent_name: leads back to the cohort itself (lab > lab); remove it",
    ),
    "cohorts in a circle below which another one hangs": (
        put("queues cohorts", {"c": {"parent_name": "b"}, "b": {"parent_name": "a"}, "a": {"parent_name": "b"}}),
        "queues.cohorts.a.parent_name: leads back to the cohort itself (a > b > a); remove it",
    ),
    "a seat in a pool of whole devices": (
        put("residents frigate pool", "batch"),
        "residents.frigate.pool: 'batch' hands out whole devices; name a pool that shares memory",
    ),
    "a tenant with seats in two pools and no scheduler that would hold it to its part of each": (
        lambda config: (
            put("residents chat", {"tenant": "inference", "pool": "t4", "gpumem_mib": 100})(config),
            drop("scheduler")(config),
        ),
        "scheduler: is missing though inference is in several pools (residents.inference in node-4 and residents.chat "
        "in t4): a ResourceQuota is one sum for all pools, and nobody would hold the tenant to its part of each; add "
        "scheduler: {}",
    ),
    "a tenant with seats in two pools, of which one promises gpumem to a queue": (
        lambda config: (
            put("residents chat", {"tenant": "inference", "pool": "t4", "gpumem_mib": 100})(config),
            put("queues flavors shared", {"pool": "t4"})(config),
            put("queues cluster_queues gpu-cq quotas shared", {"viktorbarzin.me/gpumem": {"nominal": 100}})(config),
        ),
        "queues.cluster_queues.gpu-cq: promises gpumem of t4, in which inference has seats besides those in other "
        "pools (residents.chat): a ResourceQuota is one sum for all pools, so that inference could take this queue's "
        "memory; give the queue another pool, or inference one pool",
    ),
    "a tenant whose pods without a budget would be in two pools": (
        lambda config: (
            put("unbudgeted android-emulator tenant", "inference")(config),
            put("unbudgeted second", {"tenant": "inference", "pool": "node-4", "measured_mib": 100})(config),
        ),
        "unbudgeted.second.pool: must be t4 as that of unbudgeted.android-emulator: a pod without a budget names no "
        "seat, so that all of inference run in one pool (got 'node-4')",
    ),
    "residents that nobody advertises for": (
        lambda config: (drop("reconcile")(config), drop("scheduler")(config)),
        "reconcile: is missing though residents is there: nobody would advertise what the residents ask for",
    ),
    "on-demand tenants without a gate": (
        drop("gate"),
        "gate: is missing though on_demand is there: nobody would let the on-demand tenants in",
    ),
}


@pytest.mark.parametrize(("change", "line"), REFUSED.values(), ids=REFUSED)
def test_parts_that_do_not_go_together_are_refused(change: Change, line: str) -> None:
    assert refusal(change) == [f"gpu-tenancy:{line}"]


def test_a_tenant_may_have_seats_in_several_pools_and_pods_without_a_budget_in_one() -> None:
    seat = put("residents chat", {"tenant": "inference", "pool": "t4", "gpumem_mib": 100})
    assert refusal(seat, put("unbudgeted android-emulator tenant", "inference")) == []


CPU = put("queues cluster_queues gpu-cq quotas", {"gpu-any": {"nvidia.com/gpu": {"nominal": 1}, "cpu": {"nominal": 8}}})


def test_what_a_queue_has_is_counted_where_prefixes_are_left_out_too() -> None:
    told = "gpu-tenancy:kueue.exclude_resource_prefixes: queues would not count cpu; write [memory, ephemeral-storage]"
    assert refusal(CPU) == [f"{told} (got ['cpu', 'memory', 'ephemeral-storage'])"]
    assert refusal(CPU, put("kueue exclude_resource_prefixes", ["memory", "ephemeral-storage"])) == []
    assert refusal(CPU, drop("kueue")) == []


def dispatches(config: Raw) -> None:
    queues = config["queues"]
    queues["flavors"]["far"] = {}
    queues["clusters"] = {
        name: {"secret": f"{name}-kubeconfig", "promises": {"nvidia.com/gpu": 8}} for name in ("east", "west")
    }
    queues["cluster_queues"]["far"] = {"quotas": {"far": {"nvidia.com/gpu": {"nominal": 8}}}, "clusters": ["east"]}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            put("queues cluster_queues far clusters", ["east", "wets"]),
            "queues.cluster_queues.far.clusters.1: 'wets' is no key of queues.clusters; did you mean west?",
        ),
        (
            put("queues clusters west promises", {}),
            "queues.clusters.west.promises: must not be empty",
        ),
        (
            put("queues flavors far pool", "batch"),
            "queues: flavors.far has pool batch, but cluster_queues.far dispatches its Jobs to other clusters; name a "
            "flavor without a pool",
        ),
        (
            put("queues cluster_queues gpu-cq quotas far", {"nvidia.com/gpu": {"nominal": 0}}),
            "queues: flavors.far is also for cluster_queues.gpu-cq, but cluster_queues.far dispatches its Jobs to "
            "other clusters; give cluster_queues.far its own flavor",
        ),
    ],
)
def test_worker_clusters_that_do_not_fit_the_queues_are_refused(change: Change, line: str) -> None:
    assert refusal(dispatches) == []
    assert refusal(dispatches, change) == [f"gpu-tenancy:{line}"]


def test_a_stack_without_pools_and_worker_clusters_is_refused() -> None:
    config = {"cluster": raw()["cluster"]}
    with pytest.raises(settings.ConfigError, match=r"^gpu-tenancy:pools: is missing; add it$"):
        settings.parse(config)


def test_a_queue_of_worker_clusters_has_no_other_check() -> None:
    check = put("queues admission_checks", {"autoscaler": {"provisioning_class_name": "queued"}})
    lines = refusal(dispatches, check, put("queues cluster_queues far admission_checks", [{"name": "autoscaler"}]))
    assert lines == [
        "gpu-tenancy:queues.cluster_queues.far.clusters: is next to admission_checks, and Kueue accepts one of them; "
        "remove either"
    ]
    assert refusal(dispatches, drop("queues clusters")) == [
        "gpu-tenancy:queues.clusters: is missing though queues.cluster_queues.far.clusters.0 names 'east'; add it"
    ]


ENFORCED = put("pools t4 enforce", "driver")


def test_caps_need_a_scheduler() -> None:
    assert refusal(ENFORCED) == []
    assert refusal(ENFORCED, drop("scheduler")) == [
        "gpu-tenancy:scheduler: is missing though pools.t4.enforce is driver: nobody would choose the devices that a "
        "container is held to its budget on"
    ]


def test_alerts_need_to_know_who_scrapes() -> None:
    assert refusal(drop("cluster prometheus")) == [
        "gpu-tenancy:cluster.prometheus: is missing though alerts is there: NetworkPolicies would keep Prometheus from "
        "what the alerts watch; name its namespace, for instance {namespace: monitoring}"
    ]


def test_agents_that_act_on_telemetry_need_the_exporter() -> None:
    assert refusal(drop("exporter")) == [
        "gpu-tenancy:exporter: is missing though scheduler, watchdog, gate and alerts are there: the scheduler places "
        "on the devices that the exporter publishes; the watchdog acts on what the exporter measures; the gate acts on "
        "what the exporter measures; the alerts watch what the exporter measures"
    ]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (None, "has no value; write one, or remove the key"),
        ([], "must be a map of keys (got a list)"),
    ],
)
def test_a_part_that_is_there_and_wrong_is_not_missing_too(value: object, line: str) -> None:
    assert refusal(put("exporter", value)) == [f"gpu-tenancy:exporter: {line}"]


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("reconcile", "no node would advertise what the scheduler places"),
        ("exporter", "the scheduler places on the devices that the exporter publishes"),
        ("admission", "nobody would send the pods to the scheduler"),
    ],
)
def test_placement_by_device_needs_who_advertises_publishes_and_sends(part: str, reason: str) -> None:
    (line,) = [line for line in refusal(drop(part)) if line.startswith(f"gpu-tenancy:{part}: is missing though ")]
    assert "scheduler" in line.partition(" there: ")[0]
    assert reason in line


def test_a_seat_of_a_queue_tenant_would_be_held_back_by_the_framework_pod() -> None:
    seat = put("residents chat", {"tenant": "team-a", "pool": "t4", "gpumem_mib": 100})
    assert refusal(seat) == []
    (line,) = refusal(seat, put("queues frameworks", ["batch/job", "pod", "deployment"]))
    assert line == (
        "gpu-tenancy:residents.chat.tenant: team-a queues for its GPUs (queues.local_queues.team-a-gpu), and with pod "
        "in queues.frameworks Kueue holds back all its pods; give chat a tenant of its own"
    )


def test_a_rule_of_placement_that_nobody_knows_is_refused() -> None:
    (line,) = refusal(put("scheduler", {"scoring": "worst_fit"}))
    assert line == "gpu-tenancy:scheduler.scoring: must be one of 'best_fit' or 'fragmentation' (got 'worst_fit')"


def test_pools_whose_selectors_may_match_one_node_are_refused() -> None:
    racks = (put("pools node-4 node_selector", {"rack": "2"}), put("pools batch node_selector rack", "1"))
    assert refusal(*racks) == [
        "gpu-tenancy:pools.node-4.node_selector: a node may match pools.t4 as well, and all devices of a node belong "
        "to one pool; give the two a common label with different values"
    ]


def test_a_node_with_two_shared_and_two_whole_devices_is_not_supported() -> None:
    def two_pools_on_one_node(config: Raw) -> None:
        half = {"node_selector": {"kubernetes.io/hostname": "four-cards"}, "device_count": 2, "nodes": 1}
        config["pools"]["shared"] = {**config["pools"]["t4"], **half}
        config["pools"]["whole"] = {**half, "sharing": "whole"}

    assert [line for line in refusal(two_pools_on_one_node) if "pools.shared" in line and "pools.whole" in line] == [
        "gpu-tenancy:pools.whole.node_selector: a node may match pools.shared as well, and all devices of a node "
        "belong to one pool: a node with shared devices and whole devices is not supported; give the two a common "
        "label with different values on different nodes, or share all devices and declare residents as large as a "
        "device"
    ]


def test_a_pool_of_several_devices_a_node_needs_the_scheduler() -> None:
    """kube-scheduler compares a budget with the sum of all devices of a node."""
    changes = (drop("scheduler"), put("pools t4 device_count", 2))
    assert refusal(*changes) == [
        "gpu-tenancy:scheduler: is missing though each node of pools.t4 has 2 devices: nobody would choose a device "
        "with room for a budget; add scheduler: {}"
    ]
    assert refusal(drop("scheduler"), put("pools batch device_count", 2)) == [], "its devices are handed out whole"


def test_a_queue_for_gpumem_on_several_devices_needs_the_scheduler() -> None:
    """Before the fix, only a seat or an on-demand workload in the pool caused the error."""
    quotas = {"shared": {"viktorbarzin.me/gpumem": {"nominal": 1000}}}
    (line,) = refusal(
        drop("scheduler"),
        *(drop(part) for part in ("residents", "on_demand", "unbudgeted", "gate")),
        put("pools t4 device_count", 2),
        put("queues flavors shared", {"pool": "t4"}),
        put("queues cluster_queues gpu-cq quotas", quotas),
    )
    assert line.startswith("gpu-tenancy:scheduler: is missing though each node of pools.t4 has 2 devices")


def test_memory_pools_whose_selectors_may_match_one_node_are_refused() -> None:
    other = {**raw()["memory_pools"]["node-4"], "node_selector": {"rack": "2"}, "disposable": {}}
    other["workloads"] = {"other": other["workloads"]["inference"]}
    assert refusal(lambda config: config["memory_pools"].update(other=other)) == [
        "gpu-tenancy:memory_pools.other.node_selector: a node may match memory_pools.node-4 as well; "
        "give the two a common label with different values"
    ]


@pytest.mark.parametrize(
    ("prefix", "resources"),
    [
        ("nvidia.com", "nvidia.com/gpu"),
        ("", "nvidia.com/gpu, viktorbarzin.me/gpumem"),
        ("viktorbarzin.me/", "viktorbarzin.me/gpumem"),
    ],
)
def test_a_prefix_by_which_queues_count_no_gpus_is_refused(prefix: str, resources: str) -> None:
    where = "gpu-tenancy:kueue.exclude_resource_prefixes"
    assert refusal(put("kueue exclude_resource_prefixes", ["cpu", prefix])) == [
        f"{where}: queues would not count {resources}; write [cpu] (got {['cpu', prefix]!r})"
    ]
