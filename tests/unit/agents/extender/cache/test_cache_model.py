"""Compares the extender's cache with a model of the cluster after random events.

The events reach the cache late, but in order. Hypothesis finds the shortest sequence of events that fails.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, repeat

from hypothesis import given
from hypothesis import strategies as st

from agents.extender.cache.cache import LOST_SECONDS, MEASURED_SECONDS, RESERVE_SECONDS, SHOWN_SECONDS, Cache
from agents.extender.cache.drift import Drift, drift_of
from agents.extender.cache.inventory import NodeDevices
from agents.extender.cache.pod_info import Entitlement, PodInfo, PodState, PodWithoutGpu
from tenancy.devices.allocate import MemoryRequest, Scoring
from tests.support import search
from tests.support.devices import bound, inventory, nominee

NODES = ("A", "B")
SIZES = (0, 3, 4, 6)


@dataclass
class World:
    choices: Iterator[int]
    now: float = 0.0
    scoring: Scoring = field(init=False)
    cache: Cache = field(init=False)
    nodes: dict[str, NodeDevices] = field(default_factory=dict)
    pods: dict[str, PodInfo] = field(default_factory=dict)
    pods_without_gpu: dict[str, PodWithoutGpu] = field(default_factory=dict)
    waiting: dict[str, MemoryRequest] = field(default_factory=dict)
    binding: dict[str, PodInfo] = field(default_factory=dict)
    unsettled: list[str] = field(default_factory=list)
    news: deque[Callable[[], None]] = field(default_factory=deque)
    born: int = 0
    heard: float = 0.0

    def __post_init__(self) -> None:
        self.scoring = (*Scoring,)[self.pick(len(Scoring))]
        self.cache = Cache(self.scoring)
        for name in NODES:
            self._set_node(replace(inventory(name, 4, 6), cpu_milli=9))

    def pick(self, count: int) -> int:
        return next(self.choices) % count

    def step(self) -> None:
        operations = (
            *(self.wait, self.create, self.schedule, self.schedule, self.bound, self.bound, self.settle, self.settle),
            *(self.failed, self.hear, self.hear, self.delete, self.gone, self.ended, self.change_node, self.relist),
            *(self.restart, self.measure, self.bind_by_hand, self.bind_bystander, self.audit, self.nominate),
        )
        self.now += 0.001
        operations[self.pick(len(operations))]()

    # The events in the model.

    def wait(self) -> None:
        later = self.now + (0.0, 1.0, RESERVE_SECONDS / 2, RESERVE_SECONDS, MEASURED_SECONDS)[self.pick(5)]
        if later - self.heard > LOST_SECONDS / 2:  # no answer of the API and no event is later than this
            self.hear_all()
            self.heard = later
        self.now = later

    def create(self) -> None:
        self.born += 1
        self.waiting[f"pod-{self.born}"] = MemoryRequest(1 + self.pick(5), 1 + self.pick(2), self.pick(3))

    def schedule(self) -> None:
        uid = self._one_of(self.waiting)
        if uid is None:
            return
        request = self.waiting[uid]
        entitled = Entitlement(self.pick(2), frozenset({"t4"} if self.pick(2) else ()))
        by_ledger = bool(self.pick(2))
        nominated = self.cache.nominated_node(uid, self.now)
        fits = self.cache.fit(uid, request, NODES, self.now, entitled, by_ledger=by_ledger)
        assert len(fits.nodes) == 1 or {*fits.refused, *fits.hopeless} == set(NODES)
        again = self.cache.fit(uid, request, NODES, self.now, entitled, by_ledger=by_ledger)
        # with its reservation, a pod gives up its turn among nominated pods
        assert again == fits or nominated
        outcomes = self.pick(4)
        if not fits.nodes or outcomes == 0:
            return
        node = fits.nodes[0] if outcomes > 1 else NODES[self.pick(len(NODES))]
        chosen = self.cache.assume(uid, request, node, self.now, entitled).pod
        if chosen is not None:
            del self.waiting[uid]
            self.binding[uid] = replace(bound(uid, node, request.mib, *(chosen.indices or ())), uuids=chosen.uuids)
            self._check_sizes(node, chosen)

    def bound(self) -> None:
        uid = self._one_of(self.binding)
        if uid is not None:
            self.pods[uid] = self.binding.pop(uid)
            self.unsettled.append(uid)
            self._tell(uid)

    def settle(self) -> None:
        uid = self._one_of(self.unsettled)
        if uid is not None:
            self.unsettled.remove(uid)
            self.cache.finish_binding(uid, self.now)

    def failed(self) -> None:
        uid = self._one_of(self.binding)
        if uid is not None:
            self.waiting[uid] = self.binding.pop(uid).request
            self.cache.forget(uid, self.now)

    def hear(self) -> None:
        if self.news:
            self.news.popleft()()

    def delete(self) -> None:
        uid = self._one_of(self.pods)
        if uid is not None:
            self.pods[uid] = replace(self.pods[uid], state=PodState.TERMINATING)
            self._tell(uid)
        elif self.waiting:
            uid = next(iter(self.waiting))
            del self.waiting[uid]
            self.cache.remove_pod(uid)

    def gone(self) -> None:
        self.end(self._one_of([uid for uid, pod in self.pods.items() if pod.state is PodState.TERMINATING]))

    def ended(self) -> None:
        self.end(self._one_of(self.pods))

    def change_node(self) -> None:
        name = NODES[self.pick(len(NODES))]
        what = self.pick(6)
        before = self.nodes.get(name)
        if what == 0:
            self.nodes.pop(name, None)
            self.cache.remove_node(name)
        elif what == 1:
            self._set_node(NodeDevices(node=name, pool="t4", unusable="its devices are not published"))
        elif what == 2 and before and before.devices:
            ailing = self.pick(len(before.devices))
            devices = tuple(
                replace(device, healthy=not device.healthy) if device.index == ailing else device
                for device in before.devices
            )
            self._set_node(replace(before, devices=devices))
        elif what == 3 and before:
            devices = tuple(replace(device, index=index) for index, device in enumerate(reversed(before.devices)))
            self._set_node(replace(before, devices=devices))
        else:
            self._set_node(inventory(name, *(SIZES[self.pick(len(SIZES))] for _ in range(1 + self.pick(3)))))

    def relist(self) -> None:
        self.news.clear()
        self.cache.replace(self.nodes.values(), (*self.pods.values(), *self.pods_without_gpu.values()), self.now)

    def restart(self) -> None:
        for uid, pod in self.binding.items():
            if self.pick(2):
                self.pods[uid] = pod
            else:
                self.waiting[uid] = pod.request
        self.binding.clear()
        self.unsettled.clear()
        self.cache = Cache(self.scoring)
        self.relist()

    def audit(self) -> Drift:
        self.cache.learn()
        return drift_of(self.cache.snapshot())

    def measure(self) -> None:
        name = NODES[self.pick(len(NODES))]
        self.cache.measure(name, {0: self.pick(7), 1: self.pick(7)}, self.now)

    def nominate(self) -> None:
        uid = self._one_of(self.waiting)
        if uid is not None and (what := self.pick(4)):
            node, request = NODES[self.pick(len(NODES))], self.waiting[uid]
            nomination = nominee(uid, node, request, self.pick(2))
            tell = self.cache.retain if what == 1 else self.cache.nominate
            tell(nomination, self.now)
        elif uid is not None:
            self.cache.withdraw(uid, self.now)

    def bind_by_hand(self) -> None:
        self.born += 1
        uid = f"hand-{self.born}"
        self.pods[uid] = bound(uid, NODES[self.pick(len(NODES))], 1 + self.pick(5))
        self._tell(uid)

    def bind_bystander(self) -> None:
        uid, node = f"pod_without_gpu-{self.pick(3)}", NODES[self.pick(len(NODES))]
        if uid in self.pods_without_gpu:
            del self.pods_without_gpu[uid]
            self.news.append(lambda: self.cache.remove_pod(uid))
        else:
            self.pods_without_gpu[uid] = pod = PodWithoutGpu(uid=uid, node=node, cpu_milli=self.pick(4))
            self.news.append(lambda: self.cache.update_pod(pod))

    def hear_all(self) -> None:
        while self.binding:
            self.bound()
        while self.unsettled:
            self.settle()
        while self.news:
            self.hear()

    def come_to_rest(self) -> None:
        self.hear_all()
        for uid in self.waiting:
            self.cache.withdraw(uid, self.now)
        self.now += SHOWN_SECONDS
        self.audit()
        self.cache.fit("nobody", MemoryRequest(1000), NODES, self.now)

    def rebuilt(self) -> Cache:
        found = Cache()
        found.replace(self.nodes.values(), (*self.pods.values(), *self.pods_without_gpu.values()), self.now)
        return found

    def _one_of(self, uids: object) -> str | None:
        found = sorted(uids)  # type: ignore[call-overload]
        return found[self.pick(len(found))] if found else None

    def _set_node(self, devices: NodeDevices) -> None:
        self.nodes[devices.node] = devices
        self.cache.update_node(devices)

    def _tell(self, uid: str) -> None:
        pod = self.pods[uid]
        self.news.append(lambda: self.cache.update_pod(pod))

    def end(self, uid: str | None) -> None:
        if uid is not None:
            del self.pods[uid]
            self.news.append(lambda: self.cache.remove_pod(uid))

    def _check_sizes(self, node: str, chosen: PodInfo) -> None:
        sizes = {device.uuid: device.offered_mib for device in self.nodes[node].devices}
        for uuid in chosen.uuids or ():
            held = [
                pod.request.mib for pod in (*self.pods.values(), *self.binding.values()) if uuid in (pod.uuids or ())
            ]
            assert sum(held) <= sizes[uuid], (uuid, held)


def usage(cache: Cache) -> list[object]:
    nodes = cache.snapshot()
    return [(node.node, node.inventory, node.devices, node.adrift, node.cpu_milli) for node in nodes]


@search.examples(100, soak=100_000)
@given(st.binary(min_size=90, max_size=240))
def test_no_history_overbooks_a_device_leaks_memory_or_makes_a_restart_differ(history: bytes) -> None:
    world = World(chain(history, repeat(0)))
    for _ in range(len(history) // 3):
        world.step()
    world.come_to_rest()
    assert usage(world.cache) == usage(world.rebuilt())
    assert world.audit() == drift_of(world.rebuilt().snapshot())
    for uid in [*world.pods]:
        world.end(uid)
    for uid in [*world.pods_without_gpu]:
        world.cache.remove_pod(uid)
    world.pods_without_gpu.clear()
    world.come_to_rest()
    assert usage(world.cache) == usage(world.rebuilt())
    assert all(
        device.room_mib == device.mib * device.healthy for node in world.cache.snapshot() for device in node.devices
    )
    assert {name: kept for name, kept in vars(world.cache).items() if kept and name in REMEMBERED} == {}


# These fields must be empty in a cluster without pods.
REMEMBERED = ("_pods", "_on", "_ends")
