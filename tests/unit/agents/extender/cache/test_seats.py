"""Tests that the extender places a seat's pod by the ledger, and a pod without a seat also by the readings."""

from dataclasses import replace

import pytest

from agents.extender.cache.cache import RESERVE_SECONDS, Cache
from agents.extender.cache.node_info import Shortage
from agents.extender.cache.pod_info import Entitlement, PodState, PodWithoutGpu
from agents.extender.cache.reading import UndeclaredUse
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger, Pool, Unbudgeted
from tenancy.units import MIB
from tests.support.devices import bound, cache_of, feasible, inventory, nominee, victims

SEATED = Entitlement(priority=0, pools=frozenset({"t4"}))
FLOOR = 1536
# The T4 of prod has 15360 MiB, of which 14000 MiB are for budgets.
RESIDENTS = {"llama-swap": 5000, "immich": 3000, "frigate": 2500, "embeddings": 1800, "tts": 1000}


def use(uid: str, mib: int, node: str = "N", index: int = 0) -> PodUse:
    return PodUse(uid=uid, namespace="tenant", pod=uid, uuid=f"GPU-{node}-{index}", used_bytes=mib * MIB)


def short(cache: Cache, mib: int, entitlement: Entitlement = SEATED) -> tuple[Shortage, ...]:
    fits = cache.fit("seat", MemoryRequest(mib), ["N"], 0.0, entitlement)
    assert fits.nodes == ()
    return fits.short


def test_each_of_prods_seats_is_placed_while_the_others_are_exactly_at_their_budgets() -> None:
    """Before the fix, unbudgeted processes in the reserve prevented the placement."""
    for absent, mib in RESIDENTS.items():
        cache = cache_of(inventory("N", 14000, floor_mib=FLOOR))
        for name, budget in RESIDENTS.items():
            if name != absent:
                cache.update_pod(bound(name, "N", budget, 0))
        cache.measure("N", {0: 15360 - 600 - sum(RESIDENTS.values()) + mib}, 0.0)
        assert cache.fit(absent, MemoryRequest(mib), ["N"], 0.0, SEATED, by_ledger=True).nodes == ("N",)
        assert cache.assume(absent, MemoryRequest(mib), "N", 0.0, SEATED).pod


def test_who_has_no_seat_is_kept_out_by_what_is_measured() -> None:
    cache = cache_of(inventory("N", 14000, floor_mib=FLOOR))
    cache.measure("N", {0: 4000}, 0.0)
    other = Entitlement(pools=frozenset({"another-pool"}))
    for entitlement in (Entitlement(), other):
        fits = cache.fit("new", MemoryRequest(3000), ["N"], 0.0, entitlement, by_ledger=True)
        assert (fits.nodes, fits.short) == ((), ())
        assert fits.refused == {"N": "its largest GPU has 2464 MiB free, not 3000, as measured and less the floor"}
        assert cache.assume("new", MemoryRequest(3000), "N", 0.0, entitlement).pod is None


@pytest.mark.parametrize("free_mib", [9000, 4000], ids=["could load it", "lacks the least"])
def test_a_seat_gets_the_device_and_the_node_that_could_load_it_or_lack_the_least(free_mib: int) -> None:
    cache = cache_of(inventory("N", 5000, 9000), inventory("A", 5000), inventory("B", 90000))
    for node, free in (("N", {0: 100, 1: free_mib}), ("A", {0: 100}), ("B", {0: free_mib})):
        cache.measure(node, free, 0.0)
    chosen = cache.assume("one", MemoryRequest(5000), "N", 0.0, SEATED).pod
    assert chosen is not None
    assert chosen.indices == (1,)
    assert cache.fit("seat", MemoryRequest(5000), ["A", "B"], 0.0, SEATED, by_ledger=True).nodes == ("B",)


def test_what_a_seat_lacks_and_who_has_it() -> None:
    cache = cache_of(inventory("N", 14000, floor_mib=FLOOR))
    cache.update_pod(bound("within", "N", 3000, 0))
    cache.update_pod(bound("over", "N", 2000, 0))
    cache.update_pod(PodWithoutGpu(uid="guest", node="N", cpu_milli=0))
    uses = (use("within", 3000), use("over", 4500), use("guest", 2048))
    cache.measure("N", {0: 5000}, 0.0, uses)
    assert short(cache, 5000) == (
        Shortage(
            node="N",
            pool="t4",
            index=0,
            mib=1536,
            floor_mib=FLOOR,
            holders=(UndeclaredUse("tenant", "over", 2500), UndeclaredUse("tenant", "guest", 2048)),
        ),
    )


def test_the_memory_of_a_pod_that_ended_is_free_before_it_is_measured_again() -> None:
    cache = cache_of(inventory("N", 8000))
    cache.update_pod(bound("before", "N", 5000, 0))
    cache.update_pod(PodWithoutGpu(uid="guest", node="N", cpu_milli=0))
    cache.measure("N", {0: 1000}, 0.0, (use("before", 5000), use("guest", 2000)))
    cache.remove_pod("before")
    assert [device.room_mib for device in cache.snapshot()[0].devices] == [6000]
    cache.remove_pod("guest")
    assert cache.fit("after", MemoryRequest(8000), ["N"], 0.0).nodes == ("N",)
    cache.measure("N", {0: 1000}, 0.01, (use("before", 5000), use("guest", 2000)))
    assert cache.fit("after", MemoryRequest(8000), ["N"], 0.0).nodes == ("N",)
    cache.measure("N", {0: 1000}, 5.0, (use("before", 5000), use("guest", 2000)))
    assert cache.fit("after", MemoryRequest(8000), ["N"], 5.0).nodes == ()


# Nominations.


def nominated(cache: Cache, mib: int = 5000, priority: int = 10) -> None:
    cache.nominate(nominee("nominee", "N", MemoryRequest(mib), priority), 0.0)


def fits(cache: Cache, uid: str, mib: int, priority: int = 0, now: float = 0.0) -> bool:
    return "N" in cache.fit(uid, MemoryRequest(mib), ["N"], now, Entitlement(priority)).nodes


def test_what_a_preemption_freed_is_not_given_to_a_lower_pod() -> None:
    """Before the fix, a pod with a lower priority got the device that a preemption had freed."""
    cache = cache_of(inventory("N", 8000))
    nominated(cache)
    assert not fits(cache, "lower", 4000)
    assert cache.assume("lower", MemoryRequest(4000), "N", 0.0).pod is None
    assert feasible(cache, MemoryRequest(4000), 0.0) == frozenset()
    assert fits(cache, "small", 3000)


def test_what_the_evicted_still_hold_is_kept_for_the_nominee_before_it_is_free() -> None:
    cache = cache_of(inventory("N", 8000, 2000))
    cache.update_pod(bound("evicted", "N", 6000, 0, state=PodState.TERMINATING))
    nominated(cache)
    assert not fits(cache, "lower", 2001)
    assert fits(cache, "lower", 2000)
    cache.remove_pod("lower")
    cache.remove_pod("evicted")
    assert not fits(cache, "lower", 3001)


def test_a_nomination_ends_with_the_pod_and_with_another_nomination() -> None:
    for end in (
        lambda cache: cache.remove_pod("nominee"),
        lambda cache: cache.nominate(nominee("nominee", "other", MemoryRequest(1), 10), 0.0),
    ):
        cache = cache_of(inventory("N", 8000))
        nominated(cache)
        assert not fits(cache, "lower", 8000, now=10 * RESERVE_SECONDS)
        end(cache)
        assert fits(cache, "lower", 8000)


def test_a_nomination_that_is_lost_keeps_the_room_for_a_while() -> None:
    """Before the fix, another pod took the memory before kube-scheduler retried the nominated pod."""
    cache = cache_of(inventory("N", 8000))
    nominated(cache)
    assert fits(cache, "nominee", 5000, priority=10)
    assert cache.assume("nominee", MemoryRequest(5000), "N", 0.0, Entitlement(10)).pod
    cache.forget("nominee", 1.0)
    cache.withdraw("nominee", 1.0)
    assert not fits(cache, "lower", 8000, now=RESERVE_SECONDS)
    assert fits(cache, "lower", 8000, now=RESERVE_SECONDS + 1)


def test_of_two_nominated_pods_of_one_priority_the_first_is_first_also_after_a_relist() -> None:
    cache, node = Cache(), inventory("N", 8000)
    first, second = (nominee(uid, "N", MemoryRequest(5000), 10) for uid in ("z", "a"))
    cache.replace([node], [first], since=0.0)
    cache.replace([node], [first, second], since=1.0)
    assert not fits(cache, "a", 5000, priority=10, now=2.0)
    assert fits(cache, "z", 5000, priority=10, now=2.0)


def test_a_relist_ends_a_nomination_that_the_api_no_longer_shows() -> None:
    cache, node = Cache(), inventory("N", 8000)
    pod = nominee("nominee", "N", MemoryRequest(5000), 10)
    cache.replace([node], [pod], since=0.0)
    assert not fits(cache, "lower", 8000)
    cache.replace([node], [], since=1.0)
    assert fits(cache, "lower", 8000, now=1.0)


# Preemption.


def test_a_pod_that_uses_little_frees_little_for_who_has_no_seat() -> None:
    cache = cache_of(inventory("N", 8000))
    cache.update_pod(bound("idle", "N", 5000, 0))
    cache.update_pod(PodWithoutGpu(uid="guest", node="N", cpu_milli=0))
    cache.measure("N", {0: 1000}, 0.0, (use("idle", 300), use("guest", 6700)))
    assert victims(cache, MemoryRequest(6000), "N", {"idle"}) is None
    assert victims(cache, MemoryRequest(6000), "N", {"idle"}, SEATED) == ("idle",)


def test_a_seat_that_fits_on_one_node_lacks_no_memory_of_another_node() -> None:
    cache = cache_of(inventory("N", 5000), inventory("B", 5000))
    cache.measure("N", {0: 100}, 0.0)
    for nodes, lacking in ((["N", "B"], []), (["N"], ["N"])):
        with cache.search("seat", MemoryRequest(4000), nodes, 0.0, SEATED) as found:
            assert [each.node for each in found.short()] == lacking


def test_who_is_on_record_without_a_budget_is_waited_for_only_beyond_the_record() -> None:
    cache = cache_of(inventory("N", 5000))
    cache.measure("N", {0: 100}, 0.0, (use("guest", 2000),))
    pool = Pool(name="t4", node_selector={}, nodes=1, device_count=1, memory_mib=5000)
    ledger = Ledger(domain="example.com", pools=(pool,))

    def holders(*recorded: int) -> list[int]:
        workloads = [Unbudgeted(name=str(mib), tenant="tenant", pool="t4", measured_mib=mib) for mib in recorded]
        cache.promise(replace(ledger, unbudgeted=tuple(workloads)))
        return [each.mib for each in short(cache, 4000)[0].holders]

    assert holders() == holders(1999) == [2000]
    assert holders(2000) == holders(2000, 100) == [], "nobody says which of the two it is"
