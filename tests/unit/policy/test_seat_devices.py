"""Tests seats with several devices, also by comparison with all possible placements."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.admitted import PodJudge
from tenancy.ledger import Ledger, Pool, Seat, Tenant
from tenancy.policy_names import SEAT_SIZES
from tenancy.seat_sizes import SeatSizes
from tests.support.graphs import GPUMEM, LEDGER, T4, judge, ledger_object, platform, pool, put, seat
from tests.support.placements import by_trying_everything

LLAMA = "spec.template.spec.containers.0"
COUNTED = "viktorbarzin.me/gpu-count"
AS_A_SEAT = "ask for 2500 (2 devices) MiB, times viktorbarzin.me/gpu-count where it is on several"
MIB, COUNTS, DEVICES = st.integers(1, 9), st.integers(1, 2), st.integers(1, 4)
RESIDENTS = st.lists(st.builds(dict, gpumem_mib=MIB, replicas=COUNTS, devices_per_pod=DEVICES), max_size=4)
POOLS = st.builds(dict, nodes=st.integers(1, 3), device_count=DEVICES, memory_mib=st.integers(1, 14))


def stack(residents: list[dict[str, Any]], of: dict[str, int]) -> Ledger:
    only = Pool(name="t4", node_selector=T4.node_selector, reserve_mib=0, driver_reserved_mib=0, floor_mib=0, **of)
    seats = tuple(Seat(name=f"r{number}", tenant="t", pool="t4", **each) for number, each in enumerate(residents))
    return Ledger(domain=LEDGER.domain, pools=(only,), seats=seats)


def refusals(ledger: Ledger) -> list[str]:
    lines = judge({"ledger": ledger_object(ledger)})
    return [line for line in lines if line.split(":")[0] in ("budgets", "seat-size", "placement")]


@given(RESIDENTS, POOLS)
def test_the_preview_passes_residents_just_when_a_placement_keeps_them_all(
    residents: list[dict[str, Any]], of: dict[str, int]
) -> None:
    ledger = stack(residents, of)
    requests = tuple(sorted((s.gpumem_mib, s.devices_per_pod) for s in ledger.seats for _ in range(s.replicas)))
    fit = by_trying_everything(requests, ((of["memory_mib"],) * of["device_count"],) * of["nodes"])
    found = refusals(ledger)
    assert fit == (found == []), found
    assert "cannot be proven" not in str(found)


def test_three_pods_of_two_devices_do_not_fit_two_nodes_of_three() -> None:
    pair = {"gpumem_mib": 8, "replicas": 3, "devices_per_pod": 2}
    size = {"nodes": 2, "device_count": 3, "memory_mib": 10}
    assert refusals(stack([{**pair, "replicas": 2}], size)) == []
    assert refusals(stack([pair], size)) == [
        "placement: t4: the seats do not fit on 6 devices of 10 MiB: r0 8 on 2 devices x 3: 3 pods with 8 MiB or more "
        "on 2 or more devices of a node; the nodes have room for 2; lower one of these budgets or raise pools.t4"
    ]


def test_a_seat_with_more_devices_than_a_node_is_refused_with_its_key() -> None:
    assert refusals(
        stack([{"gpumem_mib": 1, "devices_per_pod": 3}], {"nodes": 2, "device_count": 2, "memory_mib": 9})
    ) == ["seat-size: r0: 3 devices a replica, a node of t4 has 2; lower residents.r0.devices_per_pod"]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({GPUMEM: "5000", COUNTED: "2"}, None),
        ({GPUMEM: "5000"}, AS_A_SEAT),
        ({GPUMEM: "2500"}, AS_A_SEAT),
        ({GPUMEM: "5002", COUNTED: "2"}, "a pod asks for 5002 MiB on 2 devices, its seat has 2500; lower its limits"),
        (
            {GPUMEM: "2000", COUNTED: "2"},
            AS_A_SEAT,
        ),
    ],
)
def test_a_pod_has_just_the_devices_of_its_seat(limits: dict[str, str], message: str | None) -> None:
    two = seat("llama-swap", gpumem_mib=2500, devices_per_pod=2)
    program = platform(replace(two, pools=pool("t4", device_count=2, floor_mib=1).pools))
    put(program["llama-swap"], f"{LLAMA}.resources.limits", limits)
    reported = judge(program)
    assert bool(reported) == bool(message), reported
    assert message is None or any(message in line for line in reported), reported


def test_admission_takes_pods_as_large_as_a_seat_or_as_several_seats_of_one_device() -> None:
    pool = Pool(name="t4", node_selector=T4.node_selector, nodes=1, device_count=6, memory_mib=15360, reserve_mib=1360)
    seats = (
        Seat(name="alone", tenant="x", pool="t4", gpumem_mib=3000, replicas=2),
        Seat(name="pair", tenant="x", pool="t4", gpumem_mib=5000, replicas=2, devices_per_pod=2),
        Seat(name="four", tenant="x", pool="t4", gpumem_mib=5000, devices_per_pod=4),
    )
    ledger = Ledger(domain=LEDGER.domain, pools=(pool,), seats=seats, tenants=(Tenant(name="x"),))

    def is_a_seat(mib: int, devices: int) -> bool:
        limits = {GPUMEM: str(mib * devices), COUNTED: str(devices)}
        pod = {"spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]}}
        return SEAT_SIZES not in {refusal.part for refusal in PodJudge(ledger, "x", pod).refusals()}

    admitted = {(mib, devices) for mib in (3000, 5000, 6000) for devices in range(1, 7) if is_a_seat(mib, devices)}
    assert admitted == {(3000, 1), (3000, 2), (5000, 2), (5000, 4)}
    assert SeatSizes.of(seats).texts == ["3000", "5000 (2 devices)", "5000 (4 devices)"]


def test_a_second_pod_on_a_seat_of_one_is_counted_by_its_devices() -> None:
    two = seat("llama-swap", gpumem_mib=2500, devices_per_pod=2)
    program = platform(replace(two, pools=pool("t4", device_count=2, floor_mib=1).pools))
    put(program["llama-swap"], f"{LLAMA}.resources.limits", {GPUMEM: "5000", COUNTED: "2"})
    put(program["llama-swap"], "spec.replicas", 2)
    assert "4 devices sit on a seat of 2 x 2500 MiB" in str(judge(program))
