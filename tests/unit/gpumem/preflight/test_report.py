"""Tests preflight's report on denied pods, objects of other owners and missing parts."""

from dataclasses import replace
from typing import Any

from gpumem import survey
from gpumem.paper import Paper
from gpumem.preflight.declared import Declared, Named
from gpumem.preflight.part import State
from gpumem.preflight.report import Preflight, preflight, preflight_text
from policy.admitted import judge_by
from tenancy.choices import Sharing, Source
from tenancy.host_memory.pool import Taint
from tenancy.ledger import LocalQueue, OnDemand, Pool, Tenant
from tests.support.before_rollout import DECLARED, GPUMEM, LEDGER, T4, ready
from tests.support.given_clusters import (
    GPU,
    NAMESPACE_OF,
    STEADY,
    Cluster,
    node,
    of_deployment,
    pod,
    record_0000,
)
from tests.support.memory_pools import NODE_4


def found(cluster: Cluster, declared: Declared = DECLARED) -> Preflight:
    return preflight(survey.read(cluster.api()), declared)


def test_a_cluster_that_fits_its_stack_has_nothing_in_the_way() -> None:
    report = found(ready())
    assert (report.denies, report.takes_over, report.parts, report.without_budget) == ((), (), (), ())
    assert report.clear
    assert preflight_text(report, Paper()).endswith("nothing is in the way\n")


def test_workloads_without_a_budget_would_be_denied_each_with_its_owner_and_remedy() -> None:
    report = found(record_0000())
    assert {(row.kind, row.namespace, row.name) for row in report.denies} == {
        ("Deployment", NAMESPACE_OF.get(name, name), name) for name in (*STEADY, "android-emulator")
    }
    assert {row.policy for row in report.denies} == {"gpu-tenancy-gpu-budget"}
    assert all(f"add {GPUMEM} (MiB) to the limits" in row.message for row in report.denies)
    remedies = {row.name: row.remedy for row in report.without_budget}
    assert remedies["immich-ml"] == f"add {GPUMEM}: 3000 (immich-ml) to the limits of its container"
    assert remedies["android-emulator"] == "add residents.android-emulator with pool: t4"
    assert not report.clear


def test_a_remedy_is_one_that_the_settings_and_the_scheduler_accept() -> None:
    """Before the fix, preflight told to add tenants.kube-public, which the settings refuse, and named a seat of another
    pool, with which the pod matches no node."""
    other = replace(T4, name="other", node_selector={"pool": "other"})
    cluster = record_0000(pod("x", "kube-public", limits={GPU: "1"}, on="k8s-node1"))
    cluster.nodes.append(node("node-4"))
    cluster.nodes[-1]["metadata"]["labels"]["pool"] = "other"
    cluster.pods += of_deployment("second", "frigate", limits={GPU: "1"}, on="node-4")
    cluster.pods += of_deployment("third", "frigate", limits={GPU: "1"}, on="k8s-node1")
    cluster.pods += of_deployment("takes", "frigate", limits={GPU: "1", GPUMEM: "3k"}, on="k8s-node1")
    report = found(cluster, declared(ledger=replace(LEDGER, pools=(T4, other))))
    remedies = {row.name: row.remedy for row in report.without_budget}
    assert remedies["x"] == "this namespace can be no tenant; move the workload to a namespace of its own"
    assert remedies["second"] == "add residents.second with pool: other"
    assert remedies["third"] == "add residents.third with pool: t4"
    assert remedies["frigate"] == "add residents.frigate-frigate with pool: t4"


def test_what_a_running_pod_has_beyond_its_template_is_not_judged() -> None:
    cluster = ready()
    placed = cluster.pods[-2]
    placed["metadata"]["annotations"] = {"device.viktorbarzin.me/uuid": "GPU-0"}
    placed["spec"]["ephemeralContainers"] = [{"name": "debug"}]
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x"}, "owner": ("Node", "k8s-node1")}
    cluster.pods.append(pod("static-k8s-node1", "web", priorityClassName="system-node-critical", **mirror))
    assert found(cluster).denies == ()


def test_the_class_of_a_gpu_pod_is_not_judged_because_admission_replaces_it() -> None:
    cluster = ready()
    for each in cluster.pods:
        if each["metadata"]["namespace"] == "frigate":
            each["spec"]["priorityClassName"] = "system-node-critical"
    assert found(cluster).denies == ()


def test_a_tenant_whose_pods_ask_for_more_than_its_seats_is_denied_by_its_quota() -> None:
    cluster = ready()
    cluster.pods += of_deployment("frigate", "frigate", limits={GPU: "1", GPUMEM: "3k"}, replicas=1)
    (row,) = found(cluster).denies
    assert (row.policy, row.namespace) == ("ResourceQuota gpumem-seats", "frigate")
    assert "ask for 6000 viktorbarzin.me/gpumem together, its seats have 3000" in row.message


def test_a_stack_that_observes_denies_nothing_yet_and_is_judged_as_if_it_enforced() -> None:
    report = found(record_0000(), declared(ledger=replace(LEDGER, observes=("admission",))))
    text = preflight_text(report, Paper())
    assert "this stack observes: admission only report" in text
    assert "would deny, if created again while the stack enforces:" in text
    assert (len(report.denies), report.clear) == (6, False)


def test_a_pod_of_a_kueue_job_is_judged_as_the_job_controller_makes_it() -> None:
    queue = LocalQueue(name="gpu", tenant="team-a", queue="gpu-cq")
    ledger = replace(
        LEDGER, queue_tenants=("team-a",), local_queues=(queue,), tenants=(*LEDGER.tenants, Tenant(name="team-a"))
    )
    cluster = ready()
    by_kueue = {"labels": {"kueue.x-k8s.io/podset": "main"}, "owner": ("Job", "train"), "limits": {GPU: "1"}}
    cluster.pods += [pod("train-abcde", "team-a", **by_kueue), *of_deployment("by-hand", "team-a", limits={GPU: "1"})]
    report = found(cluster, replace(DECLARED, ledger=ledger, refusals=judge_by(ledger)))
    assert [(row.name, row.policy) for row in report.denies] == [("by-hand", "gpu-tenancy-queued-pods")]


def declared(**changes: Any) -> Declared:
    return replace(DECLARED, **changes)


def missing(cluster: Cluster, stack: Declared = DECLARED) -> dict[str, tuple[State, bool]]:
    return {part.name: (part.state, part.blocks) for part in found(cluster, stack).parts}


def test_a_version_without_admission_policies_blocks() -> None:
    cluster = ready()
    cluster.version = "v1.35.9"
    assert missing(cluster) == {"Kubernetes": (State.OTHER, True)}


def test_older_policies_need_the_api_that_serves_them() -> None:
    cluster, stack = ready(), declared(mutating_api="v1beta1")
    cluster.version = "v1.35.9"
    assert missing(cluster, stack) == {"Kubernetes": (State.MISSING, True)}
    cluster.groups = {"admissionregistration.k8s.io": ("v1", "v1beta1")}
    assert missing(cluster, stack) == {}


def test_a_stack_without_admission_reads_the_loss_and_is_not_blocked() -> None:
    assert missing(ready(), declared(ledger=replace(LEDGER, admission=None))) == {"admission": (State.MISSING, False)}


def test_nodes_without_labels_or_devices_are_named() -> None:
    cluster = ready()
    cluster.nodes = [node("k8s-node1", gpu_present="true")]
    expected = {"GPU feature discovery": (State.MISSING, True), "device plugin": (State.MISSING, False)}
    assert missing(cluster) == expected
    slices = replace(LEDGER, pools=(replace(T4, source=Source.SLICES),))
    assert missing(cluster, declared(ledger=slices)).keys() == {"device plugin"}


def test_a_pool_with_other_nodes_than_declared_is_named() -> None:
    cluster = ready()
    two = declared(ledger=replace(LEDGER, pools=(replace(T4, nodes=2),)))
    assert missing(cluster, two) == {"pool t4": (State.MISSING, False)}
    cluster.nodes = []
    assert missing(cluster) == {"pool t4": (State.MISSING, True)}


def test_nodes_that_the_autoscaler_adds_on_demand_are_not_missing() -> None:
    empty = Pool(name="elastic", node_selector={"no": "node"}, nodes=3, device_count=1, sharing=Sharing.WHOLE)
    pools = [replace(empty, least_nodes=least) for least in (0, 1)]
    stacks = [declared(ledger=replace(LEDGER, pools=(*LEDGER.pools, pool))) for pool in pools]
    assert [missing(ready(), stack) for stack in stacks] == [{}, {"pool elastic": (State.MISSING, True)}]


def test_a_node_of_two_pools_is_named() -> None:
    both = declared(ledger=replace(LEDGER, pools=(T4, replace(T4, name="other"))))
    assert missing(ready(), both)["node k8s-node1"] == (State.OTHER, True)


def of_a_memory_pool(memory: str, **fields: Any) -> tuple[Cluster, Declared]:
    pool = replace(NODE_4, name="a", node_selector={"kubernetes.io/os": "linux"}, **fields)
    cluster = ready()
    for each in cluster.nodes:
        each["metadata"]["labels"]["kubernetes.io/os"] = "linux"
        each["status"]["allocatable"]["memory"] = memory
    return cluster, replace(DECLARED, memory_pools=(pool,))


def test_a_node_of_a_memory_pool_without_the_pools_taint_is_named_with_the_command() -> None:
    taint = Taint(key="memory-pool", value="a", effect="NoSchedule")
    cluster, stack = of_a_memory_pool("62364Mi", node_taints=(taint,))
    name = cluster.nodes[0]["metadata"]["name"]
    (part,) = found(cluster, stack).parts
    assert (part.name, part.state, part.blocks) == ("memory pool a", State.MISSING, False)
    assert part.text.endswith(f"kubectl taint node {name} memory-pool=a:NoSchedule")
    for each in cluster.nodes:
        each["spec"] = {"taints": [{"key": "memory-pool", "value": "a", "effect": "NoSchedule"}]}
    assert found(cluster, stack).parts == ()


def test_a_node_smaller_than_its_memory_pool_declares_is_named() -> None:
    (part,) = found(*of_a_memory_pool(f"{60 * 2**20}Ki")).parts
    assert (part.name, part.state, part.blocks) == ("memory pool a", State.OTHER, False)
    assert part.text.endswith(
        "with 61440 MiB of allocatable host memory, 62364 are declared, so the pool's promises may not hold; lower "
        "memory_pools.a.allocatable_mib to 61440"
    )


def test_placement_by_device_needs_nvidias_runtime_class() -> None:
    terms = LEDGER.admission
    assert terms is not None
    stack = declared(ledger=replace(LEDGER, admission=replace(terms, devices=1)))
    cluster = ready()
    cluster.runtime_classes = []
    assert missing(cluster, stack) == {"RuntimeClass nvidia": (State.MISSING, True)}
    cluster.runtime_classes = [{"metadata": {"name": "nvidia"}, "handler": "nvidia"}]
    assert missing(cluster, stack) == {}


def test_rules_as_plain_files_need_no_operator() -> None:
    found = missing(ready(), declared(has_alerts=True, has_operator=False))
    assert found == {"kube-state-metrics": (State.MISSING, False)}


def test_alerts_need_the_prometheus_operator_and_kube_state_metrics() -> None:
    cluster, stack = ready(), declared(has_alerts=True)
    assert missing(cluster, stack) == {
        "Prometheus Operator": (State.MISSING, True),
        "kube-state-metrics": (State.MISSING, False),
    }
    cluster.groups = {"monitoring.coreos.com": ("v1",)}
    cluster.pods += of_deployment("metrics", "web")
    cluster.pods[-1]["spec"]["containers"][0]["image"] = "registry.k8s.io/kube-state-metrics/kube-state-metrics:v2.17"
    assert missing(cluster, stack) == {}


def test_a_network_plugin_that_enforces_nothing_is_not_known_to() -> None:
    cluster = ready()
    cluster.pods = [each for each in cluster.pods if "calico" not in each["metadata"]["name"]]
    assert missing(cluster) == {"NetworkPolicies": (State.UNKNOWN, False)}


def test_armed_agents_are_named_with_what_they_would_do() -> None:
    cluster = ready()
    cluster.deployments = [{"metadata": {"name": "tts", "namespace": "tts"}, "spec": {"replicas": 1}}]
    ledger = replace(LEDGER, on_demand=(OnDemand(name="tts", tenant="tts", pool="t4", need_mib=2048),))
    gates = (("tts", "tts"), ("ytdlp", "ytdlp"))
    report = found(cluster, declared(ledger=ledger, is_watchdog_armed=True, is_gate_armed=True, gates=gates))
    assert report.evicts[0].startswith(
        "the watchdog enforces: below a floor of 1536 MiB (t4) it evicts pods over budget"
    )
    assert report.scales == (
        "Deployment tts/tts has 1 replicas; its demand gate scales it to 0 or 1",
        "Deployment ytdlp/ytdlp is behind a demand gate, and is not there",
    )
    assert (found(cluster).evicts, found(cluster).scales) == ((), ())


def test_labels_and_new_objects_are_listed_and_are_not_in_the_way() -> None:
    made = (Named("Namespace", "", "new"), Named("Namespace", "", "web"), Named("ResourceQuota", "web", "gpumem-seats"))
    report = found(
        ready(), declared(created=made, namespace_labels={"immich": {"level": "baseline"}, "new": {"a": "b"}})
    )
    assert report.labels == ("Namespace immich: level=baseline",)
    assert report.creates == ("Namespace new", "ResourceQuota web/gpumem-seats")
    assert report.clear


def test_a_pod_that_cannot_be_read_is_named_and_the_others_are_judged() -> None:
    cluster = record_0000(pod("odd", "web", limits={GPU: "many"}))
    report = found(cluster)
    assert any(line.startswith("pod web/odd is not judged: 'many'") for line in report.unknown)
    assert len(report.denies) == 6


def test_the_text_has_each_part_and_no_character_that_a_terminal_obeys() -> None:
    mount = {"volumes": [{"name": "v", "hostPath": {"path": "/dev/\x1b[2J"}}]}
    cluster = record_0000(*of_deployment("evil", "immich", **mount))
    changes: Any = {"created": (Named("Namespace", "", "new"),), "namespace_labels": {"immich": {"level": "baseline"}}}
    text = preflight_text(found(cluster, declared(has_alerts=True, is_watchdog_armed=True, **changes)), Paper())
    assert "\x1b" not in text
    for title in ("would deny", "missing:", "without a budget:", "would evict:", "would label:", "would create:"):
        assert title in text
    assert text.endswith("in the way: 7 denials, 0 objects of others, 2 missing parts\n")
