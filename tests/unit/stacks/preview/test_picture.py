"""The picture of a change outlines the changed seats."""

import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from stacks.preview.picture import picture
from tenancy.choices import Sharing
from tenancy.ledger import Ledger, Pool, QueueQuota, Seat
from tests.support.ledgers import ledgers

T4 = Pool(
    name="t4", node_selector={"gpu": "t4"}, nodes=1, device_count=1, memory_mib=1000, reserve_mib=100, floor_mib=200
)
A100 = Pool(name="a100", node_selector={"gpu": "a100"}, nodes=4, device_count=8, memory_mib=40960, reserve_mib=960)


def seat(name: str, mib: int, *, replicas: int = 1, pool: str = "t4") -> Seat:
    return Seat(name=name, tenant="x", pool=pool, gpumem_mib=mib, replicas=replicas)


def ledger(*seats: Seat, pools: tuple[Pool, ...] = (T4,)) -> Ledger:
    return Ledger(domain="example.com", pools=pools, seats=seats)


def drawn(after: Ledger, before: Ledger | None = None) -> str:
    return picture("prod", after, before, "Before: base.yaml.")


def outlined(page: str, side: str) -> list[str]:
    """Returns the titles of the seats with an outline."""
    return [unescape(title) for title in re.findall(f'class="part seat {side}" [^>]*title="([^"]*)"', page)]


def rows(page: str) -> list[list[str]]:
    """Returns the cells of the table of changes."""
    found = [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", page)]
    return [row for row in found if row]


def test_the_changed_seats_are_outlined_and_listed() -> None:
    before = ledger(seat("kept", 100), seat("raised", 200), seat("gone", 50))
    after = ledger(seat("kept", 100), seat("raised", 300), seat("new", 60, replicas=2))
    page = drawn(after, before)
    assert outlined(page, "before") == ["raised of x: 200 MiB", "gone of x: 50 MiB"]
    assert outlined(page, "after") == ["raised of x: 300 MiB", "new of x: 60 MiB x 2"]
    assert rows(page) == [
        ["gone (t4)", "50 MiB", "none"],
        ["new (t4)", "none", "60 MiB x 2"],
        ["raised (t4)", "200 MiB", "300 MiB"],
    ]
    assert "<h2>3 changed seats</h2>" in page


def test_another_number_of_replicas_is_a_change_of_each_replica() -> None:
    page = drawn(ledger(seat("chat", 100, replicas=3)), ledger(seat("chat", 100, replicas=2)))
    assert (outlined(page, "before"), outlined(page, "after")) == (
        ["chat of x: 100 MiB x 2"],
        ["chat of x: 100 MiB x 3"],
    )


def test_a_pool_without_a_change_is_drawn_once_and_last() -> None:
    seats = (seat("a", 100), seat("b", 100, pool="a100"))
    page = drawn(ledger(*seats, seat("c", 1, pool="a100"), pools=(T4, A100)), ledger(*seats, pools=(T4, A100)))
    assert re.findall("<h2>(.*?)</h2>", page) == ["1 changed seat", "a100", "t4"]
    assert re.findall("<figcaption><b>(.*?)</b>", page) == ["before", "after", "before and after"]


def test_a_changed_pool_is_listed_with_the_setting() -> None:
    page = drawn(ledger(pools=(replace(T4, nodes=2),)), ledger())
    assert rows(page) == [["pools.t4.nodes", "1", "2"]]
    assert "<h2>No seat changes</h2>" in page


def test_new_and_removed_pools_are_drawn_on_their_side() -> None:
    page = drawn(ledger(pools=(A100,)), ledger())
    assert re.findall("<figcaption><b>(.*?)</b>(.{13})", page) == [
        ("before", " no such pool"),
        ("after", " 0 of 1280000"),
        ("before", " 0 of 900 MiB"),
        ("after", " no such pool"),
    ]


def test_without_an_earlier_state_only_the_present_seats_are_drawn() -> None:
    page = drawn(ledger(seat("chat", 100)))
    assert "<title>prod: seats</title>" in page
    assert "changed" not in page.partition("</style>")[2]
    assert re.findall("<figcaption><b>(.*?)</b>", page) == ["after"]


@pytest.mark.parametrize(("pool", "possible"), [(T4, False), (A100, True)])
def test_a_seating_is_called_possible_if_there_are_others(pool: Pool, possible: bool) -> None:
    page = drawn(ledger(seat("chat", 100, pool=pool.name), pools=(pool,)))
    assert ("<span>a possible seating on " in page) is possible
    label = "a possible seating on 32 devices: chat 100" if possible else "the seats on 1 device: chat 100"
    assert f'aria-label="{pool.name} after: {label}"' in page


def test_seats_without_room_are_named_and_the_overrun_too() -> None:
    page = drawn(ledger(seat("chat", 700), seat("search", 300)))
    assert "100 MiB too many" in page
    assert "no room for search\N{NO-BREAK SPACE}300" in page


def test_a_pool_with_too_many_seats_says_so() -> None:
    many = replace(A100, nodes=10_000)
    page = drawn(ledger(seat("s", 1, replicas=20_001, pool="a100"), pools=(many,)))
    assert "20001 seats: 20000 at most are drawn; the policy pack places them" in page


def test_whole_devices_are_drawn_with_their_queues() -> None:
    batch = Pool(name="batch", node_selector={"gpu": "l4"}, nodes=1, device_count=4, sharing=Sharing.WHOLE)
    quota = QueueQuota(queue="team-a", flavor="l4", pool="batch", resource="nvidia.com/gpu", nominal=1)
    page = drawn(replace(ledger(pools=(batch,)), quotas=(quota,)), ledger())
    assert 'title="team-a: 1 GPU"' in page
    assert 'title="free: 3 GPUs"' in page
    assert "1 of 4 GPU promised, 3 free" in page


def test_names_cannot_add_markup() -> None:
    page = drawn(ledger(seat('<b>"&', 100)), ledger())
    assert "<b>&quot;" not in page
    assert '<b>"' not in page


@given(ledgers(), ledgers())
@settings(max_examples=60)
def test_a_picture_is_well_formed_and_loads_nothing(before: Ledger, after: Ledger) -> None:
    page = drawn(after, before)
    ElementTree.fromstring(page.partition("</head>\n")[2].removesuffix("</html>\n"))  # noqa: S314 (our own text)
    assert not re.search(r"src=|href=|url\(|@import|<script", page)
