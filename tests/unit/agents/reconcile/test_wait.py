"""Tests which changes start a pass of reconcile."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from agents.kube.slices import SLICES
from agents.reconcile import main as reconcile
from agents.reconcile.main import Reconciler, Settings
from agents.runtime.clock import Clock
from tenancy.choices import Source
from tests.support.fake_cluster import SYSTEM, T4, Fault, Served
from tests.support.nvidia_slices import Gpu, nvidia_slice
from tests.support.reconciling import FULL, NOTHING
from tests.support.waiting import PATIENCE_SECONDS, eventually

WATCHES = 3


@dataclass
class Run:
    served: Served
    interval_seconds: float
    ahead_seconds: float = 0.0
    status: list[int] = field(default_factory=list)

    def start(self) -> threading.Thread:
        clock = Clock(monotonic=lambda: time.monotonic() + self.ahead_seconds)
        api = self.served.api(clock=clock, jitter=0.0)
        settings = Settings(
            ledger_namespace=SYSTEM,
            pod_name="gpumem-reconcile-1",
            interval_seconds=self.interval_seconds,
            run_seconds=600,
        )
        agent = Reconciler(settings=settings, api=api, clock=clock, log=self.served.log())
        thread = threading.Thread(target=lambda: self.status.append(agent.run()), daemon=True)
        thread.start()
        return thread

    def end(self, thread: threading.Thread) -> None:
        self.ahead_seconds = 1000.0
        bookmark = {"kind": "Node", "metadata": {"resourceVersion": "999999"}}
        self.served.cluster.tell("BOOKMARK", "/api/v1/nodes", bookmark)
        thread.join(timeout=PATIENCE_SECONDS)
        assert self.status == [0]


@contextmanager
def running(served: Served, *, interval_seconds: float = 300, watches: int = WATCHES) -> Iterator[None]:
    served.cluster.watches_last = True
    run = Run(served, interval_seconds)
    thread = run.start()
    served.cluster.await_watches(watches)
    yield
    run.end(thread)


def lists(served: Served) -> int:
    return sum(url.startswith("/api/v1/nodes?limit") for _, url in served.cluster.requests)


@pytest.fixture
def settled(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    monkeypatch.setattr(reconcile, "PAUSE_SECONDS", 0.05)
    served.cluster.add_ledger(T4)
    served.cluster.add_node(gpumem="14k", gpu_count="14k")
    return served


CHANGES: dict[str, tuple[Callable[[Served], object], tuple[str | None, ...]]] = {
    "it registers again": (lambda served: served.cluster.add_node(), FULL),
    "the kubelet zeroes its keys": (lambda served: served.cluster.add_node(gpumem="0", gpu_count="0"), FULL),
    "it leaves its pool": (lambda served: served.cluster.add_node(labels={}, gpumem="14k", gpu_count="14k"), NOTHING),
    "the ledger changes": (
        lambda served: served.cluster.add_ledger(replace(T4, reserve_mib=2360)),
        ("13k", "13k", "13k", "13k"),
    ),
    "a pod is bound beyond the pool": (
        lambda served: served.cluster.add_pod("late", "k8s-node1", "15k"),
        ("15k", "15k", "15k", "15k"),
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_node_is_as_wanted_at_once_after(settled: Served, case: str) -> None:
    change, expected = CHANGES[case]
    with running(settled):
        change(settled)
        eventually(lambda: settled.cluster.shown() == expected)


def test_a_node_is_advertised_as_soon_as_its_slices_are_there_and_less_when_they_show_less(settled: Served) -> None:
    settled.cluster.add_ledger(replace(T4, source=Source.SLICES, device_count=2))
    settled.cluster.add_node(labels={"gpu": "t4"})
    with running(settled, watches=WATCHES + 1):
        settled.cluster.create(SLICES, nvidia_slice("k8s-node1", [Gpu(), Gpu(minor=1)]))
        eventually(lambda: settled.cluster.shown()[:2] == ("28k", "28k"))
        (stored,) = (found for path, found in settled.cluster.objects.items() if path.startswith(SLICES))
        stored["metadata"]["resourceVersion"] = settled.cluster.next_version()
        stored["spec"]["devices"].pop()
        settled.cluster.tell("MODIFIED", SLICES, stored)
        eventually(lambda: settled.cluster.shown()[:2] == ("14k", "14k"))


def test_a_change_that_matters_to_no_node_costs_no_request(settled: Served) -> None:
    with running(settled):
        before = len(settled.cluster.requests)
        for number in range(50):
            settled.cluster.add_node("stranger", labels={"number": str(number)})
            settled.cluster.add_node(gpumem="14000", gpu_count="14000")
            settled.cluster.add_pod(f"pod-{number}", "k8s-node1", "100")
        settled.cluster.add_node()
        eventually(lambda: settled.cluster.shown() == FULL)
        eventually(lambda: len(settled.cluster.requests) == before + 8)
    pass_with_a_write = ["GET", "GET", "GET", "GET", "PATCH", "POST", "GET", "GET"]
    assert [method for method, _ in settled.cluster.requests[before:][:8]] == pass_with_a_write


def test_without_watches_it_polls_and_logs_why(settled: Served) -> None:
    settled.cluster.faults = [Fault("GET", "/api/v1/pods?watch", 403, "Forbidden", "no watch", times=999)]
    settled.cluster.watches_last = True
    run = Run(settled, interval_seconds=0.2)
    thread = run.start()
    eventually(lambda: lists(settled) >= 2)
    settled.cluster.add_node()
    eventually(lambda: settled.cluster.shown() == FULL)
    run.end(thread)
    logged = [line["message"] for line in settled.lines()]
    assert "lost a watch, polls: GET /api/v1/pods: 403 Forbidden: no watch" in logged
