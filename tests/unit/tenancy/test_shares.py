from dataclasses import replace

import pytest

from tenancy.ledger import Ledger, OnDemand, Pool, Seat, Unbudgeted
from tenancy.shares import Share, overdrawn, seat_shares, shares

POOL = Pool(
    name="t4",
    node_selector={"gpu": "t4"},
    nodes=2,
    device_count=2,
    memory_mib=10_000,
    cpus=16,
    host_memory_mib=40_000,
)
SEAT = Seat(name="llm", tenant="team-a", pool="t4", gpumem_mib=5000)


def ledger(*seats: Seat, pool: Pool = POOL, **promises: object) -> Ledger:
    return replace(Ledger(domain="example.com", pools=(pool,), seats=seats), **promises)


def test_a_part_is_of_a_node_as_the_budget_is_of_its_gpu_memory() -> None:
    assert shares(ledger(SEAT)) == {"team-a": {5000: Share(4000, 10_000)}}


def test_of_two_seats_of_one_size_the_larger_bound_counts() -> None:
    other = replace(SEAT, name="other", cpus=9, devices_per_pod=2)
    assert shares(ledger(SEAT, other)) == {"team-a": {5000: Share(4500, 10_000)}}


def test_seats_of_one_size_in_two_pools_have_the_parts_of_their_own_nodes() -> None:
    far = Pool(name="far", node_selector={"gpu": "far"}, nodes=1, device_count=1, memory_mib=10_000, cpus=4)
    found = replace(ledger(SEAT, replace(SEAT, name="other", pool="far")), pools=(POOL, far))
    assert shares(found) == {}
    assert seat_shares(found) == {"team-a": {"llm": Share(4000, 10_000), "other": Share(2000, None)}}
    assert seat_shares(ledger(SEAT)) == {}


def test_without_what_a_node_has_there_is_no_bound_but_the_own() -> None:
    bare = replace(POOL, cpus=None, host_memory_mib=None)
    assert shares(ledger(SEAT, pool=bare)) == {}
    assert shares(ledger(replace(SEAT, cpus=2), pool=bare)) == {"team-a": {5000: Share(2000, None)}}


def test_pods_without_gpumem_have_the_part_of_their_need_or_an_own_bound() -> None:
    tts = OnDemand(name="tts", tenant="tts", pool="t4", need_mib=2000)
    camera = Unbudgeted(name="camera", tenant="camera", pool="t4", measured_mib=100)
    assert shares(ledger(on_demand=(tts,), unbudgeted=(camera,))) == {"tts": {0: Share(1600, 4000)}}
    assert shares(ledger(unbudgeted=(replace(camera, cpus=2),))) == {"camera": {0: Share(2000, None)}}


@pytest.mark.parametrize(("cpus", "remedy"), [(8, []), (9, ["lower residents.llm.cpus to 8, or raise pools.t4.cpus"])])
def test_what_seats_may_request_together_is_there(cpus: int, remedy: list[str]) -> None:
    """The other seat has half of the GPU memory, and so 16 of the 32 CPUs."""
    other = replace(SEAT, name="other", gpumem_mib=10_000, replicas=2)
    found = overdrawn(ledger(replace(SEAT, cpus=cpus, replicas=2), other))
    assert [line.rpartition("; ")[2] for line in found] == remedy


def test_a_pool_without_nodes_is_reported_elsewhere() -> None:
    assert list(overdrawn(ledger(replace(SEAT, cpus=99), pool=replace(POOL, nodes=0)))) == []
