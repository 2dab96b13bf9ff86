"""Tests the sums of the ledger."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool, Seat, SeveralPoolsError
from tests.support.ledgers import GPUMEM, ledgers


def pool(name: str = "t4", **changes: Any) -> Pool:
    t4 = Pool(name=name, node_selector={"gpu": name}, nodes=2, device_count=3, memory_mib=1000, reserve_mib=100)
    return replace(t4, **changes)


def seat(name: str, gpumem_mib: int, replicas: int = 1, tenant: str = "a", pool: str = "t4") -> Seat:
    return Seat(name=name, tenant=tenant, pool=pool, gpumem_mib=gpumem_mib, replicas=replicas)


@given(ledgers())
def test_a_ledger_survives_the_way_through_json(ledger: Ledger) -> None:
    assert Ledger.from_data(json.loads(json.dumps(ledger.to_data()))) == ledger


def test_what_is_as_by_default_is_not_written() -> None:
    assert Ledger(domain="d", pools=(pool(sharing=Sharing.WHOLE),), seats=(seat("x", 1),)).to_data() == {
        "domain": "d",
        "pools": [
            {
                "name": "t4",
                "node_selector": {"gpu": "t4"},
                "nodes": 2,
                "device_count": 3,
                "sharing": "whole",
                "memory_mib": 1000,
                "reserve_mib": 100,
            }
        ],
        "seats": [{"name": "x", "tenant": "a", "pool": "t4", "gpumem_mib": 1}],
    }


@given(ledgers())
def test_every_promise_is_counted_once(ledger: Ledger) -> None:
    seats = sum(seat.gpumem_mib * seat.replicas for seat in ledger.seats)
    quotas = sum(quota.nominal for quota in ledger.quotas if quota.resource == GPUMEM)
    assert sum(ledger.promised_mib(pool.name) for pool in ledger.pools) == seats + quotas
    assert sum(ledger.budget_mib(tenant) for tenant in {seat.tenant for seat in ledger.seats}) == seats


def test_a_pool_advertises_memory_less_the_reserve_on_each_device() -> None:
    assert (pool().gpus, pool().device_mib, pool().node_mib, pool().advertised_mib) == (6, 900, 2700, 5400)


def test_a_seat_of_several_devices_counts_on_each_in_budget_and_quota() -> None:
    pair = Seat(name="pair", tenant="x", pool="t4", gpumem_mib=3000, replicas=3, devices_per_pod=2)
    ledger = Ledger(domain="example.com", pools=(), seats=(pair,))
    assert (ledger.budget_mib("x"), ledger.devices_of("x"), ledger.promised_mib("t4")) == (18000, 6, 18000)
    assert Ledger.from_data(ledger.to_data()) == ledger


def test_a_ledger_of_before_has_seats_of_one_device() -> None:
    old = {"name": "a", "tenant": "x", "pool": "t4", "gpumem_mib": 3000, "replicas": 2}
    ledger = Ledger.from_data({"domain": "example.com", "pools": [], "seats": [old]})
    assert ledger.seats[0].devices_per_pod == 1
    assert ledger.to_data()["seats"] == [old]


def test_a_node_is_the_one_pools_that_matches_it() -> None:
    ledger = Ledger(domain="d", pools=(pool("a"), pool("b", sharing=Sharing.WHOLE)))
    assert ledger.pool_of({"gpu": "a"}) == ledger.pools[0]
    assert ledger.pool_of({"gpu": "b"}) == ledger.pools[1]
    assert ledger.pool_of({"gpu": "c"}) is None


def test_a_node_that_several_pools_match_is_nobodys_and_it_is_said_why() -> None:
    ledger = Ledger(domain="d", pools=(pool("a"), pool("b", node_selector={}), pool("c", node_selector={"gpu": "x"})))
    with pytest.raises(SeveralPoolsError) as several:
        ledger.pool_of({"gpu": "a"})
    assert several.value.pools == ledger.pools[:2]
    assert str(several.value) == (
        "matched by pools.a, pools.b: a node belongs to one pool; narrow a node_selector or relabel the node"
    )


@pytest.mark.parametrize(("memory_mib", "offered_mib"), [(1000, 900), (1200, 900), (500, 400), (50, 0)])
def test_a_device_offers_what_it_has_less_the_reserve_and_no_more_than_its_pool_says(
    memory_mib: int, offered_mib: int
) -> None:
    assert pool().offered_mib(memory_mib) == offered_mib
    assert pool(sharing=Sharing.WHOLE).offered_mib(memory_mib) == 0
