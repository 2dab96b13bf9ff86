"""Tests how the extender computes a node's devices from its Node, its ResourceSlices and the ledger."""

from dataclasses import replace
from typing import Any

import pytest

from agents.extender.cache.inventory import NodeDevice, devices_of
from agents.kube.nodes import node_of
from agents.telemetry.device import Device, Survey
from agents.telemetry.resourceslice import PublishingNode, slice_of
from tenancy.choices import Enforce, Sharing
from tenancy.ledger import Ledger, Pool
from tenancy.units import MIB
from tests.support.devices import device_object, node_object, slice_object
from tests.support.fake_cluster import DOMAIN, NAMES, T4

BATCH = Pool(name="batch", node_selector={"queue": "yes"}, nodes=1, device_count=1, sharing=Sharing.WHOLE)
LEDGER = Ledger(domain=DOMAIN, pools=(T4, BATCH))


def changed(device: dict[str, Any], *path: str, value: Any) -> dict[str, Any]:
    *parents, field = path
    place = device
    for parent in parents:
        place = place[parent]
    place[field] = value
    return device


def test_a_device_offers_its_memory_less_the_pools_reserve() -> None:
    found = devices_of(node_of(node_object()), [slice_object(device_object(0), device_object(1, 24576))], LEDGER)
    assert (found.pool, found.floor_mib, found.unusable) == ("t4", 1536, None)
    assert found.devices == (NodeDevice(0, "GPU-0", 14000), NodeDevice(1, "GPU-1", 14000))


def test_a_device_smaller_than_its_pool_says_offers_what_it_has() -> None:
    (device,) = devices_of(node_of(node_object()), [slice_object(device_object(0, 8192))], LEDGER).devices
    assert device.offered_mib == 8192 - 1360


def test_what_the_exporter_publishes_is_what_placement_reads() -> None:
    card = Device(gpu=0, uuid="GPU-a", total_bytes=15360 * MIB, used_bytes=0, free_bytes=0)
    published = slice_of(Survey(devices=(card,)), PublishingNode(name="k8s-node1", uid="u"), NAMES, None)
    assert devices_of(node_of(node_object()), [published], LEDGER).devices == (NodeDevice(0, "GPU-a", 14000),)


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_tainted_device_offers_nothing(effect: str) -> None:
    found = devices_of(
        node_of(node_object()), [slice_object(device_object(0, 15360, effect), device_object(1))], LEDGER
    )
    assert [device.offered_mib for device in found.devices] == [0, 14000]


def test_a_device_that_the_operator_excludes_offers_nothing() -> None:
    node = node_object(annotations={NAMES.device_excluded: "0, 2"})
    found = devices_of(node_of(node), [slice_object(*map(device_object, range(3)))], LEDGER)
    assert [device.offered_mib for device in found.devices] == [0, 14000, 0]


def test_an_excluded_card_stays_excluded_whatever_its_index_becomes() -> None:
    """Before the fix, an exclusion was an index. A card that fell off the bus left its index to a healthy one."""
    node = node_of(node_object(annotations={NAMES.device_excluded: "GPU-b"}))

    def offered(*uuids: str) -> dict[str, int]:
        published = [device_object(index, uuid=uuid) for index, uuid in enumerate(uuids)]
        return {each.uuid: each.offered_mib for each in devices_of(node, [slice_object(*published)], LEDGER).devices}

    assert offered("GPU-a", "GPU-b", "GPU-c") == {"GPU-a": 14000, "GPU-b": 0, "GPU-c": 14000}
    assert offered("GPU-a", "GPU-c") == {"GPU-a": 14000, "GPU-c": 14000}
    assert offered("GPU-a", "GPU-c", "GPU-b") == {"GPU-a": 14000, "GPU-c": 14000, "GPU-b": 0}


def test_a_half_published_generation_does_not_fall_back_on_the_one_before() -> None:
    slices = [slice_object(device_object(0)), slice_object(device_object(1), generation=2, count=2)]
    found = devices_of(node_of(node_object()), slices, LEDGER)
    assert (found.devices, found.unusable) == ((), "its devices are partly published: 1 of 2 ResourceSlices")


UNUSABLE: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "no pool": (node_object(labels={"gpu": "none"}), [slice_object(device_object(0))], "is in no pool that shares"),
    "whole devices": (node_object(labels={"queue": "yes"}), [slice_object(device_object(0))], "is in no pool"),
    "two pools": (
        node_object(labels={"gpu": "t4", "queue": "yes"}),
        [slice_object()],
        "is matched by pools.t4, pools.batch: a node belongs to one pool; narrow a node_selector or relabel the node",
    ),
    "no slice": (node_object(), [], "its devices are not published"),
    "two names of pools": (
        node_object(),
        [slice_object(), changed(slice_object(), "spec", "pool", "name", value="other")],
        "its ResourceSlices are of several pools: k8s-node1, other",
    ),
    "unreadable exclusion": (
        node_object(annotations={NAMES.device_excluded: "all"}),
        [slice_object(device_object(0))],
        "its annotation device.viktorbarzin.me/excluded is not a list of UUIDs: 'all'",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_is_not_as_it_must_be_makes_the_node_unusable(case: str) -> None:
    node, slices, reason = UNUSABLE[case]
    found = devices_of(node_of(node), slices, LEDGER)
    assert found.devices == ()
    assert (found.unusable or "").startswith(reason)


HELD = replace(T4, enforce=Enforce.DRIVER)
CAPPED = replace(LEDGER, pools=(HELD, BATCH))


def said(index: int, ability: str | None) -> dict[str, Any]:
    found = device_object(index)
    return found | {"attributes": found["attributes"] | ({"memoryCap": {"string": ability}} if ability else {})}


@pytest.mark.parametrize(
    ("ability", "why"),
    [("cgroup-v1", "cgroup-v1"), ("driver-too-old", "driver-too-old"), (None, "its exporter has not said yet")],
)
def test_a_node_that_cannot_hold_containers_takes_none_where_its_pool_wants_it_to(
    ability: str | None, why: str
) -> None:
    slices = [slice_object(said(0, ability), said(1, ability))]
    found = devices_of(node_of(node_object()), slices, CAPPED)
    assert found.unusable == (f"its driver cannot hold containers to their gpumem as pools.t4.enforce wants: {why}")
    assert not devices_of(node_of(node_object()), slices, LEDGER).unusable, "what nobody wants is no reason"


def test_of_its_devices_one_that_cannot_takes_none_and_the_others_do() -> None:
    found = devices_of(node_of(node_object()), [slice_object(said(0, "able"), said(1, "mig"))], CAPPED)
    assert [device.offered_mib for device in found.devices] == [14000, 0]
