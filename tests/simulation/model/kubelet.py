"""Simulates the kubelets and the memory of the pods' processes. A kubelet starts bound pods and ends deleted pods."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agents.node.cgroup import Container
from tenancy.names import Names
from tests.simulation.model.api import Object, Server
from tests.simulation.model.devices import Card, Hardware, Machine
from tests.simulation.model.tenants import Workload, Workloads
from tests.simulation.model.world import World

LOAD_SECONDS = 6.0
MINIMUM_AGE_SECONDS = 120.0  # The watchdog's minimum age of a pod in Pulumi.prod.yaml.
# RETRY_SECONDS is the time from a failed allocation to the container's crash. LONGEST_BACKOFF is the longest wait
# before the container's next start.
RETRY_SECONDS = 5.0
LONGEST_BACKOFF = 300.0


@dataclass
class RunningPod:
    """A pod's process. `short_since` is the time when the process began to lack memory within its budget.

    `up_since` is the time when the pod's container last started. A pod on several devices uses the same amount of
    memory on each of its devices. `card` is the pod's first device, and `beside` has its other devices.
    """

    uid: str
    key: tuple[str, str]
    workload: Workload
    machine: Machine
    card: Card
    pid: int
    started: float
    up_since: float
    loaded: bool = False
    over_mib: int = 0
    crashes: int = 0
    up: bool = True
    short_since: float | None = None
    over_at: float = -1e9
    ends_since: float | None = None
    beside: tuple[Card, ...] = ()

    @property
    def ends(self) -> bool:
        return self.ends_since is not None

    @property
    def cards(self) -> tuple[Card, ...]:
        return (self.card, *self.beside)

    @property
    def used_mib(self) -> int:
        """Returns the MiB that the process uses on the pod's first device."""
        return self.card.uses.get(self.uid, 0)

    def over_mib_on(self, card: Card) -> int:
        """Returns the MiB that the pod uses on the device beyond its budget there."""
        return max(card.uses.get(self.uid, 0) - self.workload.each_mib, 0)

    @property
    def over_budget(self) -> bool:
        return any(self.over_mib_on(card) for card in self.cards)

    @property
    def wanted_mib(self) -> int:
        if not (self.loaded and self.up):
            return 0
        return self.workload.steady_mib + self.over_mib


@dataclass
class Kubelets:
    world: World
    server: Server
    hardware: Hardware
    tenants: Workloads
    names: Names
    running: dict[str, RunningPod] = field(default_factory=dict)
    _starting: set[str] = field(default_factory=set)
    # The actions that wait for a failed node to come back, each with the node's name.
    _left: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    _pids: int = 1000

    def __post_init__(self) -> None:
        self.server.hears.append(self._hear)
        self.hardware.freed = self.freed

    def _hear(self, kind: str, found: Object) -> None:
        if found.get("kind") != "Pod":
            return
        uid, node = found["metadata"]["uid"], found["spec"].get("nodeName")
        if kind == "DELETED":
            self._forget(uid)
        elif node in self.hardware.machines:
            if "deletionTimestamp" in found["metadata"]:
                self._stop(found)
            elif uid not in self.running and uid not in self._starting and self.tenants.of(found):
                self._starting.add(uid)
                workload = self.tenants.of(found)
                self.world.after(workload.pulls if workload else 1.0, lambda: self._start(uid))

    # Starting

    def _start(self, uid: str) -> None:
        self._starting.discard(uid)
        pod = self._pod(uid)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        machine = self.hardware.machines[pod["spec"]["nodeName"]]
        workload = self.tenants.of(pod)
        if workload is None:
            return
        if not machine.alive:
            self._starting.add(uid)
            self._left.append((machine.name, lambda: self._start(uid)))
            return
        annotated = (pod["metadata"].get("annotations") or {}).get(self.names.device_uuid, "")
        cards = tuple(filter(None, map(machine.card, annotated.split(","))))
        card = cards[0] if cards else machine.cards[workload.made % len(machine.cards)]
        self._pids += 1
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        running = RunningPod(uid, key, workload, machine, card, self._pids, self.world.now, self.world.now)
        running.beside = cards[1:]
        running.over_mib = workload.over_mib if workload.lies else 0
        self.running[uid] = running
        self.world.timers.append(self.world.now + MINIMUM_AGE_SECONDS)
        machine.containers[self._pids] = Container(uid, f"{self._pids:064x}")
        self._show(running)
        self._load(running)
        if workload.lives is not None:
            self.world.after(workload.lives * (0.8 + 0.4 * self.world.dice.random()), lambda: self.finish(uid))
        if workload.crashes is not None:
            self.world.after(workload.crashes, lambda: self.crash(running))

    def _show(self, running: RunningPod) -> None:
        pod = self._pod(running.uid)
        if pod is None:
            return
        now = self.server.time().strftime("%Y-%m-%dT%H:%M:%SZ")
        container = {
            "name": "main",
            "containerID": f"containerd://{running.pid:064x}",
            "ready": running.up,
            "state": {"running": {"startedAt": now}} if running.up else {"waiting": {"reason": "CrashLoopBackOff"}},
        }
        began = pod["status"].get("startTime") or now
        status = {"phase": "Running", "startTime": began, "containerStatuses": [container]}
        self.server.put_pod({**pod, "status": status})

    def _load(self, running: RunningPod) -> None:
        def loaded() -> None:
            if self.running.get(running.uid) is running and running.up:
                running.loaded = True
                self.settle(running)

        most = LOAD_SECONDS if running.workload.lives is None else running.workload.lives / 5
        self.world.after(most * (0.5 + self.world.dice.random()), loaded)

    # Memory

    def settle(self, running: RunningPod) -> None:
        """Adjusts the memory of the pod's process to the wanted amount, as far as the device has free memory."""
        if running.uid not in self.running or not running.machine.alive:
            return
        before = running.used_mib
        if running.over_budget:
            running.over_at = self.world.now
        after = running.card.take(running.uid, running.pid, running.wanted_mib)
        for card in running.beside:
            card.take(running.uid, running.pid, running.wanted_mib)
        if after != before:
            self.world.stir()
        if after < before:
            for card in running.cards:
                self.freed(card)
        within = min(running.wanted_mib, running.workload.each_mib)
        short = after < within
        if short and running.short_since is None:
            self.world.see("state: a seat's process lacks memory")
            self.world.say("kubelet", f"{running.workload.name} has {after} of {within} MiB within its seat")
        running.short_since = (running.short_since or self.world.now) if short else None
        if after < running.wanted_mib and running.workload.crashes:
            self.world.after(RETRY_SECONDS, lambda: self.crash(running))

    def freed(self, card: Card) -> None:
        for each in self.running.values():
            if card in each.cards and each.used_mib < each.wanted_mib:
                self.world.after(1.0, lambda each=each: self.settle(each))  # type: ignore[misc]

    def crash(self, running: RunningPod) -> None:
        """Ends the container, and restarts it after a backoff."""
        if self.running.get(running.uid) is not running or not running.up or not running.workload.crashes:
            return
        self.world.see("state: a container crashed")
        self.stop_process(running)
        running.crashes += 1
        backoff = min(10.0 * 2 ** (running.crashes - 1), LONGEST_BACKOFF)
        self.world.after(backoff, lambda: self.start_process(running))

    def stop_process(self, running: RunningPod) -> None:
        if running.over_budget:
            running.over_at = self.world.now
        running.up = running.loaded = False
        running.short_since = None
        running.over_mib = running.workload.over_mib if running.workload.lies else 0
        self._show(running)
        for card in running.cards:
            if card.release(running.uid):
                self.world.stir()
                self.freed(card)

    def start_process(self, running: RunningPod) -> None:
        if self.running.get(running.uid) is not running or running.up or not running.machine.alive:
            return
        self._pids += 1
        running.pid, running.up, running.up_since = self._pids, True, self.world.now
        running.machine.containers[self._pids] = Container(running.uid, f"{self._pids:064x}")
        self._show(running)
        self._load(running)
        if running.workload.crashes is not None:
            self.world.after(running.workload.crashes, lambda: self.crash(running))

    def come_back(self, node: str) -> None:
        """Carries out the waiting actions of a node that works again."""
        due = [act for name, act in self._left if name == node]
        self._left = [each for each in self._left if each[0] != node]
        for act in due:
            act()

    # Ending

    def _stop(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        running = self.running.get(uid)
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        if running is None:
            if uid not in self._starting:
                self._starting.discard(uid)
            self.world.after(0.5, lambda: self._end(uid))
            return
        # If a pod was deleted several times, the shortest grace period counts.
        running.ends_since = self.world.now if running.ends_since is None else running.ends_since
        self.world.after(min(running.workload.drains, grace), lambda: self._end(uid))

    def _end(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is None:
            return
        machine = self.hardware.machines.get(pod["spec"].get("nodeName", ""))
        if machine is not None and not machine.alive:
            self._left.append((machine.name, lambda: self._end(uid)))
            return
        self.server.remove_pod((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def finish(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is not None and uid in self.running:
            self._forget(uid)
            self.server.put_pod({**pod, "status": {**pod["status"], "phase": "Succeeded"}})

    def _forget(self, uid: str) -> None:
        if self.running.pop(uid, None):
            self.hardware.release(uid)
            self.world.stir()

    def _pod(self, uid: str) -> Object | None:
        return next((pod for pod in self.server.pods.values() if pod["metadata"]["uid"] == uid), None)

    def of(self, workload: Workload) -> list[RunningPod]:
        return [each for each in self.running.values() if each.workload is workload]
