"""The day of record 0000 on the real node, with prod's own settings: what each tenant's processes hold is what the
fake NVML shows, and a process that asks for more than is left dies of it, as under CUDA.

Each test is an hour of the day and goes on from the one before.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tenancy import names
from tests.e2e.prod.real_gpu import MIB, TOTAL_MIB, UUID, real_gpu
from tests.e2e.rollout import GPUMEM, Object, Rollout, becomes, eventually, pods
from tests.support.prod import raw
from toolchain.cluster import node
from toolchain.cluster.image import agent_image
from toolchain.cluster.paths import program

T4 = "/api/v1/nodes/k8s-node1"
TURN_SECONDS = 0.5
# What the driver keeps, and android-emulator, which is no pod here.
REST_MIB = 450 + 154
# What the residents hold all day, by app: about 11 GiB with the rest. At night immich-ml has unloaded its models.
STEADY_MIB = {"immich-ml": 2100, "llama-swap": 4350, "frigate": 1900, "immich-server": 1200, "portal-stt": 1400}
NIGHT_MIB = 600
TTS_MIB = 2048
LEAK_MIB = 400
STARTING_SECONDS = 240
LENT_SECONDS = 30  # from a seat's creation to its being placed, where our own gates lent its memory


def deployment(app: str, mib: int | None, replicas: int) -> dict[str, Any]:
    """It holds what the card's script says of the app."""
    container = {
        "name": "model",
        "image": agent_image(),
        "command": ["python", "-IS", "-c", "import signal; signal.pause()", f"day:{app}"],
        **({"resources": {"limits": {GPUMEM: str(mib)}}} if mib else {}),
    }
    labels = {"app": app}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node.NODE},
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
    }
    return {
        "metadata": {"name": app},
        "spec": {
            "replicas": replicas,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


@dataclass
class Day:
    """The card and who holds it. `wants` is what an app's process goes for, MiB; `leaks` grow without end."""

    prod: Rollout
    shown: Path
    wants: dict[str, int] = field(default_factory=dict)
    leaks: set[str] = field(default_factory=set)
    held: dict[int, int] = field(default_factory=dict)
    died: list[str] = field(default_factory=list)

    @property
    def free_mib(self) -> int:
        return TOTAL_MIB - REST_MIB - sum(self.held.values())

    def turn(self) -> None:
        found = dict(processes())
        self.held = {pid: mib for pid, mib in self.held.items() if pid in found}
        for pid, (app, on_host) in found.items():
            mib = self.held.get(pid, 0)
            leaks = app in self.leaks and pid in self.held
            more = LEAK_MIB if leaks else self.wants.get(app, 0) - mib
            if more > max(self.free_mib, 0):
                self.died.append(app)
                self.held.pop(pid, None)
                with suppress(ProcessLookupError):
                    os.kill(on_host, signal.SIGKILL)
            else:
                self.held[pid] = mib + more
        used_mib = TOTAL_MIB - self.free_mib
        lines = [f"0\ndevice {UUID} {TOTAL_MIB * MIB} {self.free_mib * MIB} {used_mib * MIB}"]
        lines += [f"compute {pid} {mib * MIB}" for pid, mib in self.held.items()]
        new = self.shown.with_suffix(".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(self.shown)

    def pod(self, app: str) -> Object | None:
        """The app's pod that does not terminate."""
        for found in self.prod.items(f"{pods(tenant_of(app))}?labelSelector=app%3D{app}"):
            if "deletionTimestamp" not in found["metadata"]:
                return found
        return None

    def holds(self, app: str) -> int:
        return sum(self.held.get(pid, 0) for pid, (found, _) in processes() if found == app)

    def replicas(self, app: str) -> int:
        found = self.prod.get(f"/apis/apps/v1/namespaces/{tenant_of(app)}/deployments/{app}")
        return int(found["spec"]["replicas"])


def tenant_of(app: str) -> str:
    config = raw()
    declared = config["residents"].get(app) or config["on_demand"][app]
    return str(declared["tenant"])


def processes() -> Iterator[tuple[int, tuple[str, int]]]:
    """Of each workload: its process by the node's number, which NVML shows; the app, and this machine's number."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            *_, last = (folder / "cmdline").read_text().rstrip("\0").split("\0")
            if last.startswith("day:"):
                (line,) = (x for x in (folder / "status").read_text().splitlines() if x.startswith("NSpid:"))
                *_, on_the_node, _ = line.split()
                yield int(on_the_node), (last.removeprefix("day:"), int(folder.name))


@pytest.fixture(scope="module")
def day(prod: Rollout) -> Iterator[Day]:
    """Only the real node is in the pool: of the one that is played nobody would know what its device holds."""
    api, played = prod.cluster.api, prod.get(T4)
    ended = threading.Event()
    config = raw()
    with real_gpu(prod) as shown:
        found = Day(prod, shown)
        prod.delete(T4)

        def keep_turning() -> None:
            while not ended.wait(TURN_SECONDS):
                found.turn()

        thread = threading.Thread(target=keep_turning)
        thread.start()
        made = []
        try:
            found.wants = {**STEADY_MIB, "tts": TTS_MIB}
            apps = {app: config["residents"][app]["gpumem_mib"] for app in STEADY_MIB} | {"tts": None}
            for app, mib in apps.items():
                collection = f"/apis/apps/v1/namespaces/{tenant_of(app)}/deployments"
                api.create(collection, deployment(app, mib, replicas=0 if mib is None else 1))
                made.append(f"{collection}/{app}")
            yield found
        finally:
            for path in made:
                api.request("DELETE", f"{path}?propagationPolicy=Foreground")
            eventually(lambda: not any(map(api.get, made)), "the workloads are gone")
            ended.set()
            thread.join()
            metadata = {field: played["metadata"][field] for field in ("name", "labels", "annotations")}
            hardware = {k: v for k, v in played["status"]["capacity"].items() if not k.startswith("viktorbarzin.me/")}
            status = {"capacity": hardware, "allocatable": hardware}
            api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})
    becomes(lambda: prod.capacity("k8s-node1").get(GPUMEM), "14k", "the played node is advertised again")


def took(cause: str, cure: Callable[[], Any], what: str) -> float:
    """Seconds until the cure shows."""
    began = time.monotonic()
    eventually(cure, what)
    seconds = time.monotonic() - began
    print(f"{cause}: {what} after {seconds:.0f} s")
    return seconds


def test_the_five_residents_load_to_their_steady_use(day: Day) -> None:
    took("morning", lambda: all(day.holds(app) == mib for app, mib in STEADY_MIB.items()), "all five are loaded")
    assert day.died == []


def test_tts_is_let_in_by_night(day: Day) -> None:
    day.wants["immich-ml"] = NIGHT_MIB
    time.sleep(STARTING_SECONDS)  # so long the gate keeps the whole budgets of pods that have just started
    took("immich-ml has unloaded", lambda: day.holds("tts") == TTS_MIB, "tts is let in")


def test_llama_swap_comes_back_while_tts_is_in(day: Day) -> None:
    """immich-ml is awake again, so that with tts in there is room for llama-swap, and no floor."""
    day.wants["immich-ml"] = STEADY_MIB["immich-ml"]
    eventually(lambda: day.holds("immich-ml") == STEADY_MIB["immich-ml"], "immich-ml is awake")
    old = str((day.pod("llama-swap") or {})["metadata"]["name"])
    day.prod.delete(pods("llama-swap", old))

    def placed() -> Object | None:
        found = day.pod("llama-swap")
        return found if found and found["metadata"]["name"] != old and found["spec"].get("nodeName") else None

    found = eventually(placed, "llama-swap is placed")
    made = datetime.fromisoformat(found["metadata"]["creationTimestamp"])
    (bound,) = (c["lastTransitionTime"] for c in found["status"]["conditions"] if c["type"] == "PodScheduled")
    assert (datetime.fromisoformat(bound) - made).total_seconds() <= LENT_SECONDS
    took("llama-swap was restarted", lambda: day.holds("llama-swap") == STEADY_MIB["llama-swap"], "it is loaded")
    took("llama-swap was restarted", lambda: day.replicas("tts") == 0, "tts is put out")
    assert "llama-swap" not in day.died


def test_frigate_leaks_over_its_budget_and_nobody_else_suffers(day: Day) -> None:
    others = [app for app in STEADY_MIB if app != "frigate"]
    before = {app: (day.pod(app) or {})["metadata"]["uid"] for app in STEADY_MIB}
    day.leaks.add("frigate")
    eventually(lambda: day.free_mib < 1536, "the device is under its floor")

    def evicted() -> bool:
        found = day.pod("frigate")
        return found is not None and found["metadata"]["uid"] != before["frigate"]

    took("the floor was passed", evicted, "frigate is recycled")
    day.leaks.clear()
    took("frigate was recycled", lambda: day.holds("frigate") == STEADY_MIB["frigate"], "it is loaded again")
    assert {app: (day.pod(app) or {})["metadata"]["uid"] for app in others} == {app: before[app] for app in others}
    assert not set(day.died) & set(others)
    recycled = day.prod.events("frigate", names.EVENT_RECYCLED)
    assert [event["regarding"]["uid"] for event in recycled] == [before["frigate"]]


def test_all_outlive_the_kubelet_of_their_node(day: Day) -> None:
    before = {app: (day.pod(app) or {})["metadata"]["uid"] for app in STEADY_MIB}
    kubelet = program("kubelet")
    old = day.prod.cluster.pid_on_node(kubelet)
    os.kill(old, signal.SIGKILL)
    took("the kubelet was killed", lambda: day.prod.cluster.pid_on_node(kubelet) != old, "another runs")
    took(
        "the kubelet was killed", lambda: day.prod.capacity(node.NODE).get(GPUMEM) == "14k", "its memory is advertised"
    )
    assert {app: (day.pod(app) or {})["metadata"]["uid"] for app in STEADY_MIB} == before
    assert {app: day.holds(app) for app in STEADY_MIB} == STEADY_MIB
