from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.kueue import Chart
from stacks import platform, settings
from stacks.admission import admission_args
from tenancy.ledger import Ledger
from tenancy.names import QUEUE_TENANT, SEATS
from tests.support.engine import Graph, Recorded, build, names
from tests.support.given import environment
from tests.support.prod import ROOT, Change, drop, put, raw


def graph_of(config: dict[str, Any], root: Path = ROOT) -> Graph:
    parsed = settings.parse(config)

    def program() -> None:
        for name, value in vars(platform.build(parsed, root)).items():
            pulumi.export(name, value)

    return build(program)


def changed(*changes: Change) -> dict[str, Any]:
    config = raw()
    for change in changes:
        change(config)
    return config


@pytest.fixture(scope="module")
def prod() -> Graph:
    return graph_of(raw())


def components(graph: Graph) -> set[str]:
    return {r.kind for r in graph.resources if not r.custom}


def root_of(graph: Graph, resource: Recorded) -> Recorded:
    """The part that a resource belongs to."""
    while (parent := graph.parent(resource)) is not None:
        resource = parent
    return resource


def test_prod_has_every_part(prod: Graph) -> None:
    assert {root_of(prod, r).name for r in prod.resources} == {
        *("system", "priorities", "capacity", "kueue", "queues", "local-queues"),
        *("exporter", "watchdog", "gate", "scheduler", "alerts", "admission", "memory", "guard"),
        *raw()["tenants"],
    }


def reversed_maps(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_maps(value[key]) for key in reversed(value)}
    return [reversed_maps(item) for item in value] if isinstance(value, list) else value


def test_what_is_declared_does_not_depend_on_the_order_of_the_configuration(prod: Graph) -> None:
    """The engine sorts the maps of a configuration, a file keeps its own order: a digest or a bar must not tell."""

    def identified(graph: Graph) -> dict[tuple[str, str], Any]:
        return {(o["kind"], str(o["metadata"])): o for o in graph.objects()}

    turned = graph_of(reversed_maps(raw()))
    assert identified(turned) == identified(prod)
    assert turned.exports == prod.exports


def test_every_object_belongs_to_a_part(prod: Graph) -> None:
    assert not [r for r in prod.resources if r.custom and prod.parent(r) is None]


def test_no_two_objects_are_the_same(prod: Graph) -> None:
    ids = [
        (o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in prod.objects() if "metadata" in o
    ]
    assert len(ids) == len(set(ids))


def test_quotas_are_the_sums_of_the_seats(prod: Graph) -> None:
    hard = {
        q.inputs["metadata"]["namespace"]: q.inputs["spec"]["hard"]["requests.viktorbarzin.me/gpumem"]
        for q in prod.all("ResourceQuota")
        if q.inputs["metadata"]["name"] == SEATS
    }
    assert {tenant: amount for tenant, amount in hard.items() if amount != "0"} == {
        "immich": "4800",
        "llama-swap": "5k",
        "frigate": "2k",
        "inference": "12288",
        "portal-stt": "1500",
    }
    assert hard.keys() == raw()["tenants"].keys()


def test_a_tenant_may_also_request_what_its_queues_hand_out() -> None:
    config = changed(
        put("queues flavors t4-memory", {"pool": "t4"}),
        put(
            "queues cluster_queues memory-cq",
            {"quotas": {"t4-memory": {"viktorbarzin.me/gpumem": {"nominal": 500}}}},
        ),
        put("queues local_queues frigate-memory", {"tenant": "frigate", "cluster_queue": "memory-cq"}),
    )
    quota = graph_of(config).one("ResourceQuota", "frigate-quota").inputs
    assert quota["spec"]["hard"] == {
        "requests.viktorbarzin.me/gpumem": "2500",
        "requests.viktorbarzin.me/gpu-count": "1",
    }


def test_queues_wait_for_kueues_webhooks_and_local_queues_for_their_namespaces(prod: Graph) -> None:
    release = prod.one("Release")
    for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass"):
        for queue in prod.all(kind):
            assert prod.depends_on(queue, release)
    door = prod.one("LocalQueue", "local-queues-team-a-gpu")
    assert prod.depends_on(door, prod.one("Namespace", "team-a-namespace"))


def test_a_queue_tenants_jobs_go_before_the_queue_whose_quota_they_hold(prod: Graph) -> None:
    """Kueue keeps a ClusterQueue while a Workload holds quota: deleted first, it would hold up `destroy` for ever."""
    queue = prod.one("ClusterQueue", "queues-cluster-gpu-cq")
    assert prod.depends_on(prod.one("Namespace", "team-a-namespace"), queue)
    assert not prod.depends_on(prod.one("Namespace", "frigate-namespace"), queue)


def test_pods_are_judged_by_their_namespaces_level_once_that_is_labelled(prod: Graph) -> None:
    policy = prod.one("ValidatingAdmissionPolicy", "admission-gpu-tenancy-pod-security-baseline")
    assert prod.depends_on(policy, prod.one("Namespace", "immich-namespace"))
    assert not prod.depends_on(policy, prod.one("Namespace", "team-a-namespace"))  # which waits for Kueue


def test_only_queue_tenants_bear_the_label_that_kueue_goes_by(prod: Graph) -> None:
    assert names(n for n in prod.all("Namespace") if QUEUE_TENANT in n.inputs["metadata"]["labels"]) == {
        "team-a-namespace",
        "team-b-namespace",
    }


def test_agents_wait_for_their_namespace_and_the_gate_for_its_tenants(prod: Graph) -> None:
    home = prod.one("Namespace", "system-namespace")
    for kind in ("CronJob", "DaemonSet"):
        for workload in prod.all(kind):
            assert prod.depends_on(workload, home)
    gate = prod.one("CronJob", "gate-cron-job")
    assert prod.depends_on(gate, prod.one("Namespace", "tts-namespace"))
    assert not prod.depends_on(gate, prod.one("Namespace", "frigate-namespace"))


def test_every_pod_of_the_agents_is_selected_by_one_policy_that_says_who_reaches_it(prod: Graph) -> None:
    """By its own, which comes later than the namespace's, or by that one: none is out of reach in between."""
    by_namespace: dict[str, tuple[set[str], set[str]]] = {}
    for found in prod.all("NetworkPolicy"):
        selector = found.inputs["spec"]["podSelector"]
        own, passed_over = by_namespace.setdefault(found.inputs["metadata"]["namespace"], (set(), set()))
        own.update(selector.get("matchLabels", {}).values())
        passed_over.update(v for e in selector.get("matchExpressions", []) for v in e["values"])
    assert by_namespace == {
        "gpu-tenancy-system": ({"gpu-tenancy-scheduler"}, {"gpu-tenancy-scheduler"}),
        "gpu-tenancy-system-nodes": (
            {"gpu-memory-exporter", "memory-guard"},
            {"gpu-memory-exporter", "memory-guard"},
        ),
    }


def test_policies_come_after_the_classes_they_stamp_and_the_budgets_they_ask_for(prod: Graph) -> None:
    for kind in ("ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding"):
        for binding in prod.all(kind):
            if root_of(prod, binding).name == "admission":
                assert prod.depends_on(binding, prod.one("Job"))
                assert prod.depends_on(binding, prod.one("PriorityClass", "priorities-gpu-workload"))


def test_the_outputs_are_what_their_readers_expect(prod: Graph) -> None:
    assert prod.exports.keys() == {"ledger", "residents", "memory", "seating_chart"}
    ledger = Ledger.from_data(prod.exports["ledger"]["gpu-tenancy"]["ledger"])
    assert ledger == settings.parse(raw()).ledger()
    budget = {"viktorbarzin.me/gpumem": "3k"}
    assert prod.exports["residents"]["immich-ml"] == {
        "namespace": "immich",
        "pool": "t4",
        "nodeSelector": {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.sharing-strategy": "time-slicing"},
        "resources": {"limits": budget, "requests": budget},
        "replicas": 1,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "priorityClassName": "gpu-workload",
    }
    assert prod.exports["residents"]["inference"]["priorityClassName"] == "homelab-critical"
    assert prod.exports["memory"]["node-4"]["inference"]["resources"]["requests"] == {"memory": "8Gi"}
    assert "13300 of 14000 MiB" in prod.exports["seating_chart"]


def test_without_the_extender_a_seats_container_asks_the_device_plugin_for_a_turn() -> None:
    stanza = graph_of(changed(drop("scheduler"))).exports["residents"]["immich-ml"]
    budget = {"viktorbarzin.me/gpumem": "3k", "nvidia.com/gpu": "1"}
    assert stanza["resources"] == {"limits": budget, "requests": budget}


def test_below_a_component_every_part_has_its_name_and_no_object_another_one(prod: Graph) -> None:
    def program() -> None:
        place = platform.Place(parent=pulumi.ComponentResource("test:index:Home", "home"), prefix="home-")
        platform.build(settings.parse(raw()), ROOT, place)

    below = build(program)
    home = below.one("Home")
    parts = below.children(home)
    assert {part.name for part in parts} == {f"home-{r.name}" for r in prod.resources if prod.parent(r) is None}
    assert {root_of(below, resource).name for resource in below.resources} == {"home"}

    def called(graph: Graph) -> list[tuple[str, str, str]]:
        found = [(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in graph.objects()]
        return sorted(found)

    assert called(below) == called(prod)


# What is gone with a part: the components of the graph, and what it takes along because nothing else is left of it.
GONE = {
    "tenants": {"Tenant", "Gate", "Queues", "LocalQueues", "Memory", "Guard"},
    "priorities": {"Priorities", "Admission", "Scheduler", "Memory", "Guard"},
    "admission": {"Admission", "Scheduler", "Memory", "Guard"},
    "kueue": {"Kueue"},
    "queues": {"Queues", "LocalQueues"},
    "watchdog": {"Watchdog"},
    "on_demand": {"Gate"},
    "alerts": {"Alerts"},
    "exporter": {"Exporter", "Watchdog", "Gate", "Scheduler", "Alerts"},
    "scheduler": {"Scheduler"},
    "residents": set(),
    "unbudgeted": set(),
    "memory_pools": {"Memory", "Guard"},
}
# What cannot stay without a part, because the settings refuse it or it names what is gone.
GOES_ALONG = {
    "tenants": ("residents", "on_demand", "unbudgeted", "queues", "memory_pools", "admission tenant_priorities"),
    "priorities": ("admission", "scheduler", "memory_pools"),
    "admission": ("scheduler", "memory_pools"),
    "exporter": ("watchdog", "gate", "on_demand", "scheduler", "alerts"),
}


@pytest.mark.parametrize("part", GONE)
def test_a_part_that_is_left_out_is_not_declared(prod: Graph, part: str) -> None:
    graph = graph_of(changed(drop(part), *(drop(other) for other in GOES_ALONG.get(part, ()))))
    assert components(prod) - components(graph) == GONE[part]


def test_who_reads_is_declared_where_the_settings_say_so(prod: Graph) -> None:
    graph = graph_of(changed(put("readers", {"viewers": ["team-a"], "operators": ["platform"]})))
    assert components(graph) - components(prod) == {"Readers"}
    nodes = graph.one("Role", "readers-exporters-role").inputs["metadata"]["namespace"]
    assert nodes == graph.one("DaemonSet", "exporter-daemon-set").inputs["metadata"]["namespace"]


def test_a_pool_without_the_guard_gets_none(prod: Graph) -> None:
    graph = graph_of(changed(put("memory_pools node-4 guard", False)))
    assert components(prod) - components(graph) == {"Guard"}


def test_the_guard_has_its_code_where_nothing_is_measured() -> None:
    graph = graph_of(changed(*(drop(part) for part in ("exporter", *GOES_ALONG["exporter"]))))
    workload = graph.one("DaemonSet").inputs
    (volume,) = workload["spec"]["template"]["spec"]["volumes"]
    home = workload["metadata"]["namespace"]
    held = {
        o["metadata"]["name"]
        for o in graph.objects()
        if o["kind"] == "ConfigMap" and o["metadata"]["namespace"] == home
    }
    assert volume["configMap"]["name"] in held


def test_without_the_agent_the_ledger_is_declared_and_nothing_is_advertised() -> None:
    graph = graph_of(changed(drop("reconcile"), drop("residents"), drop("scheduler")))
    assert not graph.all("Job")
    assert graph.one("ConfigMap", "capacity-ledger")


def test_the_smallest_stack_is_its_ledger() -> None:
    graph = graph_of({key: value for key, value in raw().items() if key in ("cluster", "pools")})
    assert components(graph) == {"System", "Capacity"}
    assert graph.exports["residents"] == {}


def test_alerts_watch_the_agents_that_are_there() -> None:
    graph = graph_of(changed(drop("watchdog"), drop("gate"), drop("on_demand")))
    assert graph.outputs_of(graph.one("Alerts"))["alerts"]
    assert graph.one("Alerts").inputs["cronJobs"] == ["gpumem-reconcile"]


def test_who_needs_no_budget_is_on_record_or_queues() -> None:
    parsed = settings.parse(raw())
    assert parsed.admission is not None
    args = admission_args(parsed.admission, parsed, parsed.ledger())
    assert args.without_budget == ["android-emulator", "ebook2audiobook", "team-a", "team-b", "tts", "ytdlp"]
    assert args.exempt == ["kube-system"]
    assert args.device_mib == 14000
    assert args.priority_tenants["homelab-disposable"] == {"agents"}


def test_the_gpus_of_who_needs_no_budget_are_counted(prod: Graph) -> None:
    hard = {quota.inputs["metadata"]["namespace"]: quota.inputs["spec"]["hard"] for quota in prod.all("ResourceQuota")}
    counted = {
        tenant: held["requests.nvidia.com/gpu"] for tenant, held in hard.items() if "requests.nvidia.com/gpu" in held
    }
    assert counted == dict.fromkeys(("tts", "ytdlp", "ebook2audiobook", "android-emulator"), "1")


@pytest.mark.parametrize(
    ("change", "gpus"),
    [
        (put("on_demand tts gpus", 2), 2),
        (put("unbudgeted second", {"tenant": "tts", "pool": "t4", "measured_mib": 1, "gpus": 3}), 4),
        (put("residents seat", {"tenant": "tts", "pool": "t4", "gpumem_mib": 1, "replicas": 2}), 3),
        (drop("on_demand tts"), None),
    ],
    ids=["more", "of two workloads", "beside seats", "none"],
)
def test_they_are_as_many_as_are_on_record(change: Change, gpus: int | None) -> None:
    assert settings.parse(changed(change)).ledger().gpus_of("tts") == gpus


@pytest.mark.parametrize(
    ("change", "own"),
    [
        (put("kueue namespace", "queueing"), ["gpu-tenancy-system", "queueing"]),
        (drop("kueue"), ["gpu-tenancy-system", "kueue-system"]),
    ],
    ids=["the stack's", "somebody else's"],
)
def test_kueue_has_the_systems_classes_whoever_installed_it(change: Change, own: list[str]) -> None:
    parsed = settings.parse(changed(change))
    assert parsed.admission is not None
    assert list(admission_args(parsed.admission, parsed, parsed.ledger()).own) == own


def test_without_queues_no_namespace_is_kueues() -> None:
    parsed = settings.parse(changed(drop("kueue"), drop("queues")))
    assert parsed.admission is not None
    assert list(admission_args(parsed.admission, parsed, parsed.ledger()).own) == ["gpu-tenancy-system"]


def test_queue_tenants_go_to_the_pool_of_whole_devices_behind_their_queue() -> None:
    parsed = settings.parse(raw())
    assert parsed.admission is not None
    (placement,) = admission_args(parsed.admission, parsed, parsed.ledger()).queued
    assert (placement.name, placement.tenants) == ("batch", ["team-a", "team-b"])
    assert placement.node_selector == {
        "kubernetes.io/hostname": "k8s-node2",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.sharing-strategy": "none",
    }


def test_the_others_go_to_the_pool_of_their_seats_or_where_they_are_on_record() -> None:
    parsed = settings.parse(raw())
    assert parsed.admission is not None
    seated = {placed.name: placed for placed in admission_args(parsed.admission, parsed, parsed.ledger()).seated}
    assert {name: placed.tenants for name, placed in seated.items()} == {
        "node-4": ["inference"],
        "t4": ["android-emulator", "ebook2audiobook", "frigate", "immich", "llama-swap", "portal-stt", "tts", "ytdlp"],
    }
    assert seated["node-4"].node_selector == parsed.pools["node-4"].node_selector


def test_a_tenant_of_two_pools_gets_the_labels_they_share_and_one_that_queues_is_left_alone() -> None:
    config = changed(
        put("unbudgeted second", {"tenant": "android-emulator", "pool": "node-4", "measured_mib": 100}),
        put("residents train", {"tenant": "team-a", "pool": "t4", "gpumem_mib": 100}),
    )
    parsed = settings.parse(config)
    assert parsed.admission is not None
    placed = {
        tenant: p for p in admission_args(parsed.admission, parsed, parsed.ledger()).seated for tenant in p.tenants
    }
    assert placed["android-emulator"].node_selector == {"nvidia.com/gpu.present": "true"}
    assert "team-a" not in placed


def test_a_queue_over_two_pools_goes_by_the_labels_they_share() -> None:
    l4 = {"gpu.example.com/model": "l4", "nvidia.com/gpu.sharing-strategy": "none", "kubernetes.io/hostname": "l4"}
    config = changed(
        put("pools l4", {"node_selector": l4, "nodes": 1, "sharing": "whole"}),
        put("pools batch node_selector", {**l4, "gpu.example.com/model": "t4", "kubernetes.io/hostname": "t4"}),
        put("queues flavors l4", {"pool": "l4", "node_labels": {"gpu.example.com/model": "l4"}}),
        put("queues cluster_queues gpu-cq quotas l4", {"nvidia.com/gpu": {"nominal": 1}}),
    )
    parsed = settings.parse(config)
    assert parsed.admission is not None
    (placement,) = admission_args(parsed.admission, parsed, parsed.ledger()).queued
    assert placement.name == "batch.l4"
    assert placement.node_selector == {"nvidia.com/gpu.sharing-strategy": "none"}


def test_a_queue_for_shared_memory_places_nobody() -> None:
    config = changed(
        put("queues flavors", {"t4-memory": {"pool": "t4"}}),
        put(
            "queues cluster_queues gpu-cq quotas",
            {"t4-memory": {"viktorbarzin.me/gpumem": {"nominal": 500}}},
        ),
    )
    parsed = settings.parse(config)
    assert parsed.admission is not None
    assert not admission_args(parsed.admission, parsed, parsed.ledger()).queued


def pinned(root: Path, version: str) -> Path:
    chart = root / ".toolchain" / "charts" / "kueue"
    chart.mkdir(parents=True)
    (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: kueue\nversion: {version}\n")
    return root


def test_the_chart_is_the_pinned_copy_by_a_path_that_is_the_same_everywhere(tmp_path: Path) -> None:
    assert platform.kueue_chart("0.19.2", pinned(tmp_path, "0.19.2")) == Chart(address="./.toolchain/charts/kueue")


def test_another_version_comes_from_the_registry_and_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", said.append)
    upstream = Chart(address="oci://registry.k8s.io/kueue/charts/kueue", version="0.18.6")
    assert platform.kueue_chart("0.18.6", pinned(tmp_path, "0.19.2")) == upstream
    assert platform.kueue_chart("0.18.6", tmp_path / "nowhere") == upstream
    assert said == [
        "gpu-tenancy:kueue.version: the chart of 0.18.6 comes from oci://registry.k8s.io/kueue/charts/kueue; where "
        "that cannot be reached write 0.19.2, which is here"
    ]


def test_the_scheduler_is_there_before_anything_asks_for_gpumem_and_before_pods_are_sent_to_it(prod: Graph) -> None:
    scheduler = prod.one("Deployment")
    assert scheduler.inputs["metadata"]["name"] == "gpu-tenancy-scheduler"
    assert prod.depends_on(scheduler, prod.one("Job"))  # which advertises
    assert prod.depends_on(prod.one("MutatingAdmissionPolicy", "admission-gpu-tenancy-device-stamp"), scheduler)


@pytest.mark.parametrize(
    ("scheduler", "source", "published"),
    [({"placement": "extender"}, "labels", "true"), ({}, "labels", "false"), ({}, "slices", "true")],
)
def test_devices_are_published_for_who_places_or_advertises_by_them(
    scheduler: Any, source: str, published: str
) -> None:
    graph = graph_of(changed(put("scheduler", scheduler), put("pools t4 source", source)))
    exporter = graph.one("DaemonSet", "exporter-daemon-set")
    assert environment(dict(exporter.inputs))["PUBLISH_DEVICES"] == published


def test_without_a_scheduler_the_device_plugin_chooses() -> None:
    graph = graph_of(changed(drop("scheduler")))
    assert "Scheduler" not in components(graph)
    assert "admission-gpu-tenancy-device-stamp" not in names(graph.all("MutatingAdmissionPolicy"))


@pytest.fixture(scope="module")
def claimed() -> Graph:
    return graph_of(changed(put("scheduler", {"placement": "dra"}), drop("reconcile")))


def test_claimed_seats_are_given_by_the_clusters_own_scheduler(claimed: Graph) -> None:
    assert "Claims" in components(claimed)
    assert "Scheduler" not in components(claimed)
    assert "admission-gpu-tenancy-device-stamp" not in names(claimed.all("MutatingAdmissionPolicy"))
    assert environment(dict(claimed.one("DaemonSet", "exporter-daemon-set").inputs))["PUBLISH_DEVICES"] == "true"
    frigate = claimed.exports["residents"]["frigate"]
    assert frigate["resourceClaims"] == [{"name": "gpumem", "resourceClaimTemplateName": "frigate-gpumem"}]


def test_on_nvidias_devices_the_exporter_publishes_none_of_its_own() -> None:
    """The same memory would be there to claim twice. It sees them by a claim, which its namespace is labelled for."""
    nvidias = {"placement": "dra", "driver": "gpu.nvidia.com", "consumable_shares": "memory"}
    graph = graph_of(changed(put("scheduler", nvidias), *map(drop, ("reconcile", "on_demand", "unbudgeted", "gate"))))
    assert environment(dict(graph.one("DaemonSet", "exporter-daemon-set").inputs))["PUBLISH_DEVICES"] == "false"
    (nodes,) = (each for each in graph.all("Namespace") if each.name == "system-node-namespace")
    assert nodes.inputs["metadata"]["labels"]["resource.kubernetes.io/admin-access"] == "true"
    (request,) = graph.one("ResourceClaimTemplate", "claims-frigate-template").inputs["spec"]["spec"]["devices"][
        "requests"
    ]
    assert [*request["exactly"]["capacity"]["requests"]] == ["memory"]


def test_claims_wait_for_their_tenants_namespaces(claimed: Graph) -> None:
    template = claimed.one("ResourceClaimTemplate", "claims-frigate-template")
    assert claimed.depends_on(template, claimed.one("Namespace", "frigate-namespace"))


def test_nothing_watches_for_memory_that_nobody_advertises(claimed: Graph) -> None:
    group, _ = claimed.one("PrometheusRule").inputs["spec"]["groups"]
    told = {rule["alert"] for rule in group["rules"]}
    assert {"GpuLedgerFull", "GpuMemoryPending"} <= told  # of who waits with a claim
    assert "GpuCapacityDrift" not in told


@pytest.fixture(scope="module")
def moving() -> Graph:
    """Frigate's seat has moved to a pool that is placed by claims."""
    pool = {
        "node_selector": {"nvidia.com/gpu.sharing-strategy": "claims"},
        "nodes": 1,
        "memory_mib": 15360,
        "reserve_mib": 1360,
        "placement": "dra",
    }
    return graph_of(changed(put("pools t4-claims", pool), put("residents frigate pool", "t4-claims")))


def test_while_a_stack_moves_each_seat_is_given_by_who_places_on_its_pool(moving: Graph) -> None:
    assert {"Claims", "Scheduler", "Capacity"} <= set(components(moving))
    residents = moving.exports["residents"]
    assert residents["frigate"]["resourceClaims"]
    assert "limits" not in residents["frigate"]["resources"]
    assert residents["llama-swap"]["resources"]["limits"] == {"viktorbarzin.me/gpumem": "5k"}
    assert [each.name for each in moving.all("DeviceClass")] == ["claims-frigate-class"]


def test_a_seat_that_moved_is_in_one_quota_and_not_in_both(moving: Graph) -> None:
    hard = [quota.inputs["spec"]["hard"] for quota in moving.all("ResourceQuota") if "frigate" in quota.name]
    assert not any(int(limits.get("requests.viktorbarzin.me/gpumem", "0")) for limits in hard)
    assert any(key.endswith("deviceclass.resource.k8s.io/devices") for limits in hard for key in limits)
