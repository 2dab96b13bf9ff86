"""Tests how the extender chooses the victims of a preemption by device."""

from collections.abc import Iterable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from agents.extender.preemption import PotentialVictim, lowest_victims
from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import DeviceMemory


def on(uid: str, mib: int, *indices: int, priority: int = 0) -> PotentialVictim:
    return PotentialVictim(uid=uid, priority=priority, mib=mib, measured_mib=dict.fromkeys(indices or (0,), mib))


def by_ledger(free: Mapping[int, int]) -> dict[int, DeviceMemory]:
    return {index: DeviceMemory(room_mib=mib, measured_mib=None) for index, mib in free.items()}


OCCUPANTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 6), st.sets(st.integers(0, 2), min_size=1, max_size=2)), max_size=6
).map(lambda rows: [on(f"p{n}", mib, *sorted(at), priority=p) for n, (p, mib, at) in enumerate(rows)])
ROOM = st.lists(st.integers(-3, 6), min_size=1, max_size=3).map(lambda free: dict(enumerate(free)))


def fits(request: MemoryRequest, room: dict[int, int], gone: Iterable[PotentialVictim]) -> bool:
    freed = {index: free + sum(o.mib for o in gone if index in o.measured_mib) for index, free in room.items()}
    return sum(free >= request.mib for free in freed.values()) >= request.count


@given(st.builds(MemoryRequest, st.integers(1, 12), st.integers(1, 2)), ROOM, OCCUPANTS)
def test_victims_make_room_and_none_of_them_leaves_in_vain(
    request: MemoryRequest, room: dict[int, int], candidates: list[PotentialVictim]
) -> None:
    victims = lowest_victims(request, by_ledger(room), candidates)
    if victims is None:
        assert not fits(request, room, candidates)
        return
    gone = [each for each in candidates if each.uid in victims]
    assert fits(request, room, gone)
    for each in gone:
        assert not fits(request, room, [other for other in gone if other is not each])


def test_a_victim_that_frees_two_devices_needs_no_other_one() -> None:
    held = [on("small", 1000, 1), on("on both", 2000, 0, 2)]
    assert lowest_victims(MemoryRequest(2000, 2), by_ledger({0: 0, 1: 1000, 2: 0}), held) == ("on both",)


def test_a_victim_that_frees_too_little_measured_memory_does_not_suffice() -> None:
    """A new pod of an evicted seat allocates its budget again, so the measured free memory stays the same."""
    seat = PotentialVictim(uid="seat", priority=1, mib=0, measured_mib={0: 0})
    batch = PotentialVictim(uid="batch", priority=2, mib=3000, measured_mib={0: 2000})
    full = DeviceMemory(room_mib=3000, measured_mib=500)
    assert lowest_victims(MemoryRequest(2000), {0: full}, [seat, batch]) == ("batch",)
    assert lowest_victims(MemoryRequest(2000), {0: full}, [seat]) is None


@given(st.builds(MemoryRequest, st.integers(1, 12)), ROOM, OCCUPANTS)
def test_no_other_victims_for_one_device_have_lower_priorities(
    request: MemoryRequest, room: dict[int, int], candidates: list[PotentialVictim]
) -> None:
    victims = lowest_victims(request, by_ledger(room), candidates)
    if victims is None:
        return
    highest = max((each.priority for each in candidates if each.uid in victims), default=-1)
    lower = [each for each in candidates if each.priority < highest]
    assert highest == -1 or not fits(request, room, lower)
