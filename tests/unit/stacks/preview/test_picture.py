"""The picture of a change has a table of what changes, and the pools with their numbers."""

import re
from dataclasses import replace
from html import unescape
from xml.etree import ElementTree

from hypothesis import given

from stacks.preview.picture import picture
from tenancy.ledger import Ledger, Pool, Seat
from tests.support.ledgers import ledgers

T4 = Pool(
    name="t4", node_selector={"gpu": "t4"}, nodes=1, device_count=1, memory_mib=1000, reserve_mib=100, floor_mib=200
)


def seat(name: str, mib: int, *, replicas: int = 1) -> Seat:
    return Seat(name=name, tenant="x", pool="t4", gpumem_mib=mib, replicas=replicas)


def ledger(*seats: Seat, pools: tuple[Pool, ...] = (T4,)) -> Ledger:
    return Ledger(domain="example.com", pools=pools, seats=seats)


def drawn(after: Ledger, before: Ledger | None = None) -> str:
    return picture("prod", after, before, "Before: base.yaml.")


def rows(page: str) -> list[list[str]]:
    """Returns the cells of the table of changes."""
    found = [re.findall("<td[^>]*>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", page)]
    return [row for row in found if row]


def test_the_changed_seats_and_pools_are_listed_and_emphasized() -> None:
    before = ledger(seat("kept", 100), seat("raised", 200), seat("gone", 50))
    after = ledger(seat("kept", 100), seat("raised", 300), seat("new", 60, replicas=2))
    page = drawn(after, before)
    assert rows(page) == [
        ["gone", "50 MiB in t4", "none"],
        ["new", "none", "60 MiB x 2 in t4"],
        ["raised", "200 MiB in t4", "300 MiB in t4"],
        [
            "t4",
            "350 of 900 MiB promised, 550 free (1 device of 1000 MiB, 100 reserved, floor 200)",
            "520 of 900 MiB promised, 380 free (1 device of 1000 MiB, 100 reserved, floor 200)",
        ],
    ]
    emphasized = re.findall('<span class="changed">.*?</svg>(.*?)</span>', page)
    assert emphasized == ["raised 300", "new 60 x 2"]


def test_new_and_removed_pools_are_listed() -> None:
    page = drawn(ledger(pools=(replace(T4, name="l4"),)), ledger())
    assert [(name, "none" in (before, after)) for name, before, after in rows(page)] == [("l4", True), ("t4", True)]


@given(ledgers(), ledgers())
def test_a_picture_is_well_formed_has_every_number_and_loads_nothing(before: Ledger, after: Ledger) -> None:
    page = drawn(after, before)
    ElementTree.fromstring(page.partition("</head>\n")[2].removesuffix("</html>\n"))  # noqa: S314 (our own text)
    assert not re.search(r"src=|href=|url\(|@import|<script|style=", page)
    shown = unescape(page)
    assert all(f"{one.name} {one.gpumem_mib}" in shown for one in after.seats)
    assert all(f"{after.promised_mib(p.name)} of {p.advertised_mib} MiB promised" in shown for p in after.shared_pools)
