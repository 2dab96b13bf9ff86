"""Tests how many MiB are missing for a waiting seat."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenancy.devices.allocate import MemoryRequest
from tenancy.devices.waiting import DeviceMemory, seats_for, to_free_mib
from tenancy.ledger import Ledger, Pool, Seat

FLOOR = 1536
BIG = Pool(name="big", node_selector={"gpu": "a100", "zone": "a"}, nodes=1, device_count=2, memory_mib=40960)
SMALL = Pool(name="small", node_selector={"gpu": "t4", "zone": "a"}, nodes=1, device_count=1, memory_mib=15360)
LEDGER = Ledger(
    domain="example.com",
    pools=(BIG, SMALL),
    seats=(
        Seat(name="llm", tenant="team-a", pool="big", gpumem_mib=20000),
        Seat(name="ocr", tenant="team-a", pool="small", gpumem_mib=5000),
        Seat(name="pair", tenant="team-c", pool="big", gpumem_mib=8000, devices_per_pod=2),
    ),
)


def device(room: int, free: int | None, floor: int = FLOOR) -> DeviceMemory:
    return DeviceMemory(room_mib=room, measured_mib=free, floor_mib=floor)


@pytest.mark.parametrize(
    ("tenant", "wanted", "selector", "seats"),
    [
        ("team-a", MemoryRequest(5000), {}, ["llm", "ocr"]),
        ("team-a", MemoryRequest(5001), {}, ["llm"]),
        ("team-a", MemoryRequest(10000, 2), {}, ["llm"]),
        ("team-a", MemoryRequest(10001, 2), {}, []),
        ("team-a", MemoryRequest(5000), {"gpu": "t4"}, ["ocr"]),
        ("team-a", MemoryRequest(5000), {"gpu": "h100"}, []),
        ("team-a", MemoryRequest(5000), {"zone": "a", "disk": "ssd"}, ["llm", "ocr"]),
        ("team-b", MemoryRequest(1), {}, []),
        ("team-c", MemoryRequest(8000, 2), {}, ["pair"]),
        ("team-c", MemoryRequest(8001, 2), {}, []),
        ("team-c", MemoryRequest(8000), {}, []),
        ("team-c", MemoryRequest(4000, 3), {}, []),
    ],
)
def test_who_keeps_within_a_seat(
    tenant: str, wanted: MemoryRequest, selector: Mapping[str, str], seats: list[str]
) -> None:
    assert [seat.name for seat in seats_for(LEDGER, tenant, wanted, selector)] == seats


@pytest.mark.parametrize(
    ("tenant", "wanted", "label", "seats"),
    [
        ("team-a", MemoryRequest(5000), "ocr", ["ocr"]),
        ("team-a", MemoryRequest(5000), "llm", ["llm"]),
        ("team-a", MemoryRequest(5001), "ocr", []),
        ("team-a", MemoryRequest(5000), "left-the-ledger", ["llm", "ocr"]),
        ("team-a", MemoryRequest(4000, 2), "pair", ["llm"]),  # the seat of another tenant
    ],
)
def test_a_pod_whose_label_names_a_seat_has_only_this_seat(
    tenant: str, wanted: MemoryRequest, label: str, seats: list[str]
) -> None:
    assert [seat.name for seat in seats_for(LEDGER, tenant, wanted, label=label)] == seats


def test_a_seat_that_can_load_elsewhere_needs_nothing_freed() -> None:
    assert to_free_mib([MemoryRequest(2000)], {"node-0": {0: device(5000, 0)}, "node-1": {0: device(5000, 9000)}}) == {}


def test_a_seat_without_room_by_the_ledger_needs_nothing_freed() -> None:
    assert to_free_mib([MemoryRequest(5001)], {"node-0": {0: device(5000, 0)}}) == {}


MIB = st.integers(0, 50)
ASKS = st.builds(MemoryRequest, st.integers(1, 30), st.integers(1, 2))
DEVICES = st.builds(DeviceMemory, room_mib=MIB, measured_mib=st.none() | MIB, floor_mib=st.integers(0, 10))
NODES = st.dictionaries(st.sampled_from(["a", "b"]), st.dictionaries(st.integers(0, 3), DEVICES, max_size=4))


@given(asks=st.lists(ASKS, max_size=4), nodes=NODES)
def test_once_all_is_freed_every_seat_with_room_loads(
    asks: list[MemoryRequest], nodes: Mapping[str, Mapping[int, DeviceMemory]]
) -> None:
    freed = to_free_mib(asks, nodes)
    assert all(mib > 0 for mib in freed.values())
    assert _freed(nodes, freed, asks) == {}


def _freed(
    nodes: Mapping[str, Mapping[int, DeviceMemory]], freed: Mapping[tuple[str, int], int], asks: list[MemoryRequest]
) -> Mapping[tuple[str, int], int]:
    after = {
        node: {
            key: device(each.room_mib, (each.measured_mib or 0) + freed.get((node, key), 0), each.floor_mib)
            if each.measured_mib is not None
            else each
            for key, each in devices.items()
        }
        for node, devices in nodes.items()
    }
    return to_free_mib(asks, after)
