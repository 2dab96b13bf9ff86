"""Tests that every seat finds a device, in whatever order pods arrive, end and restart."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from agents.extender.cache.cache import RESERVE_SECONDS, Cache
from agents.extender.cache.inventory import NodeDevice, NodeDevices
from agents.extender.cache.pod_info import Entitlement, PodInfo, PodState
from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger, Pool, Seat
from tests.support import search
from tests.support.devices import feasible, victims
from tests.support.seat_orders import Stack, Wanted, drawn, fits

_TENANTS = 3


def tenant(seat: object) -> str:
    return f"tenant-{seat % _TENANTS}" if isinstance(seat, int) else "guests"


def ledger_of(stack: Stack, tenants: int = _TENANTS) -> Ledger:
    mib = max(max(node) for node in stack.nodes)
    pool = Pool(name="t4", node_selector={}, nodes=len(stack.nodes), device_count=8, memory_mib=mib)
    seats = [
        Seat(name=f"seat-{n}", tenant=tenant(n % tenants), pool="t4", gpumem_mib=each.mib, devices_per_pod=each.devices)
        for n, each in enumerate(stack.seats)
    ]
    return Ledger(domain="example.com", pools=(pool,), seats=tuple(seats))


@dataclass
class Cluster:
    stack: Stack
    cache: Cache = field(init=False)
    now: float = 0.0
    lost: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.restart()

    @property
    def names(self) -> list[str]:
        return [f"node-{number}" for number in range(len(self.stack.nodes))]

    def restart(self) -> None:
        self.cache = Cache()
        self.cache.promise(ledger_of(self.stack))
        self.relist()

    def relist(self) -> None:
        self.cache.replace([self.devices(n) for n in range(len(self.stack.nodes))], self.pods(), self.now)

    def devices(self, number: int) -> NodeDevices:
        devices = [
            NodeDevice(index, f"GPU-{number}-{index}", mib, healthy=(number, index) not in self.lost)
            for index, mib in enumerate(self.stack.nodes[number])
        ]
        return NodeDevices(node=f"node-{number}", pool="t4", devices=tuple(devices))

    def pods(self) -> Iterator[PodInfo]:
        for seat, (wanted, number, chosen) in self.stack.places.items():
            yield PodInfo(
                uid=str(seat),
                namespace=tenant(seat),
                name=str(seat),
                node=f"node-{number}",
                request=MemoryRequest(wanted.mib, wanted.devices),
                indices=chosen,
            )

    def arrive(self, seat: object, wanted: Wanted) -> bool:
        nodes = self.filter(seat, wanted)
        if not nodes:
            return False
        request = MemoryRequest(wanted.mib, wanted.devices)
        pod = self.cache.assume(str(seat), request, nodes[0], self.now, self.entitlement(seat)).pod
        assert pod is not None
        assert pod.indices is not None
        self.stack.places[seat] = (wanted, int(pod.node.removeprefix("node-")), pod.indices)
        self.cache.update_pod(replace(pod, state=PodState.BOUND, ends=None, name=str(seat)))
        return True

    def filter(self, seat: object, wanted: Wanted) -> tuple[str, ...]:
        request = MemoryRequest(wanted.mib, wanted.devices)
        return self.cache.fit(str(seat), request, self.names, self.now, self.entitlement(seat)).nodes

    def entitlement(self, seat: object) -> Entitlement:
        return Entitlement(0, frozenset({"t4"} if isinstance(seat, int) else ()), tenant(seat))

    def end(self, seat: object) -> None:
        del self.stack.places[seat]
        self.cache.remove_pod(str(seat))

    def is_kept(self) -> bool:
        free = [
            [0 if (n, i) in self.lost else mib for i, mib in enumerate(node)]
            for n, node in enumerate(self.stack.free())
        ]
        left = tuple(sorted(tuple(sorted(node)) for node in free))
        return all(mib >= 0 for node in left for mib in node) and fits(tuple(sorted(self.stack.absent())), left)


@dataclass
class History:
    dice: Random
    cluster: Cluster
    told: list[str] = field(default_factory=list)

    def step(self) -> None:
        kept, lost = self.cluster.is_kept(), {*self.cluster.lost}
        act = self.dice.choice((*(self.arrive, self.arrive, self.arrive, self.end, self.end, self.guest), *self.others))
        placed = act()
        seen = (self.cluster.stack, self.told)
        assert placed is not False or not kept, seen
        assert lost or self.cluster.lost or not kept or self.cluster.is_kept(), seen
        assert not self.cluster.is_kept() or self.cluster.cache.unplaced_seats() == (), seen

    @property
    def others(self) -> tuple[Callable[[], bool | None], ...]:
        return self.guest, self.reserve, self.restart, self.relist, self.lose, self.find

    @property
    def absent(self) -> list[int]:
        stack = self.cluster.stack
        return [seat for seat in range(len(stack.seats)) if seat not in stack.places]

    def arrive(self) -> bool | None:
        if not self.absent:
            return None
        seat = self.dice.choice(self.absent)
        self.told.append(f"seat {seat} arrives")
        return self.cluster.arrive(seat, self.cluster.stack.seats[seat])

    def end(self) -> None:
        if self.cluster.stack.places:
            pod = self.dice.choice(sorted(self.cluster.stack.places, key=str))
            self.told.append(f"{pod} ends")
            self.cluster.end(pod)

    def guest(self) -> None:
        wanted = Wanted(self.dice.randint(1, 6), self.dice.choice((1, 1, 1, 2)))
        self.told.append(f"a pod without a seat arrives: {wanted}")
        self.cluster.arrive(f"guest-{len(self.told)}", wanted)

    def reserve(self) -> None:
        if self.absent:
            seat = self.dice.choice(self.absent)
            self.told.append(f"seat {seat} gets a reservation")
            self.cluster.filter(seat, self.cluster.stack.seats[seat])
            self.cluster.now += RESERVE_SECONDS
            feasible(self.cluster.cache, MemoryRequest(1), self.cluster.now)

    def restart(self) -> None:
        self.told.append("the extender restarts")
        self.cluster.restart()

    def relist(self) -> None:
        self.told.append("a relist")
        self.cluster.relist()

    def lose(self) -> None:
        if self.dice.random() < 0.3:
            nodes = self.cluster.stack.nodes
            node = self.dice.randrange(len(nodes))
            self.cluster.lost.add((node, self.dice.randrange(len(nodes[node]))))
            self.told.append(f"lost: {self.cluster.lost}")
            self.cluster.cache.update_node(self.cluster.devices(node))

    def find(self) -> None:
        self.told.append("all devices are healthy")
        self.cluster.lost.clear()
        for node in range(len(self.cluster.stack.nodes)):
            self.cluster.cache.update_node(self.cluster.devices(node))


def history(dice: Random, acts: int) -> None:
    nodes, devices, seats = dice.choice(((1, 2, 6), (1, 3, 8), (1, 4, 8), (2, 2, 7), (2, 3, 8), (3, 2, 8)))
    told = History(dice, Cluster(drawn(dice, nodes=nodes, devices=devices, seats=seats)))
    for _ in range(acts):
        told.step()


@pytest.mark.search
def test_no_history_strands_a_seat() -> None:
    dice = search.dice("histories")
    for _ in range(search.cases(60, soak=100_000)):
        history(dice, 30)


def test_a_seat_without_room_after_the_loss_of_a_device_is_named() -> None:
    cluster = Cluster(Stack(((6, 6),), (Wanted(4), Wanted(4), Wanted(1))))
    assert cluster.cache.unplaced_seats() == ()
    cluster.lost = {(0, 1)}
    cluster.cache.update_node(cluster.devices(0))
    ((pool, seats, count),) = cluster.cache.unplaced_seats()
    assert (pool, [seat.name for seat in seats], count) == ("t4", ["seat-0", "seat-1"], 1)
    assert cluster.arrive(1, Wanted(4))
    assert not cluster.arrive(0, Wanted(4))


def test_a_pod_without_a_seat_gets_the_reason_of_its_refusal() -> None:
    cluster = Cluster(Stack(((6, 6),), (Wanted(5), Wanted(4))))
    assert not cluster.arrive("guest", Wanted(3))
    answer = cluster.cache.fit("guest", MemoryRequest(3), cluster.names, 0.0)
    assert answer.refused == {
        "node-0": "its largest GPU has 2 MiB free, not 3, beside the memory that absent seats need"
    }


def test_the_eviction_of_a_pod_with_a_seat_frees_no_memory_for_a_pod_without_a_seat() -> None:
    cluster = Cluster(Stack(((6,),), (Wanted(4),)))
    assert cluster.arrive(0, Wanted(4))
    assert cluster.arrive("guest-1", Wanted(2))
    assert victims(cluster.cache, MemoryRequest(2), "node-0", {"0", "guest-1"}) == ("guest-1",)
    assert victims(cluster.cache, MemoryRequest(3), "node-0", {"0", "guest-1"}) is None


def test_a_pod_of_several_devices_takes_the_seats_of_a_device_each() -> None:
    cluster = Cluster(Stack(((6, 6),), (Wanted(5),) * 6))
    seat = Seat(name="large", tenant="tenant-0", pool="t4", gpumem_mib=6, replicas=2)
    cluster.cache.promise(replace(ledger_of(cluster.stack), seats=(seat,)))
    assert not cluster.arrive("guest", Wanted(1))
    assert cluster.arrive(0, Wanted(6, 2))
    assert cluster.cache.unplaced_seats() == ()


def test_a_pool_that_grows_on_demand_has_room_for_absent_seats_on_later_nodes() -> None:
    cluster = Cluster(Stack(((6,),), (Wanted(6), Wanted(6))))
    ledger = ledger_of(cluster.stack)
    cluster.cache.promise(ledger)
    assert [count for *_, count in cluster.cache.unplaced_seats()] == [1]
    pool = replace(ledger.pools[0], nodes=2, least_nodes=1, device_count=1)
    cluster.cache.promise(replace(ledger, pools=(pool,)))
    assert cluster.cache.unplaced_seats() == ()
    assert cluster.arrive("guest", Wanted(6)) is False
    assert cluster.arrive(1, Wanted(6))


TWINS = (
    Seat(name="ocr", tenant="team", pool="t4", gpumem_mib=4000),
    Seat(name="llm", tenant="team", pool="t4", gpumem_mib=3000),
)


def twins(device_mib: int, *pods: PodInfo, seats: tuple[Seat, ...] = TWINS) -> Cache:
    pool = Pool(name="t4", node_selector={}, nodes=1, device_count=1, memory_mib=7000)
    node = NodeDevices(node="n", pool="t4", devices=(NodeDevice(0, "GPU-0", device_mib, healthy=True),))
    cache = Cache()
    cache.promise(Ledger(domain="example.com", pools=(pool,), seats=seats))
    cache.replace([node], pods, 0.0)
    return cache


def held(seat: str, mib: int = 3000) -> PodInfo:
    return PodInfo(uid="pod", namespace="team", node="n", request=MemoryRequest(mib), indices=(0,), seat=seat)


@pytest.mark.parametrize(("label", "absent"), [("", 4000), ("ocr", 3000), ("llm", 4000), ("left-the-ledger", 4000)])
def test_a_pod_takes_the_seat_that_its_label_names_and_else_a_seat_of_its_size(label: str, absent: int) -> None:
    """The seat `ocr` was raised from 3000 to 4000 MiB, and its pod runs with the old size."""
    cache = twins(7000, held(label))
    assert cache.node("n").absent == {0: absent}


def test_of_two_seats_of_one_size_the_alert_names_the_one_without_a_pod() -> None:
    seats = tuple(replace(seat, gpumem_mib=3000) for seat in TWINS)
    for label, named in (("", {"ocr", "llm"}), ("ocr", {"llm"}), ("llm", {"ocr"})):
        ((pool, unplaced, count),) = twins(5000, held(label), seats=seats).unplaced_seats()
        assert (pool, {seat.name for seat in unplaced}, count) == ("t4", named, 1)
