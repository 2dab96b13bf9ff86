"""Opens pictures of changes in a headless browser, in narrow and wide windows, on light and dark backgrounds."""

from dataclasses import replace
from pathlib import Path

import pytest

from stacks.preview.picture import picture
from tenancy.ledger import Ledger, Pool, QueueQuota, Seat
from tests.support.browser import Browser
from tests.support.page_texts import LEAST_CONTRAST, LEAST_PIXELS, TEXTS, overlaps

WIDTHS = (800, 1600)
LONGEST = "a-seat-with-a-name-of-sixty-three-characters-the-most-in-a-label"


def pool(nodes: int, devices: int) -> Pool:
    return Pool(
        name="a100",
        node_selector={"gpu": "a100"},
        nodes=nodes,
        device_count=devices,
        memory_mib=40960,
        reserve_mib=960,
        floor_mib=1536,
    )


def seats(devices: int) -> list[Seat]:
    """Returns seats for three quarters of the devices' memory: 14 kinds, and one seat for each of 30 names."""
    sizes = (500, 1200, 2500, 5000, 8000, 12000, 20000, 300)
    names = [LONGEST, "llama-swap", "immich-ml", *(f"service-{number}" for number in range(11))]
    kinds = [
        Seat(
            name=name, tenant=f"team-{number % 5}", pool="a100", gpumem_mib=mib, replicas=max(devices * 1500 // mib, 1)
        )
        for number, name in enumerate(names)
        for mib in (sizes[number % len(sizes)],)
        if devices > 1 or mib <= 5000
    ]
    return [*kinds, *(Seat(name=f"small-{n}", tenant="small", pool="a100", gpumem_mib=40 + n) for n in range(30))]


def pages(nodes: int, devices: int) -> str:
    old = Ledger(
        domain="example.com",
        pools=(pool(nodes, devices),),
        seats=tuple(seats(nodes * devices)),
        quotas=(QueueQuota(queue="q", flavor="f", pool="a100", resource="example.com/gpumem", nominal=nodes * 900),),
    )
    first, second, _, *rest = old.seats
    added = Seat(name="new-and-small", tenant="team-9", pool="a100", gpumem_mib=77)
    changed = (
        replace(first, gpumem_mib=first.gpumem_mib + 100),
        replace(second, replicas=second.replicas + 1),
        *rest,
        added,
    )
    return picture("prod", replace(old, seats=changed), old, "Before: build/base/Pulumi.prod.yaml.")


@pytest.mark.parametrize(("nodes", "devices"), [(1, 1), (8, 8), (64, 4)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_texts_of_a_picture_are_whole_readable_and_apart(
    tab: Browser, tmp_path: Path, nodes: int, devices: int, scheme: str
) -> None:
    file = tmp_path / "picture.html"
    file.write_text(pages(nodes, devices))
    tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    for width in WIDTHS:
        tab.open(file.as_uri(), width, 900)
        state = tab.evaluate(TEXTS)
        texts = state["texts"]
        assert overlaps(texts) == []
        assert state["width"] <= width
        assert [each["text"] for each in texts if each["cut"]] == []
        assert [each["text"] for each in texts if each["pixels"] < LEAST_PIXELS] == []
        assert [each["text"] for each in texts if each["contrast"] < LEAST_CONTRAST] == []
        assert (state["title"], state["unlabelled"]) == ("prod: seats", 0)
        assert state["pictures"]
        shown = " ".join(each["text"] for each in texts)
        assert all(name in shown for name in ("new-and-small", LONGEST))
    assert tab.requested == [file.as_uri()]
