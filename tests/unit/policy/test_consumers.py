"""Tests the rules on programs that use the platform, and on programs without GPUs."""

from dataclasses import replace
from typing import Any

import pytest

from policy.rule import an_object
from tests.support import graphs
from tests.support.graphs import GPUMEM, LEDGER, consumer, judge, put

CONFIG = {"ledger": LEDGER.to_data()}
NO_LEDGER = (
    "ledger: Deployment llama-swap/llama-swap: cannot be proven: no ledger; write `pulumi stack output --json ledger` "
    "of the platform to a file and pass it as --policy-pack-config"
)


def test_a_workload_within_its_seat_passes() -> None:
    assert judge(consumer(), CONFIG) == []


def test_without_any_ledger_nothing_can_be_proven() -> None:
    assert judge(consumer()) == [NO_LEDGER]
    assert judge(consumer(), {}) == [NO_LEDGER]


def test_a_program_without_gpumem_needs_no_ledger() -> None:
    program = {
        "web": an_object("apps/v1", "Deployment", "web", "web", spec={"template": graphs.pod(1, "memory")}),
        "service": an_object("v1", "Service", "web", "web", spec={"ports": [{"port": 80}]}),
    }
    assert judge(program) == []
    assert judge({}) == []


def test_a_ledger_that_cannot_be_read_is_refused_with_every_problem() -> None:
    reported = judge(consumer(), {"ledger": {"pools": [{"name": 3}]}})
    assert len(reported) == 1
    assert reported[0].startswith("ledger: the ledger in the pack's configuration cannot be read: ledger.domain: ")
    assert "ledger.pools.0.name: must be a string" in reported[0]


def test_the_configured_ledger_rules_and_another_in_the_graph_is_refused() -> None:
    mine = {"mine": graphs.ledger_object(graphs.seat("llama-swap", gpumem_mib=12_000))}
    assert judge(consumer(12_000) | mine, CONFIG) == [
        "ledger: ConfigMap gpu-tenancy-system/gpu-tenancy-ledger: is another ledger than the pack's configuration, "
        "which rules; remove it, or write the platform's output into the configuration again",
        "seats: Deployment llama-swap/llama-swap: a pod asks for 12000 MiB, its seat has 5000; lower its limits or "
        "raise residents.llama-swap.gpumem_mib",
    ]


def test_the_platform_may_be_judged_by_its_own_output() -> None:
    assert judge(graphs.platform(), CONFIG) == []


def test_a_consumer_may_use_the_platforms_classes_and_queues() -> None:
    program = consumer()
    put(program["llama-swap"], "spec.template.spec.priorityClassName", "gpu-workload")
    job = graphs.platform()["job"]
    assert judge(program | {"job": job}, CONFIG) == []


def test_a_queued_job_needs_no_seat_but_a_queue_tenant_has_no_other_door() -> None:
    quota = replace(LEDGER.quotas[0], flavor="t4", pool="t4", resource=GPUMEM, nominal=500)
    config = {"ledger": replace(LEDGER, quotas=(*LEDGER.quotas, quota)).to_data()}
    job = graphs.platform()["job"]
    put(job, "spec.template", graphs.pod(500))
    assert judge({"job": job}, config) == []
    del job["metadata"]["labels"]
    assert judge({"job": job}, config) == [
        "seats: Job team-a/train: asks for 500 MiB without a seat; add residents.train: {tenant: team-a, gpumem_mib: "
        "500, pool: …} to the platform's stack"
    ]


def elsewhere(namespace: str, mib: object) -> graphs.Program:
    return {"x": an_object("apps/v1", "Deployment", "x", namespace, spec={"template": graphs.pod(mib)})}


def test_a_workload_without_a_seat_is_one_line_though_it_rolls_out_by_surge() -> None:
    assert judge(elsewhere("kube-system", 5000), CONFIG) == [
        "seats: Deployment kube-system/x: asks for 5000 MiB in kube-system, which is exempt from admission and has no "
        "seats; move it to a tenant's namespace and add it to residents of the platform's stack"
    ]
    (line,) = judge(elsewhere("immich", 5000), CONFIG)
    assert line.startswith("seats: Deployment immich/x: asks for 5000 MiB without a seat; add residents.x: ")


def test_who_asks_for_no_gpumem_needs_no_seat() -> None:
    """A chart's default for gpumem can be 0."""
    assert judge(elsewhere("immich", 0), CONFIG) == judge(elsewhere("kube-system", "0"), CONFIG) == []


def test_the_seat_is_found_by_label_too() -> None:
    program = consumer()
    put(program["llama-swap"], "metadata.name", "llama-swap-7f3a")
    assert graphs.rules_of(judge(program, CONFIG)) == {"seats"}
    program["llama-swap"]["spec"]["template"]["metadata"]["labels"] = {"app.kubernetes.io/name": "llama-swap"}
    assert judge(program, CONFIG) == []


@pytest.mark.parametrize(
    ("mib", "seat", "lines"),
    [
        (3000, "immich-ml", []),
        (
            1800,
            "immich-ml",
            [
                "admission: Deployment immich/immich-server: no seat of this namespace with the name immich-ml has "
                "the size of this pod, which asks for 1800 viktorbarzin.me/gpumem on 1 devices: copy labels and "
                "resources of the resident from the output residents, or remove the label viktorbarzin.me/seat"
            ],
        ),
    ],
)
def test_the_label_of_a_seat_goes_before_the_name(mib: int, seat: str, lines: list[str]) -> None:
    template = graphs.pod(mib) | {"metadata": {"labels": {"viktorbarzin.me/seat": seat}}}
    spec = {"template": template, "strategy": {"type": "Recreate"}}
    program = {"x": an_object("apps/v1", "Deployment", "immich-server", "immich", spec=spec)}
    assert judge(program, CONFIG) == lines
    put(program["x"], "spec.replicas", 2)
    assert bool(lines) or graphs.rules_of(judge(program, CONFIG)) == {"seats"}


def test_a_daemon_set_runs_one_pod_on_each_node_of_its_pool() -> None:
    workload = an_object("apps/v1", "DaemonSet", "llama-swap", "llama-swap", spec={"template": graphs.pod(5000)})
    assert judge({"x": workload}, CONFIG) == []
    two_nodes = {"ledger": graphs.pool("t4", nodes=2).to_data()}
    assert judge({"x": workload}, two_nodes) == [
        "seats: DaemonSet llama-swap/llama-swap: with it 2 pods sit on a seat of 1 x 5000 MiB; run fewer or raise "
        "residents.llama-swap.replicas"
    ]


def test_a_name_that_pulumi_makes_up_is_no_name_for_a_resident() -> None:
    """Before the fix, the finding proposed a second seat with another name in each run."""
    program = consumer()
    made_up = {"name": "llama-swap-71318301", "annotations": {"pulumi.com/autonamed": "true"}}
    program["llama-swap"]["metadata"] |= made_up
    assert judge(program, CONFIG) == [
        "seats: Deployment llama-swap/llama-swap-71318301: asks for 5000 MiB without a seat; Pulumi makes up its name "
        "anew in each run; write metadata.name: llama-swap, or give its pods the label viktorbarzin.me/seat: llama-swap"
    ]
    put(program["llama-swap"], "spec.template.metadata.labels", {"viktorbarzin.me/seat": "llama-swap"})
    assert judge(program, CONFIG) == []


def test_gpus_of_a_whole_pod_are_refused_as_the_api_server_does() -> None:
    program = {"x": elsewhere("immich", 0)["x"]}
    put(program["x"], "spec.template.spec.resources", {"limits": {GPUMEM: "3000"}})
    (line,) = judge(program, CONFIG)
    assert f"the pod's own resources have {GPUMEM}, which the API server refuses; move it to the limits" in line


def on_demand(name: str = "tts", **spec: Any) -> graphs.Program:
    template = graphs.pod("1", "nvidia.com/gpu")
    return {name: an_object("apps/v1", "Deployment", name, "tts", spec={"template": template, **spec})}


def test_who_does_not_run_or_runs_by_turns_is_counted_as_the_quota_does() -> None:
    nightly = {"jobTemplate": {"spec": {"template": graphs.pod("1", "nvidia.com/gpu")}}}
    cron = an_object("batch/v1", "CronJob", "nightly", "android-emulator", spec=nightly)
    asleep = an_object(
        "apps/v1",
        "Deployment",
        "asleep",
        "android-emulator",
        spec={"template": graphs.pod("1", "nvidia.com/gpu"), "replicas": 0},
    )
    assert judge({"nightly": cron, "asleep": asleep}, CONFIG) == []


def test_a_second_workload_does_not_use_the_gpu_of_what_the_gate_starts() -> None:
    (line,) = judge(on_demand("second", replicas=0), CONFIG)
    assert line.startswith("admission: Deployment tts/second: the GPU of this namespace is for Deployment tts, which")


@pytest.mark.parametrize(
    ("kind", "version"), [("ScaledObject", "keda.sh/v1alpha1"), ("HorizontalPodAutoscaler", "autoscaling/v2")]
)
def test_no_autoscaler_scales_what_the_gate_starts(kind: str, version: str) -> None:
    scaler = an_object(version, kind, "x", "tts", spec={"scaleTargetRef": {"name": "tts"}, "maxReplicas": 1})
    (line,) = judge(on_demand() | {"x": scaler}, CONFIG)
    assert "scales tts, which the demand gate starts and stops" in line


def affinity(*expressions: tuple[str, str, list[str]]) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": k, "operator": operator, "values": v} for k, operator, v in expressions]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def test_a_seat_may_select_its_pool_by_node_affinity() -> None:
    """A pod without this node affinity could run in another pool."""
    ((label, value),) = LEDGER.pools[0].node_selector.items()
    other = replace(LEDGER.pools[0], name="a10", node_selector={label: "mps"})
    config = {"ledger": replace(LEDGER, pools=(*LEDGER.pools, other)).to_data()}
    program = consumer()
    (line,) = judge(program, config)
    assert "its seat is on t4, but it may run on a10 too; give it the nodeSelector of pools.t4" in line
    put(program["llama-swap"], "spec.template.spec.affinity", affinity((label, "In", [value])))
    assert judge(program, config) == []
    put(program["llama-swap"], "spec.template.spec.affinity", affinity((label, "In", ["mps"])))
    (line,) = judge(program, config)
    assert "its seat is on t4, which its nodeSelector or nodeAffinity rules out" in line
