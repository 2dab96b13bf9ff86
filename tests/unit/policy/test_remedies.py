"""Tests that who follows a remedy of a message is accepted. Each remedy in the message of each example is followed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tenancy import names
from tests.support import graphs, prod
from tests.support.examples import CASES, Case, changed, program_of
from tests.support.graphs import GPUMEM, Program, put

Follow = Callable[[Program], object]
MAIN = "spec.template.spec.containers.0"
SEAT = "memory_pools.node-4.workloads.inference"
QUOTAS = "queues.cluster_queues.gpu-cq.quotas"


def on(name: str, path: str, value: object) -> Follow:
    return lambda program: put(program[name], path, value)


def without(*keys: str) -> Follow:
    return lambda program: [program.pop(key) for key in keys]


def promising(path: str, value: object, file: str = names.LEDGER_KEY, key: str = "ledger") -> Follow:
    def follow(program: Program) -> None:
        document = json.loads(program[key]["data"][file])
        put(document, path, value)
        program[key]["data"][file] = json.dumps(document)

    return follow


def both(*follows: Follow) -> Follow:
    return lambda program: [follow(program) for follow in follows]


def numbered(entries: str, name: str, field: str, value: object) -> Follow:
    """Changes a field of the ledger's entry with this name."""

    def follow(program: Program) -> None:
        ledger = json.loads(program["ledger"]["data"][names.LEDGER_KEY])
        number = next(n for n, each in enumerate(ledger[entries]) if each["name"] == name)
        promising(f"{entries}.{number}.{field}", value)(program)

    return follow


# Each rule's example, by its number, has its remedies: a part of its message, and what one changes. Keys of the stack
# file change prod, and functions change the small program.
REMEDIES: dict[str, list[tuple[str, dict[str, Any] | Follow]]] = {
    "ledger 0": [("keep one", without("more"))],
    "budgets 0": [
        ("lower a budget", {"residents.llama-swap.gpumem_mib": 5000}),
        ("raise pools.t4", {"pools.t4.device_count": 2}),
    ],
    "physical 0": [("lower pools.t4.floor_mib", {"pools.t4.floor_mib": 1536})],
    "physical 1": [("lower pools.t4.memory_mib to 15000", numbered("pools", "t4", "memory_mib", 15000))],
    "full-seats 0": [("raise pools.t4.reserve_mib to 1361", {"pools.t4.reserve_mib": 1361})],
    "placement 0": [
        ("lower one of these budgets", {"residents.big.gpumem_mib": 6000}),
        ("raise pools.t4", {"pools.t4.device_count": 3}),
    ],
    "seat-size 0": [("lower residents.big.gpumem_mib", {"residents.big.gpumem_mib": 600})],
    "on-demand 0": [("lower on_demand.tts.need_mib to 12208", {"on_demand.tts.need_mib": 12208})],
    "admission 0": [("remove it", on("llama-swap", f"{MAIN}.securityContext", {}))],
    "caps 0": [("remove enforce", {"pools.t4.enforce": "none"})],
    "counted 0": [("is not a quantity", on("llama-swap", f"{MAIN}.resources.limits", {GPUMEM: "5000"}))],
    "counted 1": [("write it as one of CronJob, DaemonSet, Deployment", without("more"))],
    "memory-pools 0": [("keep one", without("more"))],
    "memory-requests 0": [(f"raise {SEAT}.request_mib", {f"{SEAT}.request_mib": 5120})],
    "memory-limits 0": [(f"lower {SEAT}.limit_mib", {f"{SEAT}.limit_mib": 32_768})],
    "memory-victim 0": [("pods_least 1 or more", {"memory_pools.node-4.disposable.agent-microvm.pods_least": 1})],
    "memory-eviction 0": [
        ("a class below 100000", {"memory_pools.node-4.disposable.agent-microvm.priority": "homelab-disposable"})
    ],
    "memory-peaks 0": [("move a workload off", {"memory_pools.node-4.workloads.clickhouse.peak_mib": 35_000})],
    "memory-workloads 0": [("output memory", on("more", f"{MAIN}.resources.limits.memory", "32Gi"))],
    "memory-gpu 0": [
        (
            "write admission.tenant_priorities.inference: homelab-critical",
            {"admission.tenant_priorities.inference": "homelab-critical"},
        )
    ],
    "identity 0": [("keep one", without("more")), ("name one otherwise", on("more", "metadata.name", "other"))],
    "namespaces 0": [
        ("label it baseline", on("more", "metadata.labels", {names.POD_SECURITY_ENFORCE: "baseline"})),
        ("change tenants.immich.pod_security", numbered("tenants", "immich", "pod_security", "privileged")),
    ],
    "platform 0": [("remove it", without("more"))],
    "priorities 0": [
        ("lower priorities.tier-2-gpu", {"priorities.tier-2-gpu.value": 600_000}),
        ("raise priorities.gpu-workload", {"priorities.gpu-workload.value": 3_000_000}),
    ],
    "priorities 1": [("write preemption_policy: Never", {"priorities.homelab-disposable.preemption_policy": "Never"})],
    "gpu-quota 0": [
        ("lower nominal", {f"{QUOTAS}.gpu-any": {names.GPU: {"nominal": 1}}}),
    ],
    "clusters 0": [
        ("lower nominal", {f"{QUOTAS}.far": {names.GPU: {"nominal": 8}}}),
        ("raise queues.clusters.east.promises", {"queues.clusters.east.promises": {names.GPU: 9}}),
    ],
    "queue-coverage 0": [("ask for nvidia.com/gpu", on("job", f"{MAIN}.resources", {"limits": {names.GPU: "1"}}))],
    "node-shares 0": [
        ("lower residents.llama-swap.cpus to 7", {"residents.llama-swap.cpus": 7}),
        ("raise pools.t4.cpus", {"pools.t4.cpus": 31}),
    ],
    "preemption 0": [
        ("write LowerPriority", {"queues.cluster_queues.gpu-cq.preemption.within_cluster_queue": "LowerPriority"})
    ],
    "flavors 0": [("keep one flavor", {QUOTAS: {"l4": {names.GPU: {"nominal": 1}}}})],
    "resource-quota 0": [("make it 4800", on("quota immich", "spec.hard", {f"requests.{GPUMEM}": "4800"}))],
    "device 0": [("lower viktorbarzin.me/gpu-count", on("llama-swap", f"{MAIN}.resources.limits", {GPUMEM: "5000"}))],
    "seats 0": [
        ("lower its limits", on("llama-swap", f"{MAIN}.resources.limits", {GPUMEM: "5000"})),
        (
            "raise residents.llama-swap.gpumem_mib",
            both(
                numbered("seats", "llama-swap", "gpumem_mib", 5001),
                on("quota llama-swap", "spec.hard", {f"requests.{GPUMEM}": "5001"}),
            ),
        ),
    ],
    "server-flags 0": [
        (
            "will take 0.9 (its default) of 15360 = 13824 MiB, its seat is 5000; write --gpu-memory-utilization 0.32",
            on("llama-swap", f"{MAIN}.command", ["vllm", "serve", "m", "--gpu-memory-utilization", "0.32"]),
        )
    ],
    "seats 1": [("run fewer", on("llama-swap", "spec.replicas", 1))],
    "gpus 0": [
        ("ask for fewer", on("more", f"{MAIN}.resources.limits", {names.GPU: "1"})),
        ("raise on_demand.tts.gpus", numbered("on_demand", "tts", "gpus", 2)),
    ],
    "rollout 0": [
        ("set strategy.type: Recreate", on("llama-swap", "spec.strategy", {"type": "Recreate"})),
        ("strategy.rollingUpdate.maxSurge: 0", on("llama-swap", "spec.strategy.rollingUpdate", {"maxSurge": 0})),
    ],
    "whole-mib 0": [("make them equal", on("llama-swap", f"{MAIN}.resources.requests", {GPUMEM: "5000"}))],
}


def test_each_example_has_its_remedies() -> None:
    assert sorted(REMEDIES) == sorted(map(str, CASES))


@pytest.mark.no_cover
@pytest.mark.parametrize("case", CASES, ids=str)
def test_who_follows_a_remedy_is_accepted(case: Case) -> None:
    for words, follow in REMEDIES[str(case)]:
        assert any(words in line for line in case.said()), (words, case.said())
        assert followed(case, follow) == [], words


def followed(case: Case, follow: dict[str, Any] | Follow) -> list[str]:
    example = case.example
    if isinstance(follow, dict):
        config = changed(prod.raw(), example, example.wrong)
        for key, value in follow.items():
            put(config, key, value)
        return graphs.judge(prod.declared(config))
    program = program_of(example, example.wrong)
    follow(program)
    return graphs.judge(program, {"ledger": graphs.LEDGER.to_data()} if example.is_beside else None)
