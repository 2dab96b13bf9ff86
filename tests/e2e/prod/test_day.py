"""Simulates the day of record 0000 on a real node, with prod's settings and a real Prometheus (`make day`).

The fake NVML reports the GPU memory of the tenants' processes, and kills a process that allocates too much. Each test
starts in the state that the last test has left. All tests take about 15 minutes.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from components.agents.gate import GateSpec
from tenancy import names
from tests.support.e2e.prometheus import Prometheus, prometheus
from tests.support.e2e.real_gpu import real_gpu
from tests.support.e2e.rollout import GPUMEM, SYSTEM, Object, Rollout, condition, pods
from tests.support.waiting import becomes, eventually
from toolchain.cluster.api import wait_until
from toolchain.cluster.background import call_repeatedly
from toolchain.cluster.card import TOTAL_MIB, TURN_SECONDS, Card, deployment
from toolchain.cluster.prod import NIGHT_MIB, STEADY_MIB, TTS_MIB, budgets, deployment_of, tenant_of

pytestmark = pytest.mark.day

T4 = "/api/v1/nodes/k8s-node1"
FLOOR_MIB = 1536
# LEAK_MIB is the growth of a leak at each call of `Card.turn`. BURST_MIB is the size of a sudden leak.
LEAK_MIB, BURST_MIB = 50, TOTAL_MIB
# The exporter reads the device every 5 s.
READING_SECONDS = 8
LENT_SECONDS = 30
ALERT_SECONDS = 240


@dataclass(kw_only=True)
class Day(Card):
    prod: Rollout
    alerts: Prometheus
    began: float = field(default_factory=time.monotonic)
    table: list[tuple[str, str, float]] = field(default_factory=list)

    def pod(self, app: str) -> Object | None:
        for found in self.prod.items(f"{pods(tenant_of(app))}?labelSelector=app%3D{app}"):
            if "deletionTimestamp" not in found["metadata"]:
                return found
        return None

    def uids(self) -> dict[str, str]:
        return {app: found["metadata"]["uid"] if (found := self.pod(app)) else "" for app in STEADY_MIB}

    def all_hold(self) -> bool:
        return all(self.holds(app) == mib for app, mib in STEADY_MIB.items())

    def replicas(self, app: str) -> int:
        return int(self.prod.get(deployment_of(app))["spec"]["replicas"])

    def scale(self, app: str, replicas: int) -> None:
        self.prod.cluster.api.patch(f"{deployment_of(app)}/scale", {"spec": {"replicas": replicas}})

    def took(
        self, cause: str, cure: str, cured: Callable[[], Any], *, since: float, seconds: float = ALERT_SECONDS
    ) -> Any:
        found = wait_until(cured, seconds, f"{cause}: {cure}", lambda: (self.held, self.died, self.alerts.since))
        self.table.append((cause, cure, time.monotonic() - since))
        print(f"\n{cause} | {cure} | {self.table[-1][2]:.1f}", flush=True)
        return found

    def fires(self, cause: str, alert: str, *, since: float) -> None:
        wait_until(
            lambda: alert in self.alerts.since, ALERT_SECONDS, f"{cause}: {alert} fires", lambda: self.alerts.since
        )
        self.table.append((cause, f"`{alert}` fires", self.alerts.since[alert] - since))
        print(f"\n{cause} | {alert} fires | {self.table[-1][2]:.1f}", flush=True)


@pytest.fixture(scope="module")
def day(prod: Rollout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    played = prod.get(T4)
    with real_gpu(prod) as script:
        prod.delete(T4)
        for orphan in prod.items("/api/v1/pods?fieldSelector=spec.nodeName%3Dk8s-node1"):
            place = pods(orphan["metadata"]["namespace"], orphan["metadata"]["name"])
            prod.cluster.api.request("DELETE", f"{place}?gracePeriodSeconds=0")
        try:
            with prometheus(prod, tmp_path_factory.mktemp("prometheus")) as alerts:
                found = Day(prod=prod, script=script, alerts=alerts, wants={**STEADY_MIB, "tts": TTS_MIB})
                with call_repeatedly(found.turn, TURN_SECONDS), residing(found):
                    yield found
                for row in found.table:
                    print("| {} | {} | {:.0f} |".format(*row))
                print(f"alerts seen: {sorted(found.alerts.seen)}; died: {found.died}")
        finally:
            metadata = {field: played["metadata"][field] for field in ("name", "labels", "annotations")}
            hardware = {k: v for k, v in played["status"]["capacity"].items() if not k.startswith("viktorbarzin.me/")}
            status = {"capacity": hardware, "allocatable": hardware}
            made = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
            prod.cluster.api.create("/api/v1/nodes", made)
    becomes(lambda: prod.capacity("k8s-node1").get(GPUMEM), "14k", "the played node is advertised again")


@contextmanager
def residing(day: Day) -> Iterator[None]:
    api, made = day.prod.cluster.api, []
    try:
        for app, mib in (budgets() | {"tts": None}).items():
            api.create(
                deployment_of(app).rpartition("/")[0],
                deployment(app, {GPUMEM: str(mib)} if mib else {}, replicas=1 if mib else 0),
            )
            made.append(deployment_of(app))
        yield
    finally:
        for path in made:
            api.request("DELETE", f"{path}?propagationPolicy=Foreground")
        eventually(lambda: not any(map(api.get, made)), "the workloads are gone")


def test_the_five_residents_load_to_their_steady_use(day: Day) -> None:
    day.took("the five residents are created", "all hold their steady use", day.all_hold, since=day.began)
    assert day.died == []


def test_the_gate_starts_tts_at_night(day: Day) -> None:
    left = GateSpec().starting_seconds - (time.monotonic() - day.began)
    assert day.replicas("tts") == 0
    time.sleep(max(left, 0))
    assert day.replicas("tts") == 0
    began = time.monotonic()
    day.wants["immich-ml"] = NIGHT_MIB
    day.took(
        "immich-ml unloads its models", "tts is let in and loaded", lambda: day.holds("tts") == TTS_MIB, since=began
    )


def test_llama_swap_comes_back_while_tts_is_in_and_all_others_are_at_their_budgets(day: Day) -> None:
    cause = "llama-swap comes back while tts is in and the others are at their budgets"
    day.scale("llama-swap", 0)
    eventually(lambda: day.holds("llama-swap") == 0, "its old process has ended")
    day.wants |= budgets()
    time.sleep(READING_SECONDS)
    assert day.free_mib < budgets()["llama-swap"]
    assert day.replicas("tts") == 1
    day.scale("llama-swap", 1)
    eventually(lambda: day.pod("llama-swap"), "its new pod is made")
    day.wants["llama-swap"] = STEADY_MIB["llama-swap"]
    began = time.monotonic()

    def placed() -> Object | None:
        found = day.pod("llama-swap")
        return found if found and found["spec"].get("nodeName") else None

    found = day.took(cause, "it is placed", placed, since=began)
    day.took(cause, "it is loaded", lambda: day.holds("llama-swap") == STEADY_MIB["llama-swap"], since=began)
    made = datetime.fromisoformat(found["metadata"]["creationTimestamp"])
    bound = datetime.fromisoformat(condition(found, "PodScheduled")["lastTransitionTime"])
    assert (bound - made).total_seconds() <= LENT_SECONDS
    eventually(lambda: day.holds("tts") == 0, "tts is out")
    assert day.free_mib >= FLOOR_MIB
    assert day.died == []


def test_frigate_leaks_over_its_budget_and_nobody_else_suffers(day: Day) -> None:
    before, cause = day.uids(), "frigate leaks and the device is under its floor"
    day.wants |= STEADY_MIB
    eventually(day.all_hold, "all are at their steady use")
    day.leak("frigate", LEAK_MIB)
    eventually(lambda: day.free_mib < FLOOR_MIB, "the device is under its floor")
    began = time.monotonic()
    day.took(cause, "frigate is recycled", lambda: day.uids()["frigate"] != before["frigate"], since=began)
    day.took(cause, "the floor is free again", lambda: day.free_mib >= FLOOR_MIB, since=began)
    day.took(cause, "frigate is loaded again", day.all_hold, since=began)
    day.fires(cause, "GpuPodRecycled", since=began)
    assert day.uids() | {"frigate": ""} == before | {"frigate": ""}
    assert day.died == []
    recycled = day.prod.events("frigate", names.EVENT_RECYCLED)
    assert [event["regarding"]["uid"] for event in recycled] == [before["frigate"]]


def test_a_leak_that_may_not_be_evicted_is_reported_and_a_seat_is_placed_all_the_same(day: Day) -> None:
    cause = "immich-ml leaks, and the watchdog has no right to evict it"
    before, path = day.uids(), "/apis/rbac.authorization.k8s.io/v1/namespaces/immich/rolebindings"
    binding = day.prod.get(f"{path}/{names.WATCHDOG}")
    day.prod.delete(f"{path}/{names.WATCHDOG}")
    began = time.monotonic()
    day.leak("immich-ml", BURST_MIB)
    told = lambda: day.prod.events("immich", names.EVENT_BLOCKED)  # noqa: E731
    day.took(cause, "an Event on it says what keeps it", told, since=began)
    restarted = "portal-stt is restarted where another holds its memory"
    day.prod.delete(pods("portal-stt", str((day.pod("portal-stt") or {})["metadata"]["name"])))
    eventually(lambda: day.uids()["portal-stt"] not in ("", before["portal-stt"]), "its new pod is made")
    made = time.monotonic()
    day.took(
        restarted,
        "it is placed all the same",
        lambda: (day.pod("portal-stt") or {}).get("spec", {}).get("nodeName"),
        since=made,
    )
    day.fires(restarted, "GpuSeatOvercrowded", since=made)
    day.fires(cause, "GpuMemoryBelowFloor", since=began)
    assert day.uids()["immich-ml"] == before["immich-ml"]
    cause, began = "the watchdog has its right again", time.monotonic()
    metadata = {"name": names.WATCHDOG, "labels": binding["metadata"]["labels"]}
    day.prod.cluster.api.create(path, {**binding, "metadata": metadata})
    day.took(cause, "immich-ml is recycled", lambda: day.uids()["immich-ml"] != before["immich-ml"], since=began)
    day.took(cause, "all hold their steady use", day.all_hold, since=began)
    # The device of portal-stt has too little measured free memory.
    assert set(day.died) <= {"portal-stt"}
    day.died.clear()
    kept = {"frigate", "llama-swap", "immich-server"}
    assert {app: day.uids()[app] for app in kept} == {app: before[app] for app in kept}


@contextmanager
def frozen(day: Day) -> Iterator[None]:
    stopped: set[int] = set()
    try:
        while more := set(below(day.prod.cluster.pid_of("node"))) - stopped:
            for pid in more:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= more
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def below(holder: int) -> Iterator[int]:
    yield holder
    with suppress(FileNotFoundError, ProcessLookupError):
        for children in Path(f"/proc/{holder}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                yield from below(child)


def last_success(day: Day, agent: str) -> str:
    found = day.prod.get(f"/apis/batch/v1/namespaces/{SYSTEM}/cronjobs/{agent}")
    return str(found["status"].get("lastSuccessfulTime"))


def test_the_node_of_the_agents_is_gone_for_minutes(day: Day) -> None:
    before, cause = day.uids(), "the agents' node is gone"
    began = time.monotonic()
    with frozen(day):
        for alert in ("GpuTelemetryMissing", "GpuSchedulerDown", "GpuAgentSilent"):
            day.fires(cause, alert, since=began)
        last = last_success(day, names.WATCHDOG)
    cause, began = "the node is back", time.monotonic()
    day.took(cause, "a run of the watchdog succeeds", lambda: last_success(day, names.WATCHDOG) != last, since=began)
    gone = {"GpuTelemetryMissing", "GpuSchedulerDown", "GpuAgentSilent"}
    day.took(cause, "the alerts have gone", lambda: not gone & day.alerts.since.keys(), since=began)
    assert day.uids() == before
    assert day.all_hold()
    assert day.died == []
    assert day.alerts.seen == gone | {"GpuPodRecycled", "GpuSeatOvercrowded", "GpuMemoryBelowFloor"}
