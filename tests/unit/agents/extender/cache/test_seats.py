"""Seats are by ledger: what is measured orders, and keeps out who has no seat."""

from agents.extender.cache.cache import NOMINATED_SECONDS, RESERVE_SECONDS, AssumedPod, Cache, NotAssumed
from agents.extender.cache.node_info import Shortage, UndeclaredUse
from agents.extender.cache.pod_info import Bystander, Nomination, Standing
from agents.telemetry.reading import PodUse
from tenancy.devices.allocate import Ask
from tenancy.units import MIB
from tests.support.devices import bound, inventory, ledger_of

SEATED = Standing(priority=0, pools=frozenset({"t4"}))
FLOOR = 1536
# Prod's card: 15360 MiB, 14000 of them for budgets. Five residents, 13300 together.
RESIDENTS = {"llama-swap": 5000, "immich": 3000, "frigate": 2500, "embeddings": 1800, "tts": 1000}


def use(uid: str, mib: int, node: str = "N", index: int = 0) -> PodUse:
    return PodUse(uid=uid, namespace="tenant", pod=uid, uuid=f"GPU-{node}-{index}", used_bytes=mib * MIB)


def short(cache: Cache, mib: int, standing: Standing = SEATED) -> tuple[Shortage, ...]:
    fits = cache.fit("seat", Ask(mib), ["N"], 0.0, standing)
    assert fits.nodes == ()
    return fits.short


def test_each_of_prods_seats_is_placed_while_the_others_are_exactly_at_their_budgets() -> None:
    """600 MiB that nobody budgeted, under a reserve of 1360, refused each of them by measurement."""
    for absent, mib in RESIDENTS.items():
        cache = ledger_of(inventory("N", 14000, floor_mib=FLOOR))
        for name, budget in RESIDENTS.items():
            if name != absent:
                cache.update_pod(bound(name, "N", budget, 0))
        cache.measure("N", {0: 15360 - 600 - sum(RESIDENTS.values()) + mib}, 0.0)
        assert cache.fit(absent, Ask(mib), ["N"], 0.0, SEATED, by_ledger=True).nodes == ("N",)
        assert isinstance(cache.assume(absent, Ask(mib), "N", 0.0, SEATED), AssumedPod)


def test_who_has_no_seat_is_kept_out_by_what_is_measured() -> None:
    cache = ledger_of(inventory("N", 14000, floor_mib=FLOOR))
    cache.measure("N", {0: 4000}, 0.0)
    other = Standing(pools=frozenset({"another-pool"}))
    for standing in (Standing(), other):
        fits = cache.fit("new", Ask(3000), ["N"], 0.0, standing, by_ledger=True)
        assert (fits.nodes, fits.short) == ((), ())
        assert fits.refused == {"N": "its largest GPU has 2464 MiB free, not 3000, as measured and less the floor"}
        assert isinstance(cache.assume("new", Ask(3000), "N", 0.0, standing), NotAssumed)


def test_a_seat_without_room_by_the_ledger_is_refused_whatever_is_free() -> None:
    cache = ledger_of(inventory("N", 14000))
    cache.update_pod(bound("other", "N", 10000, 0))
    cache.measure("N", {0: 14000}, 0.0)
    fits = cache.fit("seat", Ask(5000), ["N"], 0.0, SEATED, by_ledger=True)
    assert (fits.nodes, fits.short) == ((), ())


def test_a_seat_prefers_a_device_that_could_load_it() -> None:
    cache = ledger_of(inventory("N", 5000, 9000))
    cache.measure("N", {0: 100, 1: 9000}, 0.0)
    chosen = cache.assume("seat", Ask(5000), "N", 0.0, SEATED)
    assert isinstance(chosen, AssumedPod)
    assert chosen.indices == (1,)


def test_a_seat_prefers_a_node_that_could_load_it() -> None:
    cache = ledger_of(inventory("A", 5000), inventory("B", 9000))
    cache.measure("A", {0: 100}, 0.0)
    assert cache.fit("seat", Ask(5000), ["A", "B"], 0.0, SEATED, by_ledger=True).nodes == ("B",)


def test_where_no_device_could_load_a_seat_it_gets_the_one_that_lacks_the_least() -> None:
    cache = ledger_of(inventory("N", 5000, 9000))
    cache.measure("N", {0: 100, 1: 4000}, 0.0)
    chosen = cache.assume("seat", Ask(5000), "N", 0.0, SEATED)
    assert isinstance(chosen, AssumedPod)
    assert chosen.indices == (1,)


def test_of_nodes_that_could_not_load_a_seat_the_one_that_lacks_the_least_is_best() -> None:
    cache = ledger_of(inventory("A", 5000), inventory("B", 90000))
    cache.measure("A", {0: 1000}, 0.0)
    cache.measure("B", {0: 4000}, 0.0)
    assert cache.fit("seat", Ask(5000), ["A", "B"], 0.0, SEATED, by_ledger=True).nodes == ("B",)


def test_a_seat_on_two_devices_lacks_only_what_keeps_it_from_the_second() -> None:
    cache = ledger_of(inventory("N", 5000, 5000, 5000))
    cache.measure("N", {0: 5000, 1: 4000, 2: 3000}, 0.0)
    fits = cache.fit("seat", Ask(5000, 2), ["N"], 0.0, SEATED)
    assert [(each.index, each.mib) for each in fits.short] == [(1, 1000)]


def test_what_a_seat_lacks_and_who_has_it() -> None:
    cache = ledger_of(inventory("N", 14000, floor_mib=FLOOR))
    cache.update_pod(bound("within", "N", 3000, 0))
    cache.update_pod(bound("over", "N", 2000, 0))
    cache.update_pod(Bystander(uid="guest", node="N", cpu_milli=0))
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


def test_what_nobody_measures_is_no_reason_to_hold_a_seat_back() -> None:
    cache = ledger_of(inventory("N", 14000, floor_mib=FLOOR))
    assert cache.fit("seat", Ask(14000), ["N"], 0.0, SEATED).nodes == ("N",)


def test_a_device_that_is_not_measured_is_placed_on_by_the_ledger_and_the_others_as_measured() -> None:
    """With one device lost, the whole node failed open."""
    cache = ledger_of(inventory("N", 8000, 9000))
    cache.measure("N", {0: 100}, 0.0)
    assert [device.free_mib for device in cache.snapshot()[0].devices] == [100, 9000]


def test_the_memory_of_a_pod_that_ended_is_free_before_it_is_measured_again() -> None:
    """A resident that restarted waited for the next reading, though its device was free."""
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("before", "N", 5000, 0))
    cache.update_pod(Bystander(uid="guest", node="N", cpu_milli=0))
    cache.measure("N", {0: 1000}, 0.0, (use("before", 5000), use("guest", 2000)))
    cache.remove_pod("before")
    assert [device.free_mib for device in cache.snapshot()[0].devices] == [6000]
    cache.remove_pod("guest")
    assert cache.fit("after", Ask(8000), ["N"], 0.0).nodes == ("N",)
    cache.measure("N", {0: 1000}, 0.01, (use("before", 5000), use("guest", 2000)))  # the same reading, asked for again
    assert cache.fit("after", Ask(8000), ["N"], 0.0).nodes == ("N",)
    cache.measure("N", {0: 1000}, 5.0, (use("before", 5000), use("guest", 2000)))  # it is used all the same
    assert cache.fit("after", Ask(8000), ["N"], 5.0).nodes == ()


# Nominations.


def nominated(cache: Cache, mib: int = 5000, priority: int = 10) -> None:
    cache.nominate(Nomination(uid="nominee", node="N", ask=Ask(mib), priority=priority), 0.0)


def fits(cache: Cache, uid: str, mib: int, priority: int = 0, now: float = 0.0) -> bool:
    return "N" in cache.fit(uid, Ask(mib), ["N"], now, Standing(priority)).nodes


def test_what_a_preemption_freed_is_not_given_to_a_lower_pod() -> None:
    """It took the device, and kube-scheduler evicted nobody for the preemptor again: it starved."""
    cache = ledger_of(inventory("N", 8000))
    nominated(cache)
    assert not fits(cache, "lower", 4000)
    assert isinstance(cache.assume("lower", Ask(4000), "N", 0.0), NotAssumed)
    assert cache.feasible_nodes(Ask(4000), 0.0) == frozenset()
    assert fits(cache, "small", 3000)


def test_the_nominee_and_who_comes_before_it_find_the_room() -> None:
    cache = ledger_of(inventory("N", 8000))
    nominated(cache)
    assert fits(cache, "higher", 4000, priority=11)
    cache.remove_pod("higher")
    assert fits(cache, "nominee", 5000, priority=10)


def test_what_the_evicted_still_hold_is_kept_for_the_nominee_before_it_is_free() -> None:
    cache = ledger_of(inventory("N", 8000, 2000))
    cache.update_pod(bound("evicted", "N", 6000, 0, terminating=True))
    nominated(cache)
    assert not fits(cache, "lower", 2001)
    assert fits(cache, "lower", 2000)
    cache.remove_pod("lower")
    cache.remove_pod("evicted")
    assert not fits(cache, "lower", 3001)


def test_a_nomination_ends_with_the_pod_with_another_and_with_its_time() -> None:
    for end in (
        lambda cache: cache.remove_pod("nominee"),
        lambda cache: cache.nominate(Nomination(uid="nominee", node="other", ask=Ask(1), priority=10), 0.0),
    ):
        cache = ledger_of(inventory("N", 8000))
        nominated(cache)
        end(cache)
        assert fits(cache, "lower", 8000)
    cache = ledger_of(inventory("N", 8000))
    nominated(cache)
    assert not fits(cache, "lower", 8000, now=NOMINATED_SECONDS - 1)
    nominated(cache)  # the same word again makes it no longer
    assert fits(cache, "lower", 8000, now=NOMINATED_SECONDS)


def test_a_nomination_that_is_lost_keeps_the_room_for_a_while() -> None:
    """kube-scheduler takes it away where a filter or a bind fails, and tries the pod again: the room was gone."""
    cache = ledger_of(inventory("N", 8000))
    nominated(cache)
    assert fits(cache, "nominee", 5000, priority=10)
    assert isinstance(cache.assume("nominee", Ask(5000), "N", 0.0, Standing(10)), AssumedPod)
    cache.forget("nominee")
    cache.withdraw("nominee", 1.0)
    assert not fits(cache, "lower", 8000, now=RESERVE_SECONDS)
    assert fits(cache, "lower", 8000, now=RESERVE_SECONDS + 1)
    nominated(cache)
    cache.withdraw("nominee", NOMINATED_SECONDS)  # which has lapsed
    cache.remove_pod("lower")
    assert fits(cache, "lower", 8000, now=NOMINATED_SECONDS)


def test_who_preempts_again_on_its_node_is_kept_what_that_frees() -> None:
    """The nomination says the same, and no word of it comes: it had lapsed."""
    cache = ledger_of(inventory("N", 8000))
    nominated(cache)
    cache.renew("nominee", {"N"}, NOMINATED_SECONDS + 100)
    cache.renew("nobody", {"N"}, NOMINATED_SECONDS + 100)
    assert not fits(cache, "lower", 8000, now=NOMINATED_SECONDS + 101)
    assert fits(cache, "lower", 8000, now=2 * NOMINATED_SECONDS + 100)


def test_who_is_nominated_elsewhere_keeps_nothing_where_it_was_refused() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.retain(Nomination(uid="nominee", node="N", ask=Ask(5000), priority=10), 0.0)
    assert not fits(cache, "lower", 8000)
    cache.nominate(Nomination(uid="nominee", node="other", ask=Ask(5000), priority=10), 0.0)
    assert fits(cache, "lower", 8000)


def test_a_refusal_makes_no_nomination_last_that_has_lapsed() -> None:
    """The room of who can never come there was nobody's for ever."""
    cache = ledger_of(inventory("N", 8000))
    nominated(cache)
    refused = Nomination(uid="nominee", node="N", ask=Ask(5000), priority=10)
    cache.retain(refused, NOMINATED_SECONDS - 1)
    assert not fits(cache, "lower", 8000, now=NOMINATED_SECONDS)
    cache.retain(refused, NOMINATED_SECONDS)
    assert fits(cache, "lower", 8000, now=NOMINATED_SECONDS)


def test_a_nominee_that_is_bound_or_about_to_be_is_counted_once() -> None:
    cache = ledger_of(inventory("N", 8000))
    nominated(cache)
    assert fits(cache, "nominee", 5000, priority=10)
    assert fits(cache, "lower", 3000)
    cache.remove_pod("lower")
    assert isinstance(cache.assume("nominee", Ask(5000), "N", 0.0, Standing(10)), AssumedPod)
    assert fits(cache, "lower", 3000)
    cache.remove_pod("lower")
    cache.update_pod(bound("nominee", "N", 5000, 0))
    assert fits(cache, "lower", 3000)


def test_a_relist_keeps_how_long_a_nomination_lasts() -> None:
    cache, node = Cache(), inventory("N", 8000)
    pod = Nomination(uid="nominee", node="N", ask=Ask(5000), priority=10)
    cache.replace([node], [pod], since=0.0)
    cache.replace([node], [pod], since=NOMINATED_SECONDS - 1)
    assert fits(cache, "lower", 8000, now=NOMINATED_SECONDS)
    cache.replace([node], [], since=0.0)
    assert fits(cache, "lower", 8000)


# Preemption.


def test_victims_come_by_falling_priority() -> None:
    """kube-scheduler takes the first for the highest: by UID, victims of 1 and 900 beat two of 5."""
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("a", "N", 4000, 0, priority=1))
    cache.update_pod(bound("b", "N", 4000, 0, priority=900))
    assert cache.victims(Ask(8000), "N", {"a", "b"}, 0.0) == ("b", "a")


def test_a_pod_that_uses_little_frees_little_for_who_has_no_seat() -> None:
    """Declared 5000, used 300, its slack used by a guest: evicted, and the ask still did not fit."""
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("idle", "N", 5000, 0))
    cache.update_pod(Bystander(uid="guest", node="N", cpu_milli=0))
    cache.measure("N", {0: 1000}, 0.0, (use("idle", 300), use("guest", 6700)))
    assert cache.victims(Ask(6000), "N", {"idle"}, 0.0) is None
    assert cache.victims(Ask(6000), "N", {"idle"}, 0.0, standing=SEATED) == ("idle",)


def test_where_nobody_knows_who_uses_a_device_a_victim_frees_what_it_declared() -> None:
    cache = ledger_of(inventory("N", 8000))
    cache.update_pod(bound("idle", "N", 5000, 0))
    cache.measure("N", {0: 1000}, 0.0, unknown=["GPU-N-0"])
    assert cache.victims(Ask(6000), "N", {"idle"}, 0.0) == ("idle",)


def test_more_leave_where_those_who_declared_enough_do_not_use_it() -> None:
    cache = ledger_of(inventory("N", 9000))
    cache.update_pod(bound("idle", "N", 6000, 0))
    cache.update_pod(bound("busy", "N", 3000, 0))
    cache.measure("N", {0: 1000}, 0.0, (use("idle", 300), use("busy", 5000)))
    assert cache.victims(Ask(6000), "N", {"idle", "busy"}, 0.0) == ("busy", "idle")
