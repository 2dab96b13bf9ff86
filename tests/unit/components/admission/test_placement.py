"""Tests in which pools each tenant's GPU pods may run."""

from typing import Any

import pytest

from stacks import settings
from tenancy.admission import placement
from tenancy.ledger import Ledger
from tenancy.names import LABEL_HOSTNAME
from tests.support.prod import Change, drop, put, raw

WHOLE = {"nodes": 1, "sharing": "whole"}


def ledger(*changes: Change) -> Ledger:
    config = raw()
    for change in changes:
        change(config)
    return settings.parse(config).ledger()


def names(config: dict[str, Any]) -> list[str]:
    return [placed.name for placed in placement.queue_tenant_placements(settings.parse(config).ledger())]


@pytest.mark.parametrize(
    ("changes", "own"),
    [
        ([put("kueue namespace", "queueing")], ("gpu-tenancy-system", "queueing")),
        ([drop("kueue")], ("gpu-tenancy-system", "kueue-system")),
        ([drop("kueue"), put("queues installed_kueue", {"namespace": "q"})], ("gpu-tenancy-system", "q")),
        ([drop("kueue"), drop("queues")], ("gpu-tenancy-system",)),
    ],
    ids=["the stack's", "of others", "of others elsewhere", "none"],
)
def test_kueues_namespace_may_use_the_systems_classes(changes: list[Change], own: tuple[str, ...]) -> None:
    terms = ledger(*changes).admission
    assert terms is not None
    assert terms.own == own


def test_a_tenant_of_two_pools_gets_the_labels_they_share_and_one_that_queues_is_left_alone() -> None:
    found = ledger(
        put("unbudgeted second", {"tenant": "android-emulator", "pool": "node-4", "measured_mib": 100}),
        put("residents train", {"tenant": "team-a", "pool": "t4", "gpumem_mib": 100}),
    )
    placed = {tenant: each for each in placement.other_tenant_placements(found) for tenant in each.tenants}
    assert placed["android-emulator"].node_selector == {"nvidia.com/gpu.present": "true"}
    assert "team-a" not in placed


def test_the_seat_in_a_pods_label_decides_for_a_tenant_with_seats_in_several_pools() -> None:
    found = ledger(
        put("residents far", {"tenant": "immich", "pool": "node-4", "gpumem_mib": 100}),
        put("unbudgeted beside", {"tenant": "immich", "pool": "node-4", "measured_mib": 100}),
        put("residents near", {"tenant": "team-a", "pool": "t4", "gpumem_mib": 100}),
        put("residents away", {"tenant": "team-a", "pool": "node-4", "gpumem_mib": 100}),
    )
    seats = {placed.name: placed.seats for placed in placement.seat_placements(found)}
    assert seats == {
        "t4.seats": {"immich": ["immich-ml", "immich-server"], "team-a": ["near"]},
        "node-4.seats": {"immich": ["", "far"], "team-a": ["away"]},
    }
    assert "immich" not in {tenant for each in placement.other_tenant_placements(found) for tenant in each.tenants}


def test_a_tenant_with_all_seats_in_one_pool_needs_no_label() -> None:
    assert placement.seat_placements(ledger()) == []


def test_a_queue_over_two_pools_goes_by_the_labels_they_share() -> None:
    l4 = {"gpu.example.com/model": "l4", "nvidia.com/gpu.sharing-strategy": "none", LABEL_HOSTNAME: "l4"}
    found = ledger(
        put("pools l4", {"node_selector": l4, **WHOLE}),
        put("pools batch node_selector", {**l4, "gpu.example.com/model": "t4", LABEL_HOSTNAME: "t4"}),
        put("queues flavors l4", {"pool": "l4", "node_labels": {"gpu.example.com/model": "l4"}}),
        put("queues cluster_queues gpu-cq quotas l4", {"nvidia.com/gpu": {"nominal": 1}}),
    )
    (placed,) = placement.queue_tenant_placements(found)
    assert placed.name == "batch.l4"
    assert placed.node_selector == {"nvidia.com/gpu.sharing-strategy": "none"}


def test_a_queue_for_shared_memory_places_nobody() -> None:
    memory = {"t4-memory": {"viktorbarzin.me/gpumem": {"nominal": 500}}}
    found = ledger(
        put("queues flavors", {"t4-memory": {"pool": "t4"}}), put("queues cluster_queues gpu-cq quotas", memory)
    )
    assert placement.queue_tenant_placements(found) == []
