"""Single mistakes in prod's configuration, and what the operator is told of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolchain.workspace import Outcome

Config = dict[str, Any]


@dataclass(frozen=True)
class Mistake:
    """A change of the configuration. Of the gate's, `message` begins with the rule's id."""

    make: Callable[[Config], object]
    message: str


def set_at(path: str, value: object) -> Any:
    """A change that writes one value into the configuration; None removes the key."""

    def change(config: Config) -> None:
        *parents, last = path.split("/")
        target: Any = config
        for part in parents:
            target = target[part]
        last = last.replace("~1", "/")
        if value is None:
            del target[last]
        else:
            target[last] = value

    return change


def enforcing(path: str, value: object) -> Any:
    """The same of t4, whose driver is to hold containers."""

    def change(config: Config) -> None:
        config["pools"]["t4"] |= {"enforce": "driver"}
        for key, version in (("driver_version", "615.71.09"), ("toolkit_version", "1.20.1")):
            config["pools"]["t4"].setdefault(key, version)
        set_at(f"pools/t4/{path}", value)(config)

    return change


def two_devices_that_do_not_fit(config: Config) -> None:
    """27000 of 28000 MiB, but no two seats of 9000 share a device of 14000."""
    config["pools"]["t4"]["device_count"] = 2
    config["residents"] = {
        name: {"tenant": "immich", "pool": "t4", "gpumem_mib": 9000} for name in ("one", "two", "three")
    }


def gpumem_in_a_queue(config: Config) -> None:
    config["queues"]["flavors"]["t4-memory"] = {"pool": "t4"}
    config["queues"]["cluster_queues"]["memory-cq"] = {
        "quotas": {"t4-memory": {"viktorbarzin.me/gpumem": {"nominal": 1000}}}
    }
    config["queues"]["local_queues"]["frigate-memory"] = {"tenant": "frigate", "cluster_queue": "memory-cq"}


def fungible_flavors_with_one_gpu(config: Config) -> None:
    queues = config["queues"]
    queues["flavors"] = {name: {"pool": "batch", "node_labels": {"gpu": name}} for name in ("l4", "t4-spot")}
    queues["cluster_queues"]["gpu-cq"]["quotas"] = {
        "l4": {"nvidia.com/gpu": {"nominal": 1}},
        "t4-spot": {"nvidia.com/gpu": {"nominal": 0}},
    }


def borrowing_beyond_the_cohort(config: Config) -> None:
    queue = config["queues"]["cluster_queues"]["gpu-cq"]
    queue["cohort"] = "gpus"
    queue["quotas"] = {"gpu-any": {"viktorbarzin.me/gpumem": {"nominal": 1, "borrowing_limit": 1}}}


TOO_MANY_GPUS = (
    "gpu-quota: ClusterQueue gpu-cq: may hand out 2 nvidia.com/gpu (nominal and borrowed) of batch, which has 1"
)

# Refused by the policy pack.
GATED: dict[str, Mistake] = {
    "a budget is raised over the card": Mistake(
        set_at("residents/llama-swap/gpumem_mib", 7000),
        "budgets: t4: 15300 MiB promised, 14000 advertised (1300 over): llama-swap 7000, immich-ml 3000, ",
    ),
    "a second replica needs a second seat": Mistake(
        set_at("residents/immich-ml/replicas", 2),
        "budgets: t4: 16300 MiB promised, 14000 advertised (2300 over): immich-ml 3000 x 2",
    ),
    "a larger reserve leaves less": Mistake(
        set_at("pools/t4/reserve_mib", 3000),
        "budgets: t4: 13300 MiB promised, 12360 advertised (940 over)",
    ),
    "the sum fits and no device does": Mistake(
        two_devices_that_do_not_fit,
        "placement: t4: the seats do not fit on 2 devices of 14000 MiB: one 9000, three 9000, two 9000",
    ),
    "one seat is larger than a device": Mistake(
        lambda config: (
            set_at("pools/t4/device_count", 2)(config),
            set_at("residents/llama-swap/gpumem_mib", 14500)(config),
        ),
        "seat-size: llama-swap: 14500 MiB a replica, a device of t4 offers 14000",
    ),
    "a queue hands out memory that residents hold": Mistake(
        gpumem_in_a_queue,
        "budgets: t4: 14300 MiB promised, 14000 advertised (300 over)",
    ),
    "a queue promises a GPU that does not exist": Mistake(
        set_at("queues/cluster_queues/gpu-cq/quotas/gpu-any", {"nvidia.com/gpu": {"nominal": 2}}),
        TOO_MANY_GPUS,
    ),
    "fungible flavors with one GPU": Mistake(
        fungible_flavors_with_one_gpu,
        "flavors: ClusterQueue gpu-cq: falls back across l4, t4-spot, but there is 1 GPU behind them",
    ),
    "preemption is off though priorities differ": Mistake(
        set_at("queues/cluster_queues/gpu-cq/preemption", {"within_cluster_queue": "Never"}),
        "preemption: ClusterQueue gpu-cq: withinClusterQueue is Never, so 2 WorkloadPriorityClasses change nothing",
    ),
    "the class that is evicted first outranks the others": Mistake(
        set_at("priorities/tier-2-gpu/value", 2000000),
        "priorities: MutatingAdmissionPolicy gpu-tenancy-stamp-priority-tier-2-gpu: stamps tier-2-gpu (2000000), "
        "which is not below gpu-workload (1200000)",
    ),
    "a disposable class may preempt": Mistake(
        set_at("priorities/homelab-disposable/preemption_policy", "PreemptLowerPriority"),
        "priorities: PriorityClass homelab-disposable: value -1000 makes its pods disposable, but they may preempt",
    ),
    "a gate could never open": Mistake(
        set_at("on_demand/tts/need_mib", 14000),
        "agents: tts: needs 14000 MiB above the floor of 1536, a device of t4 offers 14000",
    ),
    "a floor as large as the device": Mistake(
        set_at("pools/t4/floor_mib", 14000), "physical: t4: floor 14000 MiB, but a device offers 14000"
    ),
    "a reserve that does not hold what has no seat": Mistake(
        set_at("unbudgeted/android-emulator/measured_mib", 911),
        "full-seats: t4: a reserve of 1360 MiB for 1361: 450 of the driver and 911 of workloads without a budget",
    ),
    "seats and floor are more than a device": Mistake(
        set_at("pools/t4/floor_mib", 8000), "full-seats: t4: a device may have "
    ),
    "an oversubscribed pool without its guard": Mistake(
        set_at("memory_pools/node-4/guard", False),
        "memory-oom: node-4: at its peak of 20480 MiB inference, which requests 8192, leads every victim",
    ),
    "a driver that cannot hold containers": Mistake(
        enforcing("driver_version", "580.95.05"),
        "caps: pools.t4: enforce: driver needs driver_version 615 or newer, and 580.95.05 is declared",
    ),
    "a toolkit that sets no limit": Mistake(
        enforcing("toolkit_version", "1.20.0"),
        "caps: pools.t4: enforce: driver needs toolkit_version 1.20.1 or newer, and 1.20.0 is declared",
    ),
    "a driver that is to hold containers where MIG divides": Mistake(
        enforcing("node_selector/nvidia.com~1mig.config", "all-1g.5gb"),
        "caps: pools.t4: enforce: driver on nodes that MIG divides, where the driver refuses limits",
    ),
    "an oversubscribed pool without a victim": Mistake(
        set_at("memory_pools/node-4/disposable", {}),
        "memory-victim: node-4: inference may take 24576 MiB of slack, and no pod is always there to be killed for it",
    ),
}

# What the engine is shown, every rule once at least: a preview costs seconds, and what each mistake alone is told is
# seen without one. The mistakes of a group do not touch each other's numbers, and one preview is told of all.
GROUPS: tuple[tuple[str, ...], ...] = (
    (
        "a budget is raised over the card",
        "a queue promises a GPU that does not exist",
        "preemption is off though priorities differ",
        "the class that is evicted first outranks the others",
        "a disposable class may preempt",
        "a gate could never open",
        "a reserve that does not hold what has no seat",
        "an oversubscribed pool without its guard",
    ),
    (
        "one seat is larger than a device",
        "seats and floor are more than a device",
        "an oversubscribed pool without a victim",
        "a driver that cannot hold containers",
        "a toolkit that sets no limit",
        "a driver that is to hold containers where MIG divides",
    ),
    ("the sum fits and no device does", "a floor as large as the device", "fungible flavors with one GPU"),
)


def make_group(config: Config, group: tuple[str, ...]) -> None:
    for name in group:
        GATED[name].make(config)


def assert_refused(outcome: Outcome, group: tuple[str, ...]) -> None:
    """The engine tells of each mistake as of one that it does not let pass."""
    assert outcome.code != 0
    assert [name for name in group if GATED[name].message not in outcome.text] == [], outcome.text
    assert outcome.text.count("[mandatory]") >= len(group), outcome.text
    assert "Traceback" not in outcome.text


# Refused by the settings before anything is registered.
REFUSED: dict[str, Mistake] = {
    "an unknown key": Mistake(set_at("poolz", {"a": 1}), "gpu-tenancy:poolz: unknown key; did you mean pools?"),
    "a budget of nothing": Mistake(
        set_at("residents/immich-ml/gpumem_mib", 0),
        "gpu-tenancy:residents.immich-ml.gpumem_mib: must be at least 1 (got 0)",
    ),
    "half a MiB": Mistake(
        set_at("residents/immich-ml/gpumem_mib", 3000.5),
        "gpu-tenancy:residents.immich-ml.gpumem_mib: must be a whole number (got 3000.5)",
    ),
    "a unit in the number": Mistake(
        set_at("residents/immich-ml/gpumem_mib", "3Gi"),
        "residents.immich-ml.gpumem_mib: must be a whole number of MiB without a unit; write 3072 (got '3Gi')",
    ),
    "a resident in no pool": Mistake(
        set_at("residents/frigate/pool", "t5"),
        "gpu-tenancy:residents.frigate.pool: 't5' is no key of pools; known there: batch, node-4, t4",
    ),
    "a LocalQueue to no ClusterQueue": Mistake(
        set_at("queues/local_queues/team-a-gpu/cluster_queue", "cq"),
        "gpu-tenancy:queues.local_queues.team-a-gpu.cluster_queue: 'cq' is no key of queues.cluster_queues",
    ),
    "an image that moves": Mistake(
        set_at("cluster/agent_image", "docker.io/library/python:latest"),
        "gpu-tenancy:cluster.agent_image: is not pinned; write a digest (@sha256:…) or a full version (:1.2.3) "
        "(got 'docker.io/library/python:latest')",
    ),
    "borrowing reaches beyond the cohort": Mistake(
        borrowing_beyond_the_cohort,
        "viktorbarzin.me/gpumem.borrowing_limit: must be at most 0, which the others of cohort gpus lend (got 1)",
    ),
    "a driver that is to hold containers on whole devices": Mistake(
        set_at("pools/batch/enforce", "driver"),
        "gpu-tenancy:pools.batch.enforce: driver has no use where sharing is whole: no container has a budget",
    ),
    "residents without an agent that advertises": Mistake(
        set_at("reconcile", None), "gpu-tenancy:reconcile: is missing"
    ),
}

# The three that change one number leave one mistake there.
ALL_REFUSED = [
    mistake.message for name, mistake in REFUSED.items() if name not in ("a budget of nothing", "half a MiB")
]


def make_all_refused(config: Config) -> None:
    for mistake in REFUSED.values():
        mistake.make(config)
