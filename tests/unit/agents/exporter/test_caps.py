"""Tests how the exporter reads caps from NVML. Only a limit that is equal to the budget is a cap."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.exporter.attribution import DeviceUse, NodeUse
from agents.exporter.caps import CapReader
from agents.exporter.metrics import samples
from agents.exporter.registry import Registry
from agents.kube import nodes
from agents.node.cgroup import CgroupDirectories, Container
from agents.node.pods import NodePods
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from agents.telemetry.device import Device, Uncapped
from tenancy.choices import Enforce
from tenancy.ledger import Ledger, Pool
from tenancy.names import MEMORY_LIMIT, MEMORY_REQUEST, METRIC_CAN_CAP, METRIC_CAPPED, METRIC_LIMIT
from tenancy.units import MIB
from tests.support.fake_cluster import DOMAIN, LABELS, NAMES, T4
from tests.support.node_pods import read

PROBLEMS = ItemProblems(log=Log("exporter", io.StringIO()))
CAPPED = replace(T4, enforce=Enforce.DRIVER)
UID, ID, SIDECAR, OTHER = "0aaf3b32-5b3c-4a2e-9b54-0b5bba3ea9d4", "a" * 64, "b" * 64, "c" * 64
POD_GROUP = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
GPUS = ("GPU-0", "GPU-1")


def pod(**changes: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "chat",
            "name": "chat-0",
            "uid": UID,
            "annotations": {NAMES.device_uuid: ",".join(GPUS)},
        },
        "spec": {
            "nodeName": "k8s-node1",
            "containers": [container("model", 8000, NAMES.gpu_count), container("proxy", 0)],
            "initContainers": [{**container("helper", 2000), "restartPolicy": "Always"}, container("fetch", 6000)],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [running("model", ID), running("proxy", OTHER)],
            "initContainerStatuses": [
                running("helper", SIDECAR),
                {"name": "fetch", "containerID": f"containerd://{'d' * 64}", "state": {"terminated": {}}},
            ],
        },
        **changes,
    }


def container(name: str, mib: int, *more: str, stamped: bool = True) -> dict[str, Any]:
    limits = {NAMES.gpumem: str(mib), **dict.fromkeys(more, "2")} if mib else {}
    variables = [{"name": each, "value": str(mib // 2)} for each in (MEMORY_LIMIT, MEMORY_REQUEST)]
    return {"name": name, "resources": {"limits": limits}, "env": variables if mib and stamped else []}


def running(name: str, identity: str) -> dict[str, Any]:
    return {"name": name, "containerID": f"containerd://{identity}", "state": {"running": {}}}


@dataclass
class Node:
    root: Path
    limits: dict[str, int | Uncapped] = field(default_factory=dict)
    # The fake NVML gives the same answer for all control groups of a device.
    answers: dict[str, Uncapped] = field(default_factory=dict)
    pods: list[dict[str, Any]] = field(default_factory=lambda: [pod()])
    pool: Pool = CAPPED
    used: dict[Container, int] = field(default_factory=dict)
    asked: int = 0

    def __post_init__(self) -> None:
        (self.root / "cgroup.controllers").touch()
        for identity in (ID, SIDECAR, OTHER):
            self.start(identity)
        self.reader = CapReader(limit_of=self.limit, groups=CgroupDirectories(self.root))

    def group(self, identity: str) -> str:
        return f"{POD_GROUP}/cri-containerd-{identity}.scope"

    def start(self, identity: str) -> None:
        (self.root / self.group(identity)).mkdir(parents=True)

    def cap(self, identity: str, mib: int) -> None:
        self.limits[self.group(identity)] = mib * MIB

    def limit(self, uuid: str, directory: str) -> int | Uncapped:
        self.asked += 1
        if uuid in self.answers:
            return self.answers[uuid]
        below = Path(directory).relative_to(self.root)
        named = (self.limits.get(str(each)) for each in (below, *below.parents))
        return next((limit for limit in named if limit is not None), Uncapped.UNLIMITED)

    def read(self) -> tuple[NodeUse, Registry]:
        devices = [
            Device(gpu=gpu, uuid=uuid, total_bytes=16000 * MIB, used_bytes=0, free_bytes=0)
            for gpu, uuid in enumerate(GPUS)
        ]
        uses = tuple(DeviceUse(device=device, used_bytes=self.used) for device in devices)
        ledger = Ledger(domain=DOMAIN, pools=(self.pool,))
        node_pods = NodePods(read(*self.pods, ledger=ledger).pods)
        registry = Registry(node_pods=node_pods, ledger=ledger, node=nodes.Node(name="n", uid="", labels=LABELS))
        return self.reader.of(NodeUse(uses), registry), registry

    @property
    def reasons(self) -> Mapping[tuple[str, str], str]:
        found, _ = self.read()
        return {(cap.container.id[0], cap.uuid): str(cap.uncapped or "") for cap in found.caps}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    found = Node(tmp_path)
    found.cap(ID, 4000)
    found.cap(SIDECAR, 1000)
    return found


ON_BOTH = {(identity, uuid): "" for identity in "ab" for uuid in GPUS}


def old_driver(node: Node) -> None:
    node.answers = dict.fromkeys(GPUS, Uncapped.DRIVER)


def cgroup_v1(node: Node) -> None:
    (node.root / "cgroup.controllers").unlink()


def old_toolkit(node: Node) -> None:
    node.limits.clear()


def not_stamped(node: Node) -> None:
    old_toolkit(node)
    node.pods[0]["spec"]["containers"][0]["env"] = []
    node.pods[0]["spec"]["initContainers"][0]["env"] = []


def one_device_alone(node: Node) -> None:
    node.answers = {"GPU-1": Uncapped.UNLIMITED}


def higher(node: Node) -> None:
    node.cap(ID, 4001)
    node.cap(SIDECAR, 999)


def of_the_pod(node: Node) -> None:
    node.limits = {POD_GROUP: 4000 * MIB}


def lost_groups(node: Node) -> None:
    for identity in (ID, SIDECAR):
        (node.root / node.group(identity)).rmdir()


def every(reason: Uncapped) -> dict[tuple[str, str], str]:
    return dict.fromkeys(ON_BOTH, str(reason))


FAULTS: dict[str, tuple[Any, dict[tuple[str, str], str]]] = {
    "an old driver": (old_driver, every(Uncapped.DRIVER)),
    "cgroup v1": (cgroup_v1, every(Uncapped.CGROUP)),
    "an old toolkit, which sets no limit": (old_toolkit, every(Uncapped.UNLIMITED)),
    "pods from before the pool enforced": (not_stamped, every(Uncapped.UNSTAMPED)),
    "one of two devices without": (
        one_device_alone,
        {key: str(Uncapped.UNLIMITED) if key[1] == "GPU-1" else "" for key in ON_BOTH},
    ),
    "another limit": (higher, every(Uncapped.OTHER)),
    "the limit of the pod's group": (
        of_the_pod,
        {key: str(Uncapped.INHERITED if key[0] == "a" else Uncapped.OTHER) for key in ON_BOTH},
    ),
    "a lost group": (lost_groups, every(Uncapped.GROUPLESS)),
}


@pytest.mark.parametrize(("fault", "reasons"), FAULTS.values(), ids=FAULTS)
def test_at_every_fault_nothing_is_capped_and_the_reason_is_named(node: Node, fault: Any, reasons: Any) -> None:
    assert node.reasons == ON_BOTH
    fault(node)
    assert node.reasons == reasons


def test_a_restarted_container_is_judged_by_its_new_group_and_the_old_one_is_no_cap(node: Node) -> None:
    new = "e" * 64
    node.reasons  # noqa: B018 (its group is known)
    (node.root / node.group(ID)).rmdir()
    del node.limits[node.group(ID)]
    node.start(new)
    lost = {("a", uuid): "no-cgroup" for uuid in GPUS}
    assert node.reasons == ON_BOTH | lost, "the API still has the old one"
    node.used = {Container(UID, new): MIB}
    assert node.reasons == ON_BOTH | lost | {("e", uuid): "no-limit" for uuid in GPUS}, "it may use the device already"
    node.cap(new, 4000)
    assert node.reasons == ON_BOTH | lost | {("e", uuid): "unknown-container" for uuid in GPUS}
    node.pods[0]["status"]["containerStatuses"][0] = running("model", new)
    assert node.reasons == {("e" if key[0] == "a" else key[0], key[1]): "" for key in ON_BOTH}


def test_a_container_that_no_listed_pod_has_is_named(node: Node) -> None:
    node.used = {Container("1baf3b32-5b3c-4a2e-9b54-0b5bba3ea9d4", "f" * 64): MIB}
    assert node.reasons == ON_BOTH | {("f", uuid): "no-cgroup" for uuid in GPUS}


@pytest.mark.parametrize("unified", [True, False])
def test_a_container_without_a_budget_that_uses_a_device_next_to_capped_ones_is_named(
    node: Node, unified: bool
) -> None:
    assert node.reasons == ON_BOTH, "it may run there, and use nothing"
    if not unified:
        cgroup_v1(node)
    node.used = {Container(UID, OTHER): MIB}
    others = ON_BOTH if unified else every(Uncapped.CGROUP)
    assert node.reasons == others | {("c", uuid): "no-budget" for uuid in GPUS}


def test_what_is_read_is_served_by_container_and_device_with_the_reason(node: Node) -> None:
    node.cap(SIDECAR, 1500)
    found, registry = node.read()
    served = [
        *samples(
            found,
            registry,
            datetime.now(UTC),
            PROBLEMS,
            age_seconds=0,
            api_age_seconds=0,
        )
    ]
    names = {"namespace": "chat", "pod": "chat-0", "pod_uid": UID, "gpu": "1", "uuid": "GPU-1"}
    capped = [(each.labels, each.value) for each in served if each.name == METRIC_CAPPED]
    assert (names | {"container": "model"}, 1) in capped
    assert (names | {"container": "helper", "reason": "other-limit"}, 0) in capped
    limits = {each.labels["container"]: each.value for each in served if each.name == METRIC_LIMIT}
    assert limits == {"model": 4000 * MIB, "helper": 1500 * MIB}
    assert [each.value for each in served if each.name == METRIC_CAN_CAP] == [1, 1]


def test_on_a_pool_that_does_not_enforce_nothing_is_asked_and_nothing_served(node: Node) -> None:
    node.pool = T4
    found, registry = node.read()
    served = samples(
        found,
        registry,
        datetime.now(UTC),
        PROBLEMS,
        age_seconds=0,
        api_age_seconds=0,
    )
    assert (node.asked, found.caps) == (0, ())
    assert not {each.name for each in served} & {METRIC_CAPPED, METRIC_LIMIT, METRIC_CAN_CAP}
