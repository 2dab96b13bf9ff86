"""The seating chart has every number of a ledger, is to scale, and is not too wide."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tenancy.choices import Sharing
from tenancy.drawing.chart import seating_chart
from tenancy.ledger import Ledger, Pool, QueueQuota, Seat
from tests.support.ledgers import ledgers

ANSI = re.compile(r"\x1b\[[0-9;]*m")
WIDTHS = st.sampled_from([40, 80, 100, 120])
T4 = Pool(
    name="t4",
    node_selector={"gpu": "t4"},
    nodes=1,
    device_count=1,
    memory_mib=1000,
    reserve_mib=100,
    driver_reserved_mib=50,
    floor_mib=200,
)
A100 = Pool(name="a100", node_selector={"gpu": "a100"}, nodes=4, device_count=4, memory_mib=40960, reserve_mib=960)


def seat(name: str, gpumem_mib: int, *, replicas: int = 1, pool: str = "t4") -> Seat:
    return Seat(name=name, tenant=name, pool=pool, gpumem_mib=gpumem_mib, replicas=replicas)


def ledger(pool: Pool, *seats: Seat) -> Ledger:
    return Ledger(domain="example.com", pools=(pool,), seats=seats)


def test_the_devices_of_a_pod_are_drawn_on_one_node() -> None:
    pair = Seat(name="pair", tenant="x", pool="a100", gpumem_mib=30000, devices_per_pod=2)
    pool = replace(A100, nodes=2, device_count=3)
    chart = seating_chart(ledger(pool, pair, seat("rest", 20000, pool="a100")), width=120)
    assert "a100: 80000 of 240000 MiB promised" in chart
    assert bars(chart)[0].startswith("2 x ┃pair 30000")
    assert bars(chart)[1].startswith("1 x ┃rest 20000")
    assert "  devices of one node for each pod: pair 2" in chart.splitlines()


def bars(chart: str) -> list[str]:
    return [line for line in chart.splitlines() if "┃" in line]


@given(ledgers(), WIDTHS)
def test_no_line_is_longer_than_the_width(ledger: Ledger, width: int) -> None:
    for colour in (False, True):
        assert (
            max(len(ANSI.sub("", line)) for line in seating_chart(ledger, width=width, colour=colour).split("\n"))
            <= width
        )


@given(ledgers(), WIDTHS)
def test_every_seat_has_its_budget_at_any_width(ledger: Ledger, width: int) -> None:
    chart = " ".join(seating_chart(ledger, width=width).split())
    assert all(f"{one.name} {one.gpumem_mib}" in chart for one in ledger.seats)


@given(ledgers())
def test_an_overrun_is_said_and_nothing_else_is(ledger: Ledger) -> None:
    chart = seating_chart(ledger, width=200)
    for pool in ledger.pools:
        (head,) = (line for line in chart.splitlines() if line.startswith(f"{pool.name}: "))
        whole = pool.sharing is Sharing.WHOLE
        over = (
            ledger.quota_gpus(pool.name) - pool.gpus if whole else ledger.promised_mib(pool.name) - pool.advertised_mib
        )
        assert ("OVER by" in head) is (over > 0)
        assert over <= 0 or f"OVER by {over} {'GPU' if whole else 'MiB'}" in head


def test_who_finds_no_room_is_named() -> None:
    chart = seating_chart(ledger(T4, seat("chat", 700), seat("search", 300)))
    assert "t4: 1000 of 900 MiB promised, OVER by 100 MiB" in chart
    assert "no room for search 300" in chart


def test_whole_devices_are_handed_out_by_queues() -> None:
    pool = Pool(name="batch", node_selector={"a": "b"}, nodes=1, device_count=2, sharing=Sharing.WHOLE)
    quota = QueueQuota(queue="gpu-cq", flavor="any", pool="batch", resource="nvidia.com/gpu", nominal=1)
    chart = seating_chart(Ledger(domain="example.com", pools=(pool,), quotas=(quota,)))
    assert "batch: 1 of 2 GPU promised, 1 free (2 devices, whole)" in chart
    assert "┃gpu-cq 1 " in chart
    assert "queues: gpu-cq 1 nvidia.com/gpu" in chart
