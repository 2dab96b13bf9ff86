"""Tests the reason for the choice of a device, which is in the Event of a placement."""

from agents.extender.cache.cache import Cache
from agents.extender.cache.pod_info import Entitlement
from tenancy.devices.allocate import MemoryRequest
from tenancy.ledger import Ledger, Pool, Seat
from tests.support.devices import bound, cache_of, inventory


def why(cache: Cache, mib: int, nodes: str = "AB", count: int = 1, tenant: str = "") -> str:
    answer = cache.fit("pod", MemoryRequest(mib, count), [*nodes], 0.0, Entitlement(tenant=tenant))
    assert answer.pod is not None, answer
    return answer.pod.why


def test_the_only_device_has_no_second_best() -> None:
    cache = cache_of(inventory("A", 8000))
    assert why(cache, 5000, "A") == (
        "gets 5000 MiB of A device 0, where 8000 of 8000 MiB were free; there is no other device"
    )


def test_a_device_without_room_is_named_with_the_room_that_it_has() -> None:
    cache = cache_of(inventory("A", 8000, 8000), inventory("B", 4000))
    cache.update_pod(bound("other", "A", 7000, 1))
    assert why(cache, 5000).endswith("; next best was B device 0, which has room for only 4000 MiB")


def test_devices_that_are_equally_good_are_equally_good() -> None:
    cache = cache_of(inventory("A", 8000), inventory("B", 8000))
    assert why(cache, 5000).endswith("; next best was B device 0, which would leave as much")


def test_what_no_seat_can_use_is_called_so() -> None:
    cache = cache_of(inventory("A", 5800), inventory("B", 5900))
    pool = Pool(name="t4", node_selector={}, nodes=2, device_count=1, memory_mib=5900)
    seat = Seat(name="s", tenant="team", pool="t4", gpumem_mib=1000)
    cache.promise(Ledger(domain="example.com", pools=(pool,), seats=(seat,)))
    assert why(cache, 4500) == (
        "gets 4500 MiB of A device 0, where 5800 of 5800 MiB were free; next best was B device 0, which would leave "
        "1400 MiB, and not 300 MiB that no seat can use"
    )


def test_each_of_several_devices_is_named() -> None:
    cache = cache_of(inventory("A", 8000, 6000))
    assert why(cache, 5000, "A", 2).startswith(
        "gets 5000 MiB of A device 0, where 8000 of 8000 MiB were free, device 1, where 6000 of 6000 MiB were free"
    )
