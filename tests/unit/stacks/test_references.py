"""Names that lead nowhere, parts that lack another one, pools that share nodes."""

import pytest

from stacks import references, settings
from tests.support.prod import Change, Raw, drop, put, raw, refusal

TENANTS = (
    "agents, android-emulator, ebook2audiobook, frigate, immich, inference, llama-swap, portal-stt, signoz, "
    "team-a, team-b, tts, ytdlp"
)
PRIORITIES = "gpu-workload, homelab-critical, homelab-disposable, tier-2-gpu"

DANGLING: dict[str, tuple[Change, str]] = {
    "a resident in no pool": (
        put("residents frigate pool", "a100"),
        "residents.frigate.pool: 'a100' is no key of pools; known there: batch, node-4, t4",
    ),
    "a resident of no tenant": (
        put("residents frigate tenant", "frigates"),
        "residents.frigate.tenant: 'frigates' is no key of tenants; did you mean frigate?",
    ),
    "an on-demand tenant in no pool": (
        put("on_demand tts pool", "a100"),
        "on_demand.tts.pool: 'a100' is no key of pools; known there: batch, node-4, t4",
    ),
    "an unbudgeted workload of no tenant": (
        put("unbudgeted android-emulator tenant", "zzz"),
        f"unbudgeted.android-emulator.tenant: 'zzz' is no key of tenants; known there: {TENANTS}",
    ),
    "a stamped class that is not there": (
        put("admission gpu_priority", "zzz"),
        f"admission.gpu_priority: 'zzz' is no key of priorities; known there: {PRIORITIES}",
    ),
    "a class for a tenant that is not there": (
        lambda config: config["admission"]["tenant_priorities"].update({"tt": "tier-2-gpu"}),
        "admission.tenant_priorities.tt: 'tt' is no key of tenants; did you mean tts?",
    ),
    "a tenant's class that is not there": (
        put("admission tenant_priorities tts", "tier-3-gpu"),
        "admission.tenant_priorities.tts: 'tier-3-gpu' is no key of priorities; did you mean tier-2-gpu?",
    ),
    "a flavor of no pool": (
        put("queues flavors gpu-any pool", "a100"),
        "queues.flavors.gpu-any.pool: 'a100' is no key of pools; known there: batch, node-4, t4",
    ),
    "a LocalQueue to no ClusterQueue": (
        put("queues local_queues team-a-gpu cluster_queue", "gpu-qc"),
        "queues.local_queues.team-a-gpu.cluster_queue: 'gpu-qc' is no key of queues.cluster_queues; "
        "did you mean gpu-cq?",
    ),
    "a LocalQueue of no tenant": (
        put("queues local_queues team-a-gpu tenant", "team-c"),
        "queues.local_queues.team-a-gpu.tenant: 'team-c' is no key of tenants; did you mean team-b?",
    ),
    "a quota of no flavor": (
        put("queues cluster_queues gpu-cq quotas", {"gpu-all": {"nvidia.com/gpu": {"nominal": 1}}}),
        "queues.cluster_queues.gpu-cq.quotas.gpu-all: 'gpu-all' is no key of queues.flavors; did you mean gpu-any?",
    ),
    "more samples than a run of the gate takes": (
        put("on_demand tts samples", 13),
        "on_demand.tts.samples: must be at most 12, which a run of the gate takes in a row, or it never acts (got 13); "
        "lower it, or gate.interval_seconds",
    ),
    "a memory budget of no class": (
        put("memory_pools node-4 workloads inference priority", "homelab-kritical"),
        "memory_pools.node-4.workloads.inference.priority: 'homelab-kritical' is no key of priorities; "
        "did you mean homelab-critical?",
    ),
    "a victim of no tenant": (
        put("memory_pools node-4 disposable agent-microvm tenant", "agent"),
        "memory_pools.node-4.disposable.agent-microvm.tenant: 'agent' is no key of tenants; did you mean agents?",
    ),
    "a seat in a pool of whole devices": (
        put("residents frigate pool", "batch"),
        "residents.frigate.pool: 'batch' hands out whole devices; name a pool that shares memory",
    ),
    "a tenant with seats in two pools": (
        put("residents chat", {"tenant": "inference", "pool": "t4", "gpumem_mib": 100}),
        "residents.chat.pool: must be node-4 as that of residents.inference, or chat have a tenant of its own: the "
        "ResourceQuota of inference is one sum for all pools (got 't4')",
    ),
    "a tenant with a seat in one pool and on record in another": (
        put("unbudgeted android-emulator tenant", "inference"),
        "unbudgeted.android-emulator.pool: must be node-4 as that of residents.inference, or android-emulator have a "
        "tenant of its own: the ResourceQuota of inference is one sum for all pools (got 't4')",
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


@pytest.mark.parametrize(("change", "line"), DANGLING.values(), ids=DANGLING.keys())
def test_a_name_that_leads_nowhere_is_refused(change: Change, line: str) -> None:
    assert refusal(change) == [f"gpu-tenancy:{line}"]


CPU = put("queues cluster_queues gpu-cq quotas", {"gpu-any": {"nvidia.com/gpu": {"nominal": 1}, "cpu": {"nominal": 8}}})


def test_what_a_queue_has_is_counted_where_prefixes_are_left_out_too() -> None:
    assert refusal(CPU) == [
        "gpu-tenancy:kueue.exclude_resource_prefixes: has cpu, memory, ephemeral-storage where it is left out, so that "
        "queues would not count cpu; write [memory, ephemeral-storage], or take it out of the quotas"
    ]
    assert refusal(CPU, put("kueue exclude_resource_prefixes", ["memory", "ephemeral-storage"])) == []
    assert refusal(CPU, drop("kueue")) == []


def test_a_selector_of_nothing_is_one_line() -> None:
    """Not one for each pool whose nodes it matches."""
    assert refusal(put("pools t4 node_selector", {})) == ["gpu-tenancy:pools.t4.node_selector: must not be empty"]


def test_alerts_whose_reader_is_there_without_its_namespace_are_one_line() -> None:
    assert refusal(put("cluster prometheus", {})) == ["gpu-tenancy:cluster.prometheus.namespace: is missing; add it"]


def test_alerts_need_to_know_who_scrapes() -> None:
    assert refusal(drop("cluster prometheus")) == [
        "gpu-tenancy:cluster.prometheus: is missing though alerts is there: NetworkPolicies would keep Prometheus from "
        "what the alerts watch; name its namespace, for instance {namespace: monitoring}"
    ]


def test_agents_that_act_on_telemetry_need_the_exporter() -> None:
    assert refusal(drop("exporter")) == [
        "gpu-tenancy:exporter: is missing though watchdog, gate, scheduler and alerts are there: the watchdog acts on "
        "what the exporter measures; the gate acts on what the exporter measures; the scheduler places on the devices "
        "that the exporter publishes; the alerts watch what the exporter measures"
    ]


@pytest.mark.parametrize(
    ("value", "line"),
    [(None, "has no value; write one, or remove the key"), ([], "must be a map of keys (got a list)")],
)
def test_a_part_that_is_there_and_wrong_is_not_missing_too(value: object, line: str) -> None:
    assert refusal(put("exporter", value)) == [f"gpu-tenancy:exporter: {line}"]


@pytest.mark.parametrize("pool", ["T4", "a\nb", "é\u202e"])
def test_a_name_that_can_be_none_and_leads_nowhere_is_one_line(pool: str) -> None:
    """Nor is any other seat told to be in the same pool."""
    assert refusal(put("residents immich-ml pool", pool)) == [
        f"gpu-tenancy:residents.immich-ml.pool: {pool!r} is no key of pools; known there: batch, node-4, t4"
    ]


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


CLAIMED = put("scheduler", {"placement": "dra"})


def test_claims_are_counted_by_seat_so_that_a_tenant_may_have_them_in_two_pools() -> None:
    chat = put("residents chat", {"tenant": "inference", "pool": "t4", "gpumem_mib": 100})
    assert refusal(CLAIMED, chat, drop("reconcile"), drop("admission"), drop("memory_pools")) == []


@pytest.mark.parametrize("part", ["on_demand", "unbudgeted"])
def test_whose_pods_look_like_those_that_go_past_a_queue_has_a_tenant_of_its_own(part: str) -> None:
    name = next(iter(raw()[part]))
    assert refusal(put(f"{part} {name} tenant", "team-a")) == [
        f"gpu-tenancy:{part}.{name}.tenant: team-a queues for its GPUs (queues.local_queues.team-a-gpu); give {name} a "
        "tenant of its own"
    ]


def test_who_has_no_seat_may_be_on_record_in_two_pools() -> None:
    emulator = {"tenant": "android-emulator", "pool": "node-4", "measured_mib": 100}
    assert refusal(put("unbudgeted second", emulator)) == []


def test_seats_that_are_claimed_need_neither_who_advertises_nor_who_sends_pods() -> None:
    assert refusal(CLAIMED, drop("reconcile"), drop("admission"), drop("memory_pools")) == []


def test_the_same_memory_is_not_advertised_and_claimed() -> None:
    memory = {"t4-memory": {"viktorbarzin.me/gpumem": {"nominal": 500}}}
    told = refusal(
        CLAIMED,
        put("queues flavors t4-memory", {"pool": "t4"}),
        put("queues cluster_queues memory-cq", {"quotas": memory}),
    )
    assert told == [
        "gpu-tenancy:reconcile: advertises what seats are claimed of (scheduler.placement dra); remove it",
        "gpu-tenancy:queues.cluster_queues.memory-cq.quotas.t4-memory.viktorbarzin.me/gpumem: no node advertises it "
        "where seats are claimed (scheduler.placement dra); remove it",
    ]


NVIDIAS = (
    put("scheduler", {"placement": "dra", "driver": "gpu.nvidia.com", "consumable_shares": "memory"}),
    *(drop(part) for part in ("reconcile", "admission", "memory_pools", "on_demand", "unbudgeted", "gate")),
)


def test_seats_on_nvidias_devices_need_no_exporter_of_ours() -> None:
    assert refusal(*NVIDIAS, *(drop(part) for part in ("exporter", "watchdog", "alerts"))) == []


def test_who_has_no_seat_would_take_a_whole_device_of_nvidias() -> None:
    emulator = {"tenant": "android-emulator", "pool": "t4", "measured_mib": 100}
    assert refusal(*NVIDIAS, put("unbudgeted", {"emulator": emulator})) == [
        "gpu-tenancy:unbudgeted.emulator.pool: without a seat it would take a whole device of gpu.nvidia.com, which "
        "the seats of t4 are claims on (scheduler.driver); give emulator a seat, or a node outside the pools"
    ]


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        (
            {"placement": "extender", "driver": "gpu.nvidia.com"},
            "scheduler: driver: has no use where placement is extender; remove it",
        ),
        (
            {"placement": "dra", "consumable_shares": "memory"},
            "scheduler: consumable_shares: has no use where driver is gpumem; remove it",
        ),
        (
            {"placement": "dra", "driver": "gpu.nvidia.com", "consumable_shares": "unlimited"},
            "scheduler.consumable_shares: must be one of 'disabled' or 'memory' (got 'unlimited')",
        ),
        (
            {"placement": "dra", "driver": "gpu.amd.com"},
            "scheduler.driver: must be one of 'gpumem' or 'gpu.nvidia.com' (got 'gpu.amd.com')",
        ),
    ],
)
def test_a_driver_that_cannot_keep_seats_is_refused(scheduler: dict[str, str], told: str) -> None:
    assert f"gpu-tenancy:{told}" in refusal(put("scheduler", scheduler))


@pytest.mark.parametrize("source", ["slices", "declared"])
def test_what_must_show_a_pools_devices_is_for_who_advertises(source: str) -> None:
    by_source = put("pools t4 source", source)
    assert refusal(by_source) == []
    assert refusal(CLAIMED, by_source, drop("reconcile"), drop("admission"), drop("memory_pools")) == [
        "gpu-tenancy:pools.t4.source: has no use without reconcile, which advertises by it; remove it"
    ]


def test_what_the_extender_alone_has_a_use_for_is_refused_beside_claims() -> None:
    (line,) = refusal(put("scheduler", {"placement": "dra", "replicas": 3}), drop("reconcile"))
    assert line == "gpu-tenancy:scheduler: replicas: has no use where placement is dra; remove it"


def test_a_rule_of_placement_that_nobody_knows_is_refused() -> None:
    (line,) = refusal(put("scheduler", {"placement": "extender", "scoring": "worst_fit"}))
    assert line == "gpu-tenancy:scheduler.scoring: must be one of 'best_fit' or 'fragmentation' (got 'worst_fit')"


def test_parts_that_serve_shared_memory_need_a_pool_that_shares_it() -> None:
    whole = {"node_selector": {"zone": "a"}, "nodes": 1, "sharing": "whole"}
    config = {"pools": {"a100": whole}, "exporter": {"port": 9401}, "reconcile": {"interval_seconds": 10}}
    reason = "but every pool has sharing: whole; remove it or share a pool's memory"
    assert references.problems(config) == [
        f"gpu-tenancy:reconcile: advertises the memory of shared devices, {reason}",
        f"gpu-tenancy:exporter: measures the memory of shared devices, {reason}",
    ]
    config["pools"]["t4"] = {"node_selector": {"zone": "b"}, "nodes": 1, "memory_mib": 15360}
    assert references.problems(config) == []


def test_a_missing_part_is_told_once_however_many_name_it() -> None:
    assert refusal(put("tenants", {})) == [
        "gpu-tenancy:tenants: is missing though residents.immich-ml.tenant names 'immich'; add it"
    ]


def test_pools_whose_selectors_may_match_one_node_are_refused() -> None:
    assert refusal(put("pools batch node_selector", {"kubernetes.io/hostname": "k8s-node2"})) == [
        "gpu-tenancy:pools.batch.node_selector: a node may match pools.t4 as well; "
        "give the two a common label with different values"
    ]


def test_memory_pools_whose_selectors_may_match_one_node_are_refused() -> None:
    other = {**raw()["memory_pools"]["node-4"], "node_selector": {"rack": "2"}, "disposable": {}}
    other["workloads"] = {"other": other["workloads"]["inference"]}
    assert refusal(lambda config: config["memory_pools"].update(other=other)) == [
        "gpu-tenancy:memory_pools.other.node_selector: a node may match memory_pools.node-4 as well; "
        "give the two a common label with different values"
    ]


@pytest.mark.parametrize("garbage", [None, 1, "x", [], ["t4"], {"t4": None}, {"t4": ["x"]}])
def test_garbage_where_names_are_looked_up_is_left_to_the_settings(garbage: object) -> None:
    for part in raw():
        config = raw()
        config[part] = garbage
        assert all(line.startswith("gpu-tenancy:") for line in references.problems(config))


@pytest.mark.parametrize(
    ("prefix", "resources"),
    [
        ("nvidia.com", "nvidia.com/gpu"),
        ("", "nvidia.com/gpu, viktorbarzin.me/gpumem"),
        ("viktorbarzin.me/", "viktorbarzin.me/gpumem"),
    ],
)
def test_a_prefix_by_which_queues_count_no_gpus_is_refused(prefix: str, resources: str) -> None:
    assert refusal(put("kueue exclude_resource_prefixes", ["cpu", prefix])) == [
        f"gpu-tenancy:kueue.exclude_resource_prefixes.1: queues would no longer count {resources}; remove it "
        f"(got {prefix!r})"
    ]


def test_a_prefix_of_a_resource_that_a_queue_covers_is_refused() -> None:
    quotas = {"gpu-any": {"nvidia.com/gpu": {"nominal": 1}, "cpu": {"nominal": 8}}}
    changes = put("queues cluster_queues gpu-cq quotas", quotas), put("kueue exclude_resource_prefixes", ["cpu"])
    assert refusal(*changes) == [
        "gpu-tenancy:kueue.exclude_resource_prefixes.0: queues would no longer count cpu; remove it (got 'cpu')"
    ]


def test_prefixes_of_what_no_queue_covers_are_free() -> None:
    assert refusal(put("kueue exclude_resource_prefixes", ["cpu", "memory", "viktorbarzin.me/gpu-count"])) == []


def cohort(config: Raw, *, lends: dict[str, int], borrows: int, resource: str = "nvidia.com/gpu") -> None:
    """Two queues that lend each other one flavor's devices."""
    queues = config["queues"]["cluster_queues"]
    config["pools"]["batch"]["device_count"] = 3
    config["queues"]["local_queues"]["team-b-gpu"]["cluster_queue"] = "other"
    queues["other"] = {"cohort": "gpus", "quotas": {"gpu-any": {resource: {"nominal": 2, **lends}}}}
    queues["gpu-cq"] = {"cohort": "gpus", "quotas": {"gpu-any": {resource: {"nominal": 1, "borrowing_limit": borrows}}}}


LENT = pytest.mark.parametrize(("lends", "most"), [({}, 2), ({"lending_limit": 1}, 1), ({"lending_limit": 0}, 0)])
QUOTA = "gpu-tenancy:queues.cluster_queues.gpu-cq.quotas.gpu-any"


@LENT
@pytest.mark.parametrize("resource", ["viktorbarzin.me/gpumem", "viktorbarzin.me/gpu-count"])
def test_nobody_borrows_more_gpumem_than_the_others_of_its_cohort_lend(
    lends: dict[str, int], most: int, resource: str
) -> None:
    def lines(borrows: int) -> list[str]:
        found = refusal(lambda config: cohort(config, lends=lends, borrows=borrows, resource=resource))
        return [line for line in found if "cohort gpus" in line]

    assert lines(most) == []
    assert lines(most + 1) == [
        f"{QUOTA}.{resource}.borrowing_limit: must be at most {most}, which the others of cohort gpus lend "
        f"(got {most + 1})"
    ]


@LENT
def test_devices_beyond_that_may_be_lent_by_another_stack_which_is_said(lends: dict[str, int], most: int) -> None:
    """Kueue's cohorts are the cluster's, and a second stack may have a queue on the flavor."""

    def said(borrows: int) -> list[str]:
        config = raw()
        cohort(config, lends=lends, borrows=borrows)
        queues = settings.parse(config).queues
        assert queues is not None
        return list(references.borrowed_from_elsewhere({"queues": queues.model_dump(mode="json")}))

    assert said(most) == []
    assert said(most + 1) == [
        f"{QUOTA}.nvidia.com/gpu.borrowing_limit: is {most + 1}, the others of cohort gpus in this stack lend {most}; "
        "what is beyond that must be lent by queues that other stacks have in this cohort"
    ]


MOVING = put(
    "pools t4-claims",
    {
        "node_selector": {"nvidia.com/gpu.sharing-strategy": "claims"},
        "nodes": 1,
        "memory_mib": 15360,
        "reserve_mib": 1360,
        "placement": "dra",
    },
)


def test_nodes_and_seats_move_from_one_pool_to_another_that_is_placed_by_claims() -> None:
    assert refusal(MOVING, put("residents frigate pool", "t4-claims")) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ((put("pools batch placement", "dra"),), "batch.placement: has no use where sharing is whole; remove it"),
        (
            (MOVING, drop("scheduler")),
            "t4-claims.placement: nobody places by device; add scheduler: {placement: extender}, or remove it",
        ),
        (
            (put("scheduler", {"placement": "dra"}), drop("reconcile"), put("pools t4 placement", "extender")),
            "t4.placement: no extender runs (scheduler.placement is dra); write scheduler.placement: extender, and "
            "placement: dra for the pools that are placed by claims",
        ),
        (
            (*NVIDIAS, put("pools t4 placement", "dra")),
            "t4.placement: nodes move one by one to the exporter's devices alone, whose slices it writes; remove it, "
            "or scheduler.driver gpu.nvidia.com",
        ),
    ],
    ids=["whole devices", "no scheduler", "no extender", "another driver's devices"],
)
def test_a_pools_placement_that_nobody_would_keep_is_refused(changes: tuple[Change, ...], told: str) -> None:
    assert f"gpu-tenancy:pools.{told}" in refusal(*changes)


def test_where_a_pool_is_placed_by_claims_its_gpumem_is_for_no_queue() -> None:
    told = refusal(
        MOVING,
        put("queues flavors moved-memory", {"pool": "t4-claims"}),
        put(
            "queues cluster_queues memory-cq",
            {"quotas": {"moved-memory": {"viktorbarzin.me/gpumem": {"nominal": 500}}}},
        ),
    )
    assert told == [
        "gpu-tenancy:queues.cluster_queues.memory-cq.quotas.moved-memory.viktorbarzin.me/gpumem: no node advertises "
        "it where seats are claimed (pools.t4-claims.placement dra); remove it"
    ]
