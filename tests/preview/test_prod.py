"""The prod stack, previewed by the real engine with its real provider under the policy pack."""

import re
from typing import Any

import pytest

from tests.preview.cli import Workspace

Config = dict[str, Any]


def test_prod_passes_the_gate_and_leaves_its_stack_file_as_it_was(space: Workspace) -> None:
    before = space.stack_file.read_text()
    outcome = space.preview()
    assert outcome.code == 0, outcome.text
    assert "warning" not in outcome.text
    assert "$PATH" not in outcome.text
    assert re.search(r"\+ \d\d+ to create", outcome.text)
    assert space.stack_file.read_text() == before


def set_at(path: str, value: object) -> Any:
    """A change that writes one value into the configuration; None removes the key."""

    def change(config: Config) -> None:
        *parents, last = path.split("/")
        target: Any = config
        for part in parents:
            target = target[part]
        if value is None:
            del target[last]
        else:
            target[last] = value

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


def borrowing_beyond_the_pool(config: Config) -> None:
    queue = config["queues"]["cluster_queues"]["gpu-cq"]
    queue["cohort"] = "gpus"
    queue["quotas"] = {"gpu-any": {"nvidia.com/gpu": {"nominal": 1, "borrowing_limit": 1}}}


# One mistake each, refused by the policy pack: what was changed, the rule, what the message says.
GATED = {
    "a budget is raised over the card": (
        set_at("residents/llama-swap/gpumem_mib", 7000),
        "t4: 15300 MiB promised, 14000 advertised (1300 over): llama-swap 7000, immich-ml 3000, ",
    ),
    "a second replica needs a second seat": (
        set_at("residents/immich-ml/replicas", 2),
        "t4: 16300 MiB promised, 14000 advertised (2300 over): immich-ml 6000",
    ),
    "a larger reserve leaves less": (
        set_at("pools/t4/reserve_mib", 3000),
        "t4: 13300 MiB promised, 12360 advertised (940 over)",
    ),
    "the sum fits and no device does": (two_devices_that_do_not_fit, "9000"),
    "one seat is larger than a device": (
        lambda config: (
            set_at("pools/t4/device_count", 2)(config),
            set_at("residents/llama-swap/gpumem_mib", 14500)(config),
        ),
        "14500",
    ),
    "a queue hands out memory that residents hold": (
        gpumem_in_a_queue,
        "14300 MiB promised, 14000 advertised (300 over)",
    ),
    "a queue promises a GPU that does not exist": (
        set_at("queues/cluster_queues/gpu-cq/quotas/gpu-any", {"nvidia.com/gpu": {"nominal": 2}}),
        "gpu-cq",
    ),
    "borrowing reaches beyond the pool": (borrowing_beyond_the_pool, "gpu-cq"),
    "fungible flavors with one GPU": (fungible_flavors_with_one_gpu, "there is 1 GPU behind them"),
    "preemption is off though priorities differ": (
        set_at("queues/cluster_queues/gpu-cq/preemption", {"within_cluster_queue": "Never"}),
        "gpu-cq",
    ),
    "the class that is evicted first outranks the others": (
        set_at("priorities/tier-2-gpu/value", 2000000),
        "tier-2-gpu",
    ),
    "a disposable class may preempt": (
        set_at("priorities/homelab-disposable/preemption_policy", "PreemptLowerPriority"),
        "homelab-disposable",
    ),
    "a gate could never open": (set_at("on_demand/tts/need_mib", 14000), "tts"),
    "a floor as large as the device": (set_at("pools/t4/floor_mib", 14000), "floor"),
    "an image that moves": (set_at("cluster/agent_image", "docker.io/library/python:latest"), "python:latest"),
    "an image without a tag": (set_at("cluster/agent_image", "docker.io/library/python"), "docker.io/library/python"),
}

# One mistake each, refused by the settings before anything is registered.
REFUSED = {
    "an unknown key": (set_at("poolz", {"a": 1}), "gpu-tenancy:poolz: unknown key; did you mean pools?"),
    "a budget of nothing": (
        set_at("residents/immich-ml/gpumem_mib", 0),
        "gpu-tenancy:residents.immich-ml.gpumem_mib: must be at least 1 (got 0)",
    ),
    "half a MiB": (
        set_at("residents/immich-ml/gpumem_mib", 3000.5),
        "gpu-tenancy:residents.immich-ml.gpumem_mib: must be a whole number (got 3000.5)",
    ),
    "a unit in the number": (
        set_at("residents/immich-ml/gpumem_mib", "3Gi"),
        "residents.immich-ml.gpumem_mib: must be a whole number of MiB without a unit; write 3072 (got '3Gi')",
    ),
    "a resident in no pool": (
        set_at("residents/frigate/pool", "t5"),
        "gpu-tenancy:residents.frigate.pool: 't5' is no key of pools; known there: batch, t4",
    ),
    "a LocalQueue to no ClusterQueue": (
        set_at("queues/local_queues/team-a-gpu/cluster_queue", "cq"),
        "gpu-tenancy:queues.local_queues.team-a-gpu.cluster_queue: 'cq' is no key of queues.cluster_queues",
    ),
    "residents without an agent that advertises": (set_at("reconcile", None), "gpu-tenancy:reconcile: is missing"),
}


@pytest.mark.parametrize(("change", "message"), GATED.values(), ids=GATED.keys())
def test_the_gate_refuses_a_single_mistake(space: Workspace, change: Any, message: str) -> None:
    space.change(change)
    outcome = space.preview()
    assert outcome.code != 0
    assert message in outcome.text
    assert "[mandatory]" in outcome.text
    assert "Traceback" not in outcome.text


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_the_settings_refuse_a_single_mistake(space: Workspace, change: Any, message: str) -> None:
    space.change(change)
    outcome = space.preview()
    assert outcome.code != 0
    assert message in outcome.text
    assert "Traceback" not in outcome.text


def test_all_refusals_come_at_once(space: Workspace) -> None:
    def changes(config: Config) -> None:
        for change, _ in REFUSED.values():
            change(config)

    space.change(changes)
    outcome = space.preview()
    assert outcome.code != 0
    # The three changes to one number leave one mistake there.
    silent = [
        m
        for name, (_, m) in REFUSED.items()
        if m not in outcome.text and name not in ("a budget of nothing", "half a MiB")
    ]
    assert silent == []


def test_a_stack_without_the_optional_parts_passes(space: Workspace) -> None:
    def change(config: Config) -> None:
        for key in set(config) - {"cluster", "pools"}:
            del config[key]

    space.change(change)
    outcome = space.preview()
    assert outcome.code == 0, outcome.text


def test_a_corrupt_stack_file_is_one_clear_error(space: Workspace) -> None:
    space.stack_file.write_text("config: [\n")
    outcome = space.preview()
    assert outcome.code != 0
    assert "Traceback" not in outcome.text
    assert "panic" not in outcome.text


def test_a_missing_passphrase_is_one_clear_error(space: Workspace) -> None:
    env = {key: value for key, value in space.env.items() if key != "PULUMI_CONFIG_PASSPHRASE"}
    outcome = Workspace(space.folder, env).preview()
    assert outcome.code != 0
    assert "passphrase" in outcome.text
    assert "Traceback" not in outcome.text


def test_an_unreachable_cluster_does_not_hide_the_gate(space: Workspace) -> None:
    kubeconfig = str(space.unreachable())
    assert space.preview(KUBECONFIG=kubeconfig).code == 0
    change, message = GATED["a budget is raised over the card"]
    space.change(change)
    over = space.preview(KUBECONFIG=kubeconfig)
    assert over.code != 0
    assert message in over.text
