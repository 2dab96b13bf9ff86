"""Tests how `destroy` removes the gpumem itself if no agent runs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agents.kube.errors import ApiError
from stacks.engine import EngineError
from stacks.retirement import PATIENCE_SECONDS, Retirement
from tenancy import names
from tests.support.cluster_objects import Object, Objects

SYSTEM = "gpu-tenancy-system"
PODS, CONFIG_MAPS = (f"/api/v1/namespaces/{SYSTEM}/{kind}" for kind in ("pods", "configmaps"))
KEYS = names.Names("example.com")
RUNNING, PENDING, FAILED = ({"metadata": {}, "status": {"phase": phase}} for phase in ("Running", "Pending", "Failed"))


@dataclass
class World(Objects):
    patches: list[tuple[str, ...]] = field(default_factory=list)
    error: Exception | None = None

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        if isinstance(self.error, ApiError):
            raise self.error
        return super().items(path, **parameters)

    def patch(self, *what: str, patch: Object) -> None:
        if self.error:
            raise self.error
        self.patches.append((*what, str(patch)))


def world(*pods: Object, deleting: bool = True, nodes: tuple[Object, ...] = ()) -> World:
    metadata = {"name": names.LEDGER, "finalizers": ["others/own", KEYS.capacity_finalizer]}
    ledger = {"metadata": metadata | ({"deletionTimestamp": "now"} if deleting else {})}
    return World({PODS: [*pods], CONFIG_MAPS: [ledger], "/api/v1/nodes": [*nodes]})


def node(name: str, **capacity: str) -> Object:
    return {"metadata": {"name": name}, "status": {"capacity": {"cpu": "1"}, "allocatable": capacity}}


@dataclass
class Clock:
    seconds: float = 0

    def __call__(self) -> float:
        return self.seconds


def patient(of: World) -> Retirement:
    clock = Clock()
    retirement = Retirement(of, SYSTEM, clock)
    assert retirement.step() == []
    assert of.patches == []
    clock.seconds = PATIENCE_SECONDS
    return retirement


@pytest.mark.parametrize("pods", [(), (PENDING,), (FAILED, PENDING)])
def test_a_removal_takes_the_gpumem_off_the_nodes_that_have_it_and_then_releases_the_ledger(pods: Any) -> None:
    nodes = (node("a", **{KEYS.gpumem: "1"}), node("b"), node("c", **{KEYS.gpu_count: "1"}))
    lab = world(*pods, nodes=nodes)
    assert patient(lab).step() == [
        f"  No agent runs, so make removes {KEYS.gpumem} from the nodes itself (2 have it).",
    ]
    empty = {KEYS.gpumem: None, KEYS.gpu_count: None}
    assert lab.patches == [
        ("node", "a", "c", "--subresource=status", str({"status": {"capacity": empty, "allocatable": empty}})),
        ("configmap", names.LEDGER, f"--namespace={SYSTEM}", str({"metadata": {"finalizers": ["others/own"]}})),
    ]


def test_a_removal_leaves_the_work_to_a_pod_that_runs() -> None:
    clock, lab = Clock(), world()
    retirement = Retirement(lab, SYSTEM, clock)
    for seconds in (0, PATIENCE_SECONDS - 1, PATIENCE_SECONDS, PATIENCE_SECONDS + 1):
        lab.lists[PODS] = [RUNNING] if seconds == PATIENCE_SECONDS else [PENDING]
        clock.seconds = seconds
        assert retirement.step() == []
    assert lab.patches == []


def test_a_removal_changes_nothing_before_pulumi_deletes_the_ledger() -> None:
    lab = world(deleting=False, nodes=(node("a", **{KEYS.gpumem: "1"}),))
    assert patient(lab).step() == []
    assert lab.patches == []


def test_a_removal_says_once_that_the_operator_may_not_change_nodes_and_goes_on() -> None:
    lab = world(nodes=(node("a", **{KEYS.gpumem: "1"}),))
    retirement = patient(lab)
    lab.error = EngineError("nodes is forbidden")
    assert retirement.step()[0].endswith("your account cannot remove the gpumem from the nodes: nodes is forbidden")
    assert retirement.step() == []
    lab.error = None
    assert len(retirement.step()) == 1


def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    lab = world()
    retirement = patient(lab)
    lab.error = ApiError("GET pods", None, "NoAnswer", "refused")
    assert retirement.step() == []


def test_a_removal_goes_on_if_an_agent_lets_the_ledger_go_meanwhile() -> None:
    class Racing(World):
        def patch(self, *what: str, patch: Object) -> None:
            self.lists[CONFIG_MAPS] = []
            raise EngineError('configmaps "gpu-tenancy-ledger" not found')

    assert len(patient(Racing(world().lists)).step()) == 1
