"""Two teams share the idle GPUs of a cohort by weight, with a real Kueue. The nodes and pods are simulated.

The weight of team-b is twice the weight of team-a.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.support.e2e.queueing import WORKLOADS, gpu_pods, rolled_out, workloads
from tests.support.e2e.rollout import LOW, Object, Rollout, job, jobs, pods, submit
from tests.support.prod import raw
from tests.support.waiting import becomes, eventually
from toolchain.cluster import cluster, simulated
from toolchain.cluster.api import MERGE, NOT_FOUND
from toolchain.cluster.extent import Extent

pytestmark = pytest.mark.day
WEIGHTS = {"team-a": 1, "team-b": 2}
A, B = WEIGHTS
GPUS = 24
FAIR = {A: 8, B: 16}
JOBS = {A: 100, B: 170}
COMPLETED_JOBS = 200
OPEN = 4
STEP_SECONDS = 0.25
LONGEST_SECONDS = 150


@pytest.fixture(scope="module")
def stack(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollout]:
    quotas = {"gpus": {"nvidia.com/gpu": {"nominal": GPUS}}}
    queues = {
        "flavors": {"gpus": {"pool": "whole"}},
        "cohorts": {"shared": {"quotas": quotas}},
        "cluster_queues": {
            team: {
                "cohort": "shared",
                "quotas": {"gpus": {"nvidia.com/gpu": {"nominal": 0, "borrowing_limit": GPUS}}},
                "fair_sharing": {"weight": weight},
                "preemption": {"reclaim_within_cohort": "Any", "within_cluster_queue": "Never"},
            }
            for team, weight in WEIGHTS.items()
        },
        "local_queues": {team: {"tenant": team, "cluster_queue": team} for team in WEIGHTS},
        "workload_priorities": {LOW: {"value": 100}},
    }
    kueue = {**raw()["kueue"], "fair_sharing": {}}
    with (
        cluster.running(tmp_path_factory.mktemp("sharing"), extent=Extent.SIMULATED) as running,
        rolled_out(
            running,
            tmp_path_factory.mktemp("stack"),
            GPUS,
            kueue=kueue,
            queues=queues,
            tenants={team: {} for team in WEIGHTS},
        ) as stack,
    ):
        yield stack


@pytest.fixture(autouse=True)
def empty(stack: Rollout) -> Iterator[None]:
    yield
    for team in WEIGHTS:
        stack.delete(jobs(team))
        eventually(lambda team=team: not workloads(stack, team) and not stack.items(pods(team)), "the queue is empty")


def demand(stack: Rollout, team: str, count: int) -> None:
    for number in range(count):
        submit(stack, team, job(f"job-{number}", team, 1))


def running(stack: Rollout, team: str) -> list[Object]:
    found = gpu_pods(stack, team)
    return [p for p in found if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]]


def reserved(stack: Rollout, team: str) -> int:
    (flavor,) = stack.get(f"{WORKLOADS}/clusterqueues/{team}")["status"]["flavorsReservation"]
    return int(flavor["resources"][0]["total"])


def held(stack: Rollout) -> dict[str, int]:
    return {team: len(running(stack, team)) for team in WEIGHTS}


def test_borrowed_gpus_are_returned_on_demand(stack: Rollout) -> None:
    demand(stack, A, GPUS)
    becomes(lambda: held(stack), {A: GPUS, B: 0}, "team-a borrows all GPUs")
    demand(stack, B, GPUS)
    becomes(lambda: held(stack), FAIR, "team-b gets its share")


@dataclass
class Shares:
    stack: Rollout
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WEIGHTS, 0.0))
    jobs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WEIGHTS, 0))
    _started: dict[tuple[str, str], float] = field(default_factory=dict)
    _completed: set[tuple[str, str]] = field(default_factory=set)
    _last: float = field(default_factory=time.monotonic)

    def step(self) -> None:
        handed_out = {team: reserved(self.stack, team) for team in WEIGHTS}
        now = time.monotonic()
        for team, gpus in handed_out.items():
            self.seconds[team] += gpus * (now - self._last)
        self._last = now
        there = [(team, pod["metadata"]["name"]) for team in WEIGHTS for pod in running(self.stack, team)]
        for pod in there:
            self._started.setdefault(pod, now)
        going_on = sorted((self._started[pod], pod[1], pod) for pod in there if pod not in self._completed)
        for _, _, pod in going_on[: max(0, len(going_on) - (GPUS - OPEN))]:
            self._complete(pod)

    def _complete(self, pod: tuple[str, str]) -> None:
        patch = {"metadata": {"annotations": {simulated.COMPLETE: "true"}}}
        answer = self.stack.cluster.api.request("PATCH", pods(*pod), patch, content_type=MERGE)
        self._completed.add(pod)
        if answer.code != NOT_FOUND:
            assert answer.refusal is None, answer.refusal
            self.jobs[pod[0]] += 1


def test_two_greedy_teams_get_their_weights_within_ten_percent(stack: Rollout) -> None:
    for team, count in JOBS.items():
        demand(stack, team, count)
    becomes(lambda: held(stack), FAIR, "both teams have their share")
    shares, began = Shares(stack), time.monotonic()
    while sum(shares.jobs.values()) < COMPLETED_JOBS:
        assert time.monotonic() - began < LONGEST_SECONDS, shares
        shares.step()
        time.sleep(STEP_SECONDS)
    print(f"\n{shares.jobs} Jobs, {shares.seconds} GPU seconds in {time.monotonic() - began:.0f} s")
    assert all(shares.jobs[team] < count - GPUS for team, count in JOBS.items()), "a team has no work left"
    for team, weight in WEIGHTS.items():
        fair = weight / sum(WEIGHTS.values()) * sum(shares.seconds.values())
        assert abs(shares.seconds[team] - fair) <= 0.1 * fair, (team, shares)
