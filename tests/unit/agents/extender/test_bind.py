"""Tests that the Binder binds a pod with its devices, even if the API server does not answer at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from agents.extender.bind import Binder, BindingError, ClientPool
from agents.extender.cache.cache import LOST_SECONDS, Cache
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.protocol import BindRequest
from agents.extender.waiting import WaitingPod
from agents.kube.client import Api, ApiError
from tenancy.devices.allocate import MemoryRequest
from tests.support.devices import bound, feasible
from tests.support.fake_cluster import NAMES, Fault, Served
from tests.support.preempting import waiting_pods

NODE = NodeDevices(node="a", pool="t4", devices=(NodeDevice(0, "GPU-0", 8000), NodeDevice(1, "GPU-1", 6000)))
POD = "/api/v1/namespaces/team/pods/model"
BINDING = BindRequest(namespace="team", name="model", uid="u", node="a")


class Bench:
    def __init__(self, served: Served) -> None:
        self.served = served
        self.cache = Cache()
        self.cache.update_node(NODE)
        self.waiting = waiting_pods(served, self.cache)
        self.waiting.remember("u", WaitingPod(memory=MemoryRequest(5000)))
        clock = served.time.clock()
        self.binder = Binder(
            connections=ClientPool(self.api, clock), cache=self.cache, waiting=self.waiting,
            clock=clock,
        )  # fmt: skip

    def api(self) -> Api:
        return self.served.api(attempts=1)

    def bind(self) -> dict[str, str]:
        self.binder.bind(BINDING, NAMES)
        return dict(self.served.cluster.bodies[-1]["metadata"]["annotations"])

    @property
    def held_mib(self) -> int:
        return sum(device.held_mib for usage in self.cache.snapshot() for device in usage.devices)

    @contextmanager
    def failing(self, status: int) -> Iterator[None]:
        self.served.cluster.faults.append(Fault("POST", f"{POD}/binding", status, reason="Broken"))
        with pytest.raises(ApiError):
            yield

    def held_after(self, seconds: float) -> int:
        self.served.time.seconds += seconds
        feasible(self.cache, MemoryRequest(1), self.served.time.seconds)
        return self.held_mib


@pytest.fixture
def bench(served: Served) -> Bench:
    return Bench(served)


def test_node_and_devices_go_in_one_write_for_this_very_pod(bench: Bench) -> None:
    annotations = bench.bind()
    assert annotations.pop(NAMES.device_assumed_at).isdigit()
    assert annotations == {NAMES.device_index: "1", NAMES.device_uuid: "GPU-1", NAMES.device_mib: "5000"}
    body = bench.served.cluster.bodies[-1]
    assert body["metadata"]["uid"] == "u"
    assert body["target"] == {"apiVersion": "v1", "kind": "Node", "name": "a"}
    assert len(bench.served.cluster.requests) == 1


def test_a_pod_that_was_not_filtered_here_is_not_bound(bench: Bench) -> None:
    """kube-scheduler tries the pod again, for instance after a restart of the extender."""
    other = BindRequest(namespace="team", name="model", uid="other", node="a")
    with pytest.raises(BindingError, match="passed no filter here"):
        bench.binder.bind(other, NAMES)
    assert bench.held_mib == 0


@pytest.mark.parametrize("status", [403, 404, 422])
def test_after_a_refusal_the_devices_are_free_again(bench: Bench, status: int) -> None:
    with bench.failing(status):
        bench.bind()
    assert bench.held_mib == 0


@pytest.mark.parametrize("status", [0, 500, 504])
def test_without_an_answer_the_devices_stay_taken_until_the_request_is_lost(bench: Bench, status: int) -> None:
    with bench.failing(status):
        bench.bind()
    assert bench.held_after(LOST_SECONDS - 1) == 5000
    assert bench.held_after(1) == 0


def test_a_bind_that_came_through_without_an_answer_keeps_its_devices(bench: Bench) -> None:
    with bench.failing(504):
        bench.bind()
    bench.cache.update_pod(replace(bound("u", "a", 5000, 1), uuids=("GPU-1",)))
    assert bench.held_after(LOST_SECONDS) == 5000


def test_a_conflict_with_the_first_try_gives_the_devices_back_at_once(bench: Bench) -> None:
    """Before the fix, the Binder kept the devices of a refused bind for up to 60 s."""
    with bench.failing(409):
        bench.bind()
    assert bench.held_mib == 0
