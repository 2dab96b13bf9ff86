"""reconcile while it watches, on the real clock: what stirs a pass, what does not, and what a broken watch costs."""

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
from agents.runtime.errors import AgentError
from tenancy.ledger import Source
from tenancy.names import LABEL_GPU_MEMORY
from tests.support.fake_cluster import LABELS, SYSTEM, T4, Fault, Served
from tests.support.nvidia_slices import Gpu, nvidia_slice

FULL = ("14k", "1", "14k", "1")
NOTHING = (None, None, None, None)
WATCHES = 3  # the ledger, the nodes, the bound pods
PATIENCE_SECONDS = 60


@dataclass
class Run:
    """A run of reconcile in a thread, which polls too seldom to be what a test sees."""

    served: Served
    interval_seconds: float
    ahead_seconds: float = 0.0
    status: list[int] = field(default_factory=list)
    problem: str = ""

    def start(self) -> threading.Thread:
        clock = Clock(monotonic=lambda: time.monotonic() + self.ahead_seconds)
        api = self.served.api(clock=clock, jitter=0.0)
        settings = Settings(
            ledger_namespace=SYSTEM,
            pod_name="gpumem-reconcile-1",
            dry_run=False,
            interval_seconds=self.interval_seconds,
            run_seconds=600,
        )
        agent = Reconciler(settings=settings, api=api, clock=clock, log=self.served.log())
        thread = threading.Thread(target=self._run, args=(agent,), daemon=True)
        thread.start()
        return thread

    def _run(self, agent: Reconciler) -> None:
        try:
            self.status.append(agent.run())
        except AgentError as error:
            self.problem = str(error)

    def end(self) -> None:
        """The run's time is over, which it sees when anything is told."""
        self.ahead_seconds = 1000.0
        bookmark = {"kind": "Node", "metadata": {"resourceVersion": "999999"}}
        self.served.cluster.tell("BOOKMARK", "/api/v1/nodes", bookmark)


@contextmanager
def running(served: Served, *, interval_seconds: float = 300, watches: int = WATCHES) -> Iterator[Run]:
    """Once it watches; it ends well."""
    served.cluster.watches_last = True
    run = Run(served, interval_seconds)
    thread = run.start()
    served.cluster.await_watches(watches)
    yield run
    run.end()
    thread.join(timeout=PATIENCE_SECONDS)
    assert not thread.is_alive()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def passes(served: Served) -> int:
    """Each reads the ledger once."""
    return sum(url == served.cluster.ledger_path for _, url in served.cluster.requests)


def lists(served: Served) -> int:
    """How often the nodes were read: by each pass, and again after it wrote."""
    return sum(url.startswith("/api/v1/nodes?limit") for _, url in served.cluster.requests)


@pytest.fixture
def settled(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A node that is as wanted."""
    monkeypatch.setattr(reconcile, "PAUSE_SECONDS", 0.05)
    served.cluster.add_ledger(T4)
    served.cluster.add_node(gpumem="14k", gpu_count="1")
    return served


def test_a_node_that_registers_again_is_whole_at_once(settled: Served) -> None:
    with running(settled) as run:
        settled.cluster.add_node()
        eventually(lambda: settled.cluster.shown() == FULL)
    assert run.status == [0]


def test_a_node_whose_keys_the_kubelet_zeroed_is_whole_at_once(settled: Served) -> None:
    with running(settled):
        settled.cluster.add_node(gpumem="0", gpu_count="0")
        eventually(lambda: settled.cluster.shown() == FULL)


def test_a_node_that_joins_its_pool_is_advertised_at_once(settled: Served) -> None:
    with running(settled):
        settled.cluster.add_node("second", labels={"gpu": "t4"})
        settled.cluster.add_node("second")
        eventually(lambda: settled.cluster.shown("second") == FULL)


def test_a_node_that_leaves_its_pool_loses_the_keys_at_once(settled: Served) -> None:
    with running(settled):
        settled.cluster.add_node(labels={}, gpumem="14k", gpu_count="1")
        eventually(lambda: settled.cluster.shown() == NOTHING)


def test_another_ledger_is_advertised_at_once(settled: Served) -> None:
    with running(settled):
        settled.cluster.add_ledger(replace(T4, reserve_mib=2360))
        eventually(lambda: settled.cluster.shown()[0] == "13k")


def test_a_ledger_that_goes_is_retired_at_once(settled: Served) -> None:
    with running(settled, interval_seconds=0.5):
        settled.cluster.delete_ledger()
        eventually(lambda: settled.cluster.ledger_path not in settled.cluster.objects)
    assert settled.cluster.shown() == NOTHING


def test_a_pod_bound_beyond_the_pool_raises_what_is_advertised_at_once(settled: Served) -> None:
    with running(settled):
        settled.cluster.add_pod("late", "k8s-node1", "15k")
        eventually(lambda: settled.cluster.shown()[0] == "15k")
        settled.cluster.remove_pod("late")
        eventually(lambda: settled.cluster.shown() == FULL)


def test_a_refused_node_is_advertised_as_soon_as_its_labels_are_mended(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "PAUSE_SECONDS", 0.05)
    served.cluster.add_ledger(T4)
    served.cluster.add_node(labels={**LABELS, LABEL_GPU_MEMORY: "8192"})
    with running(served) as run:
        served.cluster.add_node()
        eventually(lambda: served.cluster.shown() == FULL)
    assert run.status == [0]


def test_a_node_is_advertised_as_soon_as_its_slices_are_there_and_less_when_they_show_less(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "PAUSE_SECONDS", 0.05)
    served.cluster.add_ledger(replace(T4, source=Source.SLICES, device_count=2))
    served.cluster.add_node(labels={"gpu": "t4"})
    with running(served, watches=WATCHES + 1) as run:
        served.cluster.create(SLICES, nvidia_slice("k8s-node1", [Gpu(), Gpu(minor=1)]))
        eventually(lambda: served.cluster.shown()[:2] == ("28k", "2"))
        (stored,) = (found for path, found in served.cluster.objects.items() if path.startswith(SLICES))
        stored["metadata"]["resourceVersion"] = served.cluster.next_version()
        stored["spec"]["devices"].pop()
        served.cluster.tell("MODIFIED", SLICES, stored)
        eventually(lambda: served.cluster.shown()[:2] == ("14k", "1"))
    assert run.status == [0]


def test_what_changes_nothing_costs_no_request(settled: Served) -> None:
    with running(settled) as run:
        before = len(settled.cluster.requests)
        for number in range(50):
            settled.cluster.add_node("stranger", labels={"number": str(number)})
            settled.cluster.add_node(gpumem="14000", gpu_count="1")
            settled.cluster.add_pod(f"pod-{number}", "k8s-node1", "100")
        settled.cluster.add_node()  # the last one matters, and comes after all others
        eventually(lambda: settled.cluster.shown() == FULL)
        eventually(lambda: lists(settled) == 3)
        eventually(lambda: len(settled.cluster.requests) == before + 8)
    pass_with_a_write = ["GET", "GET", "GET", "GET", "PATCH", "POST", "GET", "GET"]
    assert [method for method, _ in settled.cluster.requests[before:][:8]] == pass_with_a_write
    assert run.status == [0]


def test_a_run_that_watches_lists_once_and_stays_to_its_end(settled: Served) -> None:
    with running(settled, interval_seconds=0.2):
        time.sleep(0.5)
        assert lists(settled) == 1


def test_passes_keep_their_distance_however_much_happens(settled: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "PAUSE_SECONDS", 0.2)
    with running(settled):
        began, before = time.monotonic(), passes(settled)
        while time.monotonic() - began < 0.8:
            settled.cluster.add_node()  # somebody takes the keys off again and again
            time.sleep(0.02)
        assert passes(settled) - before <= (time.monotonic() - began) / 0.2 + 1


def test_without_watches_it_polls_and_says_why(settled: Served) -> None:
    settled.cluster.faults = [Fault("GET", "/api/v1/pods?watch", 403, "Forbidden", "no watch", times=999)]
    settled.cluster.watches_last = True
    run = Run(settled, interval_seconds=0.2)
    thread = run.start()
    eventually(lambda: lists(settled) >= 2)
    settled.cluster.add_node()
    eventually(lambda: settled.cluster.shown() == FULL)
    run.end()
    thread.join(timeout=PATIENCE_SECONDS)
    assert run.status == [0]
    said = [line["message"] for line in settled.lines()]
    assert "lost a watch, polls: GET /api/v1/pods: 403 Forbidden: no watch" in said


def test_watches_that_end_are_begun_again_after_a_pass(settled: Served) -> None:
    with running(settled, interval_seconds=0.2):
        settled.cluster.end_watches()
        settled.cluster.await_watches(0)
        settled.cluster.add_node()
        settled.cluster.watches_last = True
        eventually(lambda: settled.cluster.shown() == FULL)
        settled.cluster.await_watches(WATCHES)


def test_a_pod_whose_request_cannot_be_read_ends_no_run(settled: Served) -> None:
    with running(settled) as run:
        settled.cluster.add_pod("broken", "k8s-node1", "x")
        eventually(lambda: lists(settled) >= 2)
        settled.cluster.add_node()
        eventually(lambda: settled.cluster.shown() == FULL)
    assert run.status == [0]
