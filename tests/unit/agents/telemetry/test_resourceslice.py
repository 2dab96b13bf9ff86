"""Tests that the exporter publishes a node's devices as a ResourceSlice."""

import json
from typing import Any

from agents.telemetry.device import Device, Fault, Survey
from agents.telemetry.resourceslice import PublishingNode, slice_of
from tests.support.devices import card
from tests.support.fake_cluster import NAMES

HOST = PublishingNode(name="k8s-node1", uid="uid-1")


def stored(*devices: Device, host: PublishingNode = HOST, before: Any = None, unreadable: tuple[int, ...] = ()) -> Any:
    survey = Survey(devices=devices, unreadable=unreadable)
    found = json.loads(json.dumps(slice_of(survey, host, NAMES, before)))
    for device in found["spec"]["devices"]:
        for taint in device.get("taints", ()):
            taint["timeAdded"] = "2026-06-02T06:00:00Z"
    return found


def device(found: Any, at: int = 0) -> Any:
    return found["spec"]["devices"][at]


def generation(found: Any) -> int:
    return int(found["spec"]["pool"]["generation"])


def test_a_slice_is_its_nodes_and_goes_with_it() -> None:
    found = stored(card())
    assert found["metadata"]["name"] == "gpumem.viktorbarzin.me-k8s-node1"
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "k8s-node1", "uid": "uid-1", "controller": True}
    ]
    assert {key: value for key, value in found["spec"].items() if key != "devices"} == {
        "driver": "gpumem.viktorbarzin.me",
        "nodeName": "k8s-node1",
        "pool": {"name": "k8s-node1", "generation": 1, "resourceSliceCount": 1},
    }


def test_an_ailing_device_is_tainted_and_a_healthy_one_is_not() -> None:
    found = stored(card(), card(1, fault=Fault.ROW_REMAPPING_FAILED))
    assert "taints" not in device(found)
    (taint,) = device(found, 1)["taints"]
    assert (taint["key"], taint["value"], taint["effect"]) == (
        "viktorbarzin.me/unhealthy",
        "row-remapping-failed",
        "NoSchedule",
    )


def test_a_device_that_cannot_be_read_stays_as_it_was_and_is_tainted() -> None:
    before = stored(card(), card(1, mib=24576))
    found = stored(card(), before=before, unreadable=(1,))
    assert device(found, 1)["taints"][0]["value"] == "unreadable"
    assert {**device(found, 1), "taints": []} == {**device(before, 1), "taints": []}
    assert device(found) == device(before)
    assert len(stored(card(), unreadable=(1,))["spec"]["devices"]) == 1, "it was never read"


def test_the_pools_generation_grows_with_count_and_size_and_not_with_health() -> None:
    one = stored(card())
    assert generation(stored(card(), before=one)) == 1
    assert generation(stored(card(fault=Fault.PAGES_TO_RETIRE), before=one)) == 1
    two = stored(card(), card(1), before=one)
    assert generation(two) == 2
    assert generation(stored(card(), card(1, mib=24576), before=two)) == 3
    assert generation(stored(card(), before=two)) == 3
