"""Tests the order in which a stack's parts are created."""

from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.kueue import Chart
from stacks import platform, settings
from tests.support.engine import Graph, Recorded, build
from tests.support.given import environment
from tests.support.prod import ROOT, Change, declared, drop, put, raw


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
    while (parent := graph.parent(resource)) is not None:
        resource = parent
    return resource


def reversed_maps(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_maps(value[key]) for key in reversed(value)}
    return [reversed_maps(item) for item in value] if isinstance(value, list) else value


@pytest.mark.no_cover
def test_what_is_declared_does_not_depend_on_the_order_of_the_configuration(prod: Graph) -> None:
    def identified(graph: Graph) -> dict[tuple[str, str], Any]:
        return {(o["kind"], str(o["metadata"])): o for o in graph.objects()}

    turned = graph_of(reversed_maps(raw()))
    assert identified(turned) == identified(prod)
    assert turned.exports == prod.exports


def test_of_prod_the_watchdog_may_evict_everywhere_but_where_the_numbers_are_assumed(prod: Graph) -> None:
    evicts = {
        role["metadata"]["namespace"]
        for role in (dict(each.inputs) for each in prod.all("Role"))
        if any("pods/eviction" in rule["resources"] for rule in role["rules"])
    }
    assert evicts == {"immich", "llama-swap", "frigate", "portal-stt"}, "not inference, which is on node-4 alone"


def test_a_tenant_may_also_request_what_its_queues_hand_out() -> None:
    config = changed(
        put("queues flavors t4-memory", {"pool": "t4"}),
        put(
            "queues cluster_queues memory-cq",
            {"quotas": {"t4-memory": {"viktorbarzin.me/gpumem": {"nominal": 500}}}},
        ),
        put("queues local_queues frigate-memory", {"tenant": "frigate", "cluster_queue": "memory-cq"}),
    )
    assert declared(config)["frigate-quota"]["spec"]["hard"] == {
        "requests.viktorbarzin.me/gpumem": "2500",
        "requests.viktorbarzin.me/gpu-count": "1",
        "requests.nvidia.com/gpu": "1",
        "requests.nvidia.com/gpu.shared": "1",
    }


def test_queues_wait_for_kueues_webhooks_and_local_queues_for_their_namespaces(prod: Graph) -> None:
    release = prod.one("Release")
    for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass"):
        for queue in prod.all(kind):
            assert prod.depends_on(queue, release)
    door = prod.one("LocalQueue", "local-queues-team-a-gpu")
    assert prod.depends_on(door, prod.one("NamespacePatch", "team-a-namespace"))


def test_a_queue_tenants_jobs_go_before_the_queue_whose_quota_they_hold(prod: Graph) -> None:
    """Kueue keeps a deleted ClusterQueue while a Workload holds its quota."""
    queue = prod.one("ClusterQueue", "queues-cluster-gpu-cq")
    assert prod.depends_on(prod.one("NamespacePatch", "team-a-namespace"), queue)
    assert not prod.depends_on(prod.one("NamespacePatch", "frigate-namespace"), queue)


def test_pods_are_judged_by_their_namespaces_level_once_that_is_labelled(prod: Graph) -> None:
    policy = prod.one("ValidatingAdmissionPolicy", "admission-gpu-tenancy-pod-security-baseline")
    assert prod.depends_on(policy, prod.one("NamespacePatch", "immich-namespace"))
    assert not prod.depends_on(policy, prod.one("NamespacePatch", "team-a-namespace"))


def test_agents_wait_for_their_namespace_and_the_gate_for_its_tenants(prod: Graph) -> None:
    home = prod.one("NamespacePatch", "system-namespace")
    for kind in ("CronJob", "DaemonSet"):
        for workload in prod.all(kind):
            assert prod.depends_on(workload, home)
    gate = prod.one("CronJob", "gate-cron-job")
    assert prod.depends_on(gate, prod.one("NamespacePatch", "tts-namespace"))
    assert not prod.depends_on(gate, prod.one("NamespacePatch", "frigate-namespace"))


def test_every_pod_of_the_agents_is_selected_by_one_policy_that_says_who_reaches_it(prod: Graph) -> None:
    """At any time, a NetworkPolicy selects each pod of the agents."""
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


def test_without_the_agent_the_ledger_is_declared_and_nothing_is_advertised() -> None:
    objects = declared(changed(drop("reconcile"), drop("residents"), drop("scheduler")))
    assert "Job" not in {found["kind"] for found in objects.values()}
    assert "capacity-ledger" in objects


def pinned(root: Path, version: str) -> Path:
    chart = root / ".toolchain" / "charts" / "kueue"
    chart.mkdir(parents=True)
    (chart / "Chart.yaml").write_text(f"apiVersion: v2\nname: kueue\nversion: {version}\n")
    return root


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
    [({}, "labels", "true"), (None, "labels", "false"), (None, "slices", "true")],
)
def test_devices_are_published_for_who_places_or_advertises_by_them(
    scheduler: Any, source: str, published: str
) -> None:
    change = drop("scheduler") if scheduler is None else put("scheduler", scheduler)
    exporter = declared(changed(change, put("pools t4 source", source)))["exporter-daemon-set"]
    assert environment(exporter)["PUBLISH_DEVICES"] == published


def test_the_quota_of_a_queue_tenant_counts_the_gpus_that_its_queues_hand_out() -> None:
    """Before the fix, six pods used a queue's only GPU at the same time."""
    change = put("queues cluster_queues gpu-cq quotas gpu-any nvidia.com/mig-1g.5gb", {"nominal": 3})
    seat = put("residents train", {"tenant": "team-b", "pool": "t4", "gpumem_mib": 500, "replicas": 2})
    hard = {
        found["metadata"]["namespace"]: found["spec"]["hard"]
        for found in declared(changed(change, seat)).values()
        if found["kind"] == "ResourceQuota"
    }
    counted = ("requests.nvidia.com/gpu", "requests.nvidia.com/gpu.shared", "requests.nvidia.com/mig-1g.5gb")
    assert [hard["team-a"][resource] for resource in counted] == ["1", "0", "3"]
    assert [hard["team-b"][resource] for resource in counted] == ["3", "2", "5"], "its seats ask for one each"
    assert not any(resource in hard["immich"] for resource in counted)
