"""Tests that the extender lists the cluster and then watches it. Without a ledger, it places no pods."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agents.extender.cache.cache import Cache
from agents.extender.cache.informers import Informers
from agents.kube.pods import PODS
from agents.kube.slices import SLICES
from agents.runtime.clock import Clock
from agents.telemetry.device import Device, Survey
from agents.telemetry.resourceslice import PublishingNode, slice_of
from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.units import MIB
from tests.support.devices import feasible
from tests.support.fake_cluster import DOMAIN, NAMES, SYSTEM, T4, Served
from tests.support.informing import wakeful
from tests.support.waiting import PATIENCE_SECONDS, eventually

ASK = MemoryRequest(5000)


class Followed:
    def __init__(self, served: Served) -> None:
        self.cluster = served.cluster
        self.cluster.watches_last = True
        self.cluster.add_ledger(T4)
        self.cluster.add_node()
        self.publish()
        self.cache = Cache()
        self.growths = 0
        clock = Clock(sleep=lambda seconds: time.sleep(min(seconds, 0.05)))
        self.informers = Informers(
            api=served.api(clock=clock), cache=self.cache,
            ledger_namespace=SYSTEM, clock=clock, log=served.log(), grown=self._grow, ledger_seconds=0.1,
        )  # fmt: skip
        self.thread = threading.Thread(target=self.informers.informer.run, daemon=True)

    def start(self) -> None:
        self.thread.start()
        self.cluster.await_watches(3)

    def stop(self) -> None:
        self.informers.informer.stop()
        if self.thread.ident is not None:
            self.thread.join(PATIENCE_SECONDS)

    def publish(self, mib: int = 15360) -> None:
        device = Device(gpu=0, uuid="GPU-0", total_bytes=mib * MIB, used_bytes=0, free_bytes=0)
        host = PublishingNode(name="k8s-node1", uid="uid-k8s-node1")
        found: dict[str, Any] = {**slice_of(Survey(devices=(device,)), host, NAMES, None)}
        found["metadata"] = {**found["metadata"], "resourceVersion": self.cluster.next_version()}
        self.cluster.objects[f"{SLICES}/{found['metadata']['name']}"] = found
        self.cluster.tell("MODIFIED", SLICES, found)

    def _grow(self) -> None:
        self.growths += 1

    @property
    def room_mib(self) -> int | None:
        (usage,) = self.cache.snapshot()
        return usage.devices[0].room_mib if usage.devices else None

    @property
    def cpu_milli(self) -> int | None:
        (usage,) = self.cache.snapshot()
        return usage.cpu_milli


@pytest.fixture
def followed(served: Served) -> Iterator[Followed]:
    with wakeful():
        yield (found := Followed(served))
        found.stop()


def test_pods_that_are_bound_hold_their_memory_until_they_are_gone(followed: Followed) -> None:
    followed.cluster.add_pod("first", "k8s-node1", "4000")
    followed.start()
    assert followed.informers.problem is None
    eventually(lambda: followed.room_mib == 10000)
    followed.cluster.add_pod("second", "k8s-node1", "5000")
    eventually(lambda: followed.room_mib == 5000)
    before = followed.growths
    followed.cluster.remove_pod("first")
    eventually(lambda: followed.room_mib == 9000 and followed.growths > before)


def test_a_device_that_changes_is_followed(followed: Followed) -> None:
    followed.start()
    followed.publish(mib=8192)
    eventually(lambda: followed.room_mib == 8192 - T4.reserve_mib)


def test_a_node_that_leaves_its_pool_takes_no_pod(followed: Followed) -> None:
    followed.start()
    followed.cluster.add_node(labels={"gpu": "none"})
    eventually(lambda: not followed.cache.fit("u", ASK, ["k8s-node1"], 0.0).nodes)


def test_without_a_ledger_there_is_a_problem_until_it_is_back(followed: Followed) -> None:
    followed.start()
    followed.cluster.delete_ledger()
    eventually(lambda: "there is no ledger" in (followed.informers.problem or ""))
    followed.cluster.add_ledger(T4)
    eventually(lambda: followed.informers.problem is None)


def test_under_another_resource_domain_nothing_is_placed_until_everything_is_listed_again(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed.start()
    asked, may_answer, answer = threading.Event(), threading.Event(), followed.cluster.answer

    def held(method: str, url: str, body: Any) -> Any:
        if url.startswith("/api/v1/pods?limit"):
            asked.set()
            may_answer.wait(PATIENCE_SECONDS)
        return answer(method, url, body)

    monkeypatch.setattr(followed.cluster, "answer", held)
    followed.cluster.add_ledger(text=json.dumps(Ledger(domain="other.example", pools=(T4,)).to_data()))
    assert asked.wait(PATIENCE_SECONDS)
    assert (followed.informers.names, followed.informers.listed_at) == (Names("other.example"), None)
    may_answer.set()
    eventually(lambda: followed.informers.listed_at is not None)


def test_what_a_nominated_pod_is_kept_is_given_back_when_it_goes(followed: Followed) -> None:
    def nominate(node: str | None) -> None:
        pod = followed.cluster.pods[-1]
        pod["status"] = {"phase": "Pending", "nominatedNodeName": node}
        followed.cluster.tell("MODIFIED", PODS, pod)

    def fits() -> bool:
        return bool(followed.cache.fit("other", MemoryRequest(10000), ["k8s-node1"], 0.0).nodes)

    followed.start()
    followed.cluster.add_pod("nominee", "", "8000")
    nominate("k8s-node1")
    eventually(lambda: not fits())
    nominate(None)
    eventually(lambda: followed.cache.nominated_node("uid-nominee", 0.0))
    assert not fits()
    followed.cluster.remove_pod("nominee")
    eventually(fits)


def test_what_a_pod_was_promised_is_not_the_apis_to_take(followed: Followed) -> None:
    """A status change of the still unbound pod arrives after the filter."""
    followed.start()
    followed.cache.fit("uid-promised", MemoryRequest(3000), ["k8s-node1"], 0.0)
    followed.cluster.add_pod("promised", "", "3000")
    followed.cluster.add_pod("witness", "k8s-node1", "1000")
    eventually(lambda: followed.room_mib == 10000)


ENORMOUS = "9" * 401


@pytest.fixture
def listed(served: Served) -> Followed:
    found = Followed(served)
    found.cluster.add_pod("first", "k8s-node1", "4000")
    found.informers.ledger = Ledger(domain=DOMAIN, pools=(T4,))
    return found


def relisted(found: Followed, gpumem: str) -> Followed:
    asking(found.cluster.pods[0], gpumem)
    found.informers.list_all()
    return found


def asking(pod: dict[str, Any], gpumem: str) -> None:
    for part in pod["spec"]["containers"][0]["resources"].values():
        part[NAMES.gpumem] = gpumem


def fits(found: Followed, mib: int = 1) -> bool:
    answer = found.cache.fit("new", MemoryRequest(mib), ("k8s-node1",), 0.0)
    found.cache.remove_pod("new")
    assert bool(answer.nodes) == bool(feasible(found.cache, MemoryRequest(mib), 0.0))
    return bool(answer.nodes)


@pytest.mark.parametrize("by", ["event", "list"])
def test_a_pod_that_becomes_unreadable_keeps_what_it_held(listed: Followed, by: str) -> None:
    relisted(listed, "4000")
    pod = listed.cluster.pods[0]
    if by == "list":
        relisted(listed, ENORMOUS)
    else:
        asking(pod, ENORMOUS)
        listed.informers.informer.apply({"type": "MODIFIED", "object": pod})
    assert fits(listed, 10_000)
    assert not fits(listed, 10_001)
    assert listed.informers.problems.counts() == {"pod": 1}
    listed.informers.informer.apply({"type": "DELETED", "object": pod})
    assert fits(listed, 14_000)
    assert not listed.informers.problems.counts()


def test_a_ledger_with_a_smaller_reserve_gives_the_memory_to_waiting_pods(listed: Followed) -> None:
    assert not fits(relisted(listed, "14000"))
    listed.cluster.add_ledger(replace(T4, reserve_mib=360))
    growths = listed.growths
    assert listed.informers.informer.ready()
    assert fits(listed, 1000)
    assert listed.growths > growths
