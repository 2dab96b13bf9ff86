"""Tests that the settings and the policy pack accept the stack file that init proposes for a cluster."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpumem import checkout, survey
from gpumem.init.peaks import Peak
from gpumem.init.propose import StackProposal, find_gpus, propose
from gpumem.init.stack_text import AGENT_IMAGE, stack_text
from gpumem.pods import Workload
from gpumem.survey import SurveyError
from stacks import settings, stackfile
from stacks.commands import EXAMPLE
from tests.support import given_clusters as given_by
from tests.support.given_clusters import (
    GPU,
    STEADY,
    Cluster,
    device_plugin,
    device_slice,
    labelled,
    node,
    of_deployment,
    pod,
    record_0000,
    residents,
    scaled,
)
from tests.support.paths import ROOT

PEAKS = {
    Workload(given_by.NAMESPACE_OF.get(name, name), "Deployment", name): Peak(mib, "gpu_pod_memory_used_bytes", 28)
    for name, mib in STEADY.items()
}


def proposed(cluster: Cluster, peaks: Mapping[Workload, Peak] | None = None) -> StackProposal:
    found = survey.read(cluster.api())
    return propose(found, find_gpus(found), peaks or {})


def values(proposal: StackProposal, folder: Path) -> dict[str, Any]:
    path = folder / "Pulumi.mine.yaml"
    path.write_text(stack_text(proposal))
    found = stackfile.read(path)
    settings.load_file(path)
    assert checkout.refusals_of(found.values) == ()
    return found.values


def budgets(found: Mapping[str, Any]) -> dict[str, int]:
    return {name: seat["gpumem_mib"] for name, seat in found["residents"].items()}


def test_without_measurements_the_residents_share_their_pool_by_assumption(tmp_path: Path) -> None:
    assert set(budgets(values(proposed(record_0000()), tmp_path)).values()) == {2300}


def test_namespaces_stay_and_each_has_the_level_that_its_pods_need(tmp_path: Path) -> None:
    cluster = record_0000()
    cluster.namespaces["frigate"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.namespaces["llama-swap"] = {"pod-security.kubernetes.io/enforce": "privileged"}
    proposal = proposed(cluster)
    tenants = values(proposal, tmp_path)["tenants"]
    assert {name: tenant["pod_security"] for name, tenant in tenants.items()} == {
        "android-emulator": "privileged",
        "frigate": "restricted",
        "immich": "baseline",
        "llama-swap": "privileged",
        "portal-stt": "baseline",
    }
    (line,) = (line for line in stack_text(proposal).splitlines() if "/dev/kvm" in line)
    assert line.strip().startswith("pod_security: privileged # android-emulator:")


def test_the_namespace_of_the_device_plugin_is_exempt(tmp_path: Path) -> None:
    assert values(proposed(record_0000()), tmp_path)["admission"]["exempt_namespaces"] == ["nvidia"]


def test_a_namespace_that_only_looks_like_the_operators_is_not_exempt() -> None:
    copy = pod("nvidia-device-plugin-x", "evil", owner=("DaemonSet", "nvidia-device-plugin"), runtimeClassName="nvidia")
    proposal = proposed(record_0000(copy))
    assert (set(proposal.exempt), "evil" in {tenant.name for tenant in proposal.tenants}) == ({"nvidia"}, True)


def test_a_device_plugin_in_a_namespace_of_everybody_is_named_and_not_exempt(tmp_path: Path) -> None:
    proposal = proposed(record_0000(device_plugin("default"), device_plugin("gpu-tenancy-system-nodes")))
    assert values(proposal, tmp_path)["admission"]["exempt_namespaces"] == ["nvidia"]
    assert any(line.startswith("namespace default cannot be exempt") for line in proposal.misfits)


def test_the_class_that_all_gpu_pods_have_stays_their_class(tmp_path: Path) -> None:
    found = values(proposed(record_0000()), tmp_path)
    assert found["priorities"] == {"gpu-workload": {"value": 1200000, "create": False}}
    assert found["admission"]["gpu_priority"] == "gpu-workload"


def test_a_tenants_own_lower_class_stays_its_own(tmp_path: Path) -> None:
    cluster = record_0000(*of_deployment("tts", "tts", limits={GPU: "1"}, priorityClassName="tier-2-gpu"))
    cluster.priorities.append({"metadata": {"name": "tier-2-gpu"}, "value": 600000, "preemptionPolicy": "Never"})
    found = values(proposed(cluster), tmp_path)
    assert found["priorities"]["tier-2-gpu"] == {"value": 600000, "create": False, "preemption_policy": "Never"}
    assert found["admission"]["tenant_priorities"] == {"tts": "tier-2-gpu"}


def test_a_class_that_other_pods_have_too_is_left_to_them(tmp_path: Path) -> None:
    cluster = record_0000(pod("web-1", "web", on="k8s-node0", priorityClassName="gpu-workload"))
    proposal = proposed(cluster)
    assert values(proposal, tmp_path)["admission"]["gpu_priority"] == "gpu-workload-2"
    assert "- gpu-workload (1200000)" in stack_text(proposal)


def test_budgets_that_pods_request_already_stay_with_their_domain(tmp_path: Path) -> None:
    resource = "viktorbarzin.me/gpumem"
    cluster = Cluster(
        nodes=[labelled("k8s-node1", "Tesla-T4", 15360, replicas=100)],
        pods=residents({resource: "3k"}),
    )
    cluster.nodes[0]["status"]["allocatable"][resource] = "15k"
    found = values(
        proposed(cluster, PEAKS | {Workload("llama-swap", "Deployment", "llama-swap"): Peak(2, "m", 28)}), tmp_path
    )
    assert found["cluster"]["resource_domain"] == "viktorbarzin.me"
    assert (found["pools"]["t4"]["reserve_mib"], set(budgets(found).values())) == (360, {3000})


@pytest.mark.parametrize("resource", ["nvidia.com/gpumem", "vgpu.nvidia.com/gpumem", "nodot/gpumem"])
def test_a_domain_that_no_stack_may_have_is_not_taken(resource: str, tmp_path: Path) -> None:
    cluster = record_0000()
    cluster.nodes[0]["status"]["allocatable"][resource] = "15000"
    assert values(proposed(cluster), tmp_path)["cluster"]["resource_domain"] == "example.com"


def test_a_peak_above_the_request_counts_and_the_comment_has_both() -> None:
    cluster = Cluster(
        nodes=[labelled("a", "Tesla-T4", 15360, replicas=9)],
        pods=of_deployment("big", "big", on="a", limits={GPU: "1", "nvidia.com/gpumem": "1000"}),
    )
    (seat,) = proposed(cluster, {Workload("big", "Deployment", "big"): Peak(10700, "m", 7)}).seats
    assert (seat.gpumem_mib.value, seat.gpumem_mib.is_assumed) == (10700, False)
    assert seat.gpumem_mib.source.endswith("above the budget: its pods request 1000 nvidia.com/gpumem")


def test_a_whole_device_is_the_budget_of_the_pod_that_has_it_alone(tmp_path: Path) -> None:
    cluster = Cluster(
        nodes=[labelled("a", "NVIDIA-L4", 23034, count=2)],
        pods=of_deployment("llm", "chat", replicas=2, on="a", limits={GPU: "1"}),
    )
    found = values(proposed(cluster), tmp_path)
    assert found["residents"]["llm"] == {"tenant": "chat", "pool": "l4", "gpumem_mib": 21100, "replicas": 2}
    assert found["scheduler"] == {"image": "registry.k8s.io/kube-scheduler:v1.36.3"}


def test_pods_with_two_gpus_have_a_seat_of_two_devices_of_one_node(tmp_path: Path) -> None:
    cluster = Cluster(
        nodes=[labelled(name, "NVIDIA-L4", 23034, count=3) for name in ("a", "b")],
        pods=[
            *of_deployment("pair", "chat", on="a", limits={GPU: "2"}),
            *of_deployment("pair", "chat", on="b", limits={GPU: "2"}),
            *of_deployment("late", "chat", on=None, limits={GPU: "2"}),
        ],
    )
    proposal = proposed(cluster)
    assert values(proposal, tmp_path)["residents"] == {
        "pair": {"tenant": "chat", "pool": "l4", "gpumem_mib": 21100, "replicas": 2, "devices_per_pod": 2}
    }
    assert [seat.total_mib for seat in proposal.seats] == [84400]
    (left_out,) = proposal.misfits
    assert left_out.startswith("Deployment chat/late has no seat: its pods wait, and pool l4 has no room left")


def test_pods_that_wait_for_a_device_have_a_seat_only_if_one_is_left(tmp_path: Path) -> None:
    cluster = Cluster(
        nodes=[labelled("a", "NVIDIA-L4", 23034, count=2)],
        pods=[
            *of_deployment("llm", "chat", on="a", limits={GPU: "1"}),
            *of_deployment("first", "chat", on=None, limits={GPU: "1"}),
            *of_deployment("second", "chat", on=None, limits={GPU: "1"}),
        ],
    )
    cluster.pods.append({**of_deployment("llm", "chat", on=None, replicas=2, limits={GPU: "1"})[1]})
    proposal = proposed(cluster)
    found = values(proposal, tmp_path)["residents"]
    assert {name: seat.get("replicas", 1) for name, seat in found.items()} == {"llm": 1, "first": 1}
    assert proposal.misfits == (
        "Deployment chat/second has no seat: its pods wait, and pool l4 has no room left; add a node, or lower a "
        "budget and add residents",
    )


def test_devices_divided_by_mig_are_a_pool_of_whole_ones_and_their_pods_are_named(tmp_path: Path) -> None:
    divided = labelled("b", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 4864, count=7)
    mixed = node("c", {GPU: "0", "nvidia.com/mig-2g.10gb": "3"}, gpu_present="true", gpu_product="NVIDIA-A100")
    cluster = Cluster(
        nodes=[labelled("a", "Tesla-T4", 15360, replicas=4), divided, mixed],
        pods=[
            *of_deployment("small", "small", on="b", limits={GPU: "1"}),
            *of_deployment("t", "t", on="a", limits={GPU: "1"}),
        ],
    )
    proposal = proposed(cluster)
    found = values(proposal, tmp_path)
    assert {name: (pool.get("sharing"), pool["device_count"]) for name, pool in found["pools"].items()} == {
        "a100": ("whole", 3),
        "a100-sxm4-40gb-mig-1g-5gb": ("whole", 7),
        "t4": (None, 1),
    }
    assert [line for line in proposal.misfits if "Deployment small/small" in line and "MIG divides" in line]


def test_without_feature_discovery_resource_slices_show_the_devices(tmp_path: Path) -> None:
    labels = {"node.kubernetes.io/instance-type": "g5"}
    bare = node("a", {GPU: "2"})
    bare["metadata"]["labels"] |= labels
    cluster = Cluster(nodes=[bare, node("b")], slices=[device_slice("a", 24564, 23034)])
    pool = values(proposed(cluster), tmp_path)["pools"]["gpu"]
    assert (pool["memory_mib"], pool["device_count"], pool["source"]) == (23034, 2, "slices")
    assert pool["node_selector"] == labels


def test_where_only_the_resource_shows_a_gpu_its_memory_is_assumed_and_safe(tmp_path: Path) -> None:
    cluster = Cluster(nodes=[node("a", {GPU: "1"}), node("b")])
    proposal = proposed(cluster)
    pool = values(proposal, tmp_path)["pools"]["gpu"]
    assert pool["node_selector"] == {"kubernetes.io/hostname": "a"}
    assert pool["source"] == "slices"
    assert "memory_mib: 15360 # assumed: " in stack_text(proposal)


def test_pools_of_several_kinds_are_told_apart_by_their_labels(tmp_path: Path) -> None:
    cluster = Cluster(
        nodes=[
            labelled("a", "Tesla-T4", 15360, replicas=4),
            labelled("b", "Tesla-T4", 15360),
            labelled("c", "NVIDIA-L4", 23034),
            labelled("d", "NVIDIA-L4", 23034, count=2),
            labelled("e", "NVIDIA-L4", 23034, count=2),
        ]
    )
    pools = values(proposed(cluster), tmp_path)["pools"]
    assert {name: pool["nodes"] for name, pool in pools.items()} == {"t4": 1, "t4-2": 1, "l4": 1, "l4-2": 2}


def two_kinds(*pods: dict[str, Any]) -> Cluster:
    return Cluster(
        nodes=[labelled("a", "Tesla-T4", 15360, replicas=4), labelled("b", "NVIDIA-L4", 23034)], pods=[*pods]
    )


def test_a_tenant_may_have_seats_in_two_pools_and_our_scheduler_with_them(tmp_path: Path) -> None:
    many = of_deployment("many", "default", replicas=2, on="a", limits={GPU: "1"})
    one = of_deployment("one", "default", on="b", limits={GPU: "1"})
    proposal = proposed(two_kinds(*many, *one))
    found = values(proposal, tmp_path)
    assert {name: seat["pool"] for name, seat in found["residents"].items()} == {"many": "t4", "one": "l4"}
    assert "scheduler" in found
    assert "scheduler: # default is in several pools" in stack_text(proposal)


def test_a_pool_bounds_cpus_and_host_memory_where_its_pods_keep_to_their_part(tmp_path: Path) -> None:
    gpu = labelled("a", "Tesla-T4", 15360, replicas=4)
    gpu["status"]["allocatable"] |= {"memory": "64Gi"}
    pods = of_deployment("chat", "chat", on="a", limits={GPU: "1"})
    requests = pods[0]["spec"]["containers"][0]["resources"].setdefault("requests", {})
    requests |= {"cpu": "4", "memory": "63Gi"}
    pool = values(proposed(Cluster(nodes=[gpu], pods=pods)), tmp_path)["pools"]["t4"]
    assert (pool.get("cpus"), pool.get("host_memory_mib")) == (8, None)
    requests["memory"] = "16Gi"
    pool = values(proposed(Cluster(nodes=[gpu], pods=pods)), tmp_path)["pools"]["t4"]
    assert pool["host_memory_mib"] == 65536


def test_a_workload_in_two_pools_has_its_seat_where_most_of_its_pods_run(tmp_path: Path) -> None:
    pods = of_deployment("spread", "team", replicas=3, on="a", limits={GPU: "1"})
    pods[2]["spec"]["nodeName"] = "b"
    proposal = proposed(two_kinds(*pods))
    seat = values(proposal, tmp_path)["residents"]["spread"]
    assert (seat["pool"], seat["replicas"]) == ("t4", 2)
    assert "has its seat in pool t4, and 1 of its pods run elsewhere" in proposal.misfits[0]


def test_a_device_plugin_in_the_namespace_of_a_tenant_is_no_seat_of_it(tmp_path: Path) -> None:
    chat = of_deployment("chat", "default", on="a", limits={GPU: "1"})
    proposal = proposed(two_kinds(*chat, device_plugin("default", "b")))
    assert set(values(proposal, tmp_path)["residents"]) == {"chat"}
    assert any("namespace default cannot be exempt" in line for line in proposal.misfits)


@pytest.mark.parametrize(
    ("labels", "owner", "seat"),
    [
        ({"component": "singleuser-server", "hub.jupyter.org/username": "{}"}, None, "singleuser-server"),
        ({"actions.github.com/scale-set-name": "gpu-jobs"}, "EphemeralRunner", "gpu-jobs"),
    ],
)
def test_pods_that_come_and_go_are_one_resident_with_replicas(
    tmp_path: Path, labels: Mapping[str, str], owner: str | None, seat: str
) -> None:
    """Before the fix, init made a resident of each user's pod, which no other user could have."""
    spawned = [
        pod(
            f"made-for-{user}",
            "team",
            owner=(owner, f"made-for-{user}") if owner else None,
            limits={GPU: "1"},
            labels={key: value.format(user) for key, value in labels.items()},
            on="a",
        )
        for user in ("alice", "bob", "carol")
    ]
    cluster = Cluster(nodes=[labelled("a", "Tesla-T4", 15360, replicas=4)], pods=spawned)
    residents = values(proposed(cluster), tmp_path)["residents"]
    assert {name: found["replicas"] for name, found in residents.items()} == {seat: 3}


def test_workloads_that_cannot_have_a_seat_are_named_with_the_remedy() -> None:
    queued = {"labels": {"kueue.x-k8s.io/podset": "main"}, "owner": ("Job", "train")}
    cluster = record_0000(
        pod("x", "kube-public", limits={GPU: "1"}), pod("train-abcde", "team-a", limits={GPU: "1"}, **queued)
    )
    cluster.deployments = scaled(["tts"])
    text = "\n".join(proposed(cluster).misfits)
    assert (
        "Pod kube-public/x (container main asks for nvidia.com/gpu) has no seat: this namespace is Kubernetes' own"
        in text
    )
    assert "Job team-a/train" in text
    assert "Deployment tts/tts" in text


def test_a_gpu_pod_without_a_seat_is_no_stranger_to_the_class_of_the_gpu_pods(tmp_path: Path) -> None:
    """Before the fix, init proposed gpu-workload-2 with a lower value, so that every GPU pod would have lost rank."""
    cluster = record_0000(pod("x", "default", limits={GPU: "1"}, priorityClassName="gpu-workload"))
    assert values(proposed(cluster), tmp_path)["priorities"] == {"gpu-workload": {"value": 1200000, "create": False}}


def test_below_1_36_admission_is_left_out_and_the_file_reports_it(tmp_path: Path) -> None:
    cluster = record_0000()
    cluster.version = "v1.34.2+k3s1"
    proposal = proposed(cluster)
    assert {"admission", "priorities", "scheduler"}.isdisjoint(values(proposal, tmp_path))
    assert "admission is left out: it needs Kubernetes 1.36" in stack_text(proposal)


def test_prometheus_operators_choose_the_alerts_by_their_labels(tmp_path: Path) -> None:
    cluster = record_0000()
    cluster.groups = {"monitoring.coreos.com": ("v1",)}
    chosen = {"ruleSelector": {"matchLabels": {"release": "prometheus"}}}
    cluster.prometheuses = [{"metadata": {"name": "k8s", "namespace": "monitoring"}, "spec": chosen}]
    found = values(proposed(cluster), tmp_path)
    assert (found["alerts"], found["cluster"]["prometheus"]) == (
        {"labels": {"release": "prometheus"}},
        {"namespace": "monitoring"},
    )


def test_queues_and_quotas_of_others_are_named() -> None:
    cluster = record_0000()
    cluster.groups = {"kueue.x-k8s.io": ("v1beta2",)}
    cluster.cluster_queues = [{"metadata": {"name": "gpu-cq"}}]
    cluster.local_queues = [{"metadata": {"name": "q", "namespace": "team-a"}, "spec": {"clusterQueue": "gpu-cq"}}]
    cluster.quotas = [
        {"metadata": {"name": "own", "namespace": "immich"}},
        {"metadata": {"name": "x", "namespace": "web"}},
    ]
    assert proposed(cluster).existing == (
        "ResourceQuota immich/own",
        "Kueue's ClusterQueue gpu-cq",
        "Kueue's LocalQueue team-a/q to gpu-cq",
    )


def test_taints_of_gpu_nodes_are_tolerated_by_the_agents(tmp_path: Path) -> None:
    cluster = record_0000()
    cluster.nodes[0]["spec"]["taints"] = [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
    ]
    found = values(proposed(cluster), tmp_path)
    assert found["cluster"]["agent_tolerations"] == [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]


def test_a_cluster_without_a_gpu_is_refused_with_what_was_sought() -> None:
    with pytest.raises(
        SurveyError, match=r"none of 1 nodes shows a GPU: no label .* no ResourceSlice .* nvidia.com/gpu"
    ):
        proposed(Cluster(nodes=[node("a")]))


def test_a_node_that_cannot_be_read_is_left_out_and_named() -> None:
    cluster = record_0000()
    cluster.nodes.append(node("odd", {GPU: "many"}))
    assert any(line.startswith("node odd is left out: 'many'") for line in proposed(cluster).unknown)


def test_the_stack_observes_at_first(tmp_path: Path) -> None:
    assert values(proposed(record_0000()), tmp_path)["mode"] == "observe"


def test_the_agents_image_is_that_of_the_example() -> None:
    assert f"agent_image: {AGENT_IMAGE}\n" in (ROOT / EXAMPLE).read_text()


def test_the_same_cluster_gives_the_same_file() -> None:
    again = record_0000()
    again.pods.reverse()
    again.nodes.reverse()
    assert stack_text(
        proposed(again),
    ) == stack_text(proposed(record_0000()))
