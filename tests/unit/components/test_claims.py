"""Seats as claims: what is declared, and in which order."""

import json
from dataclasses import replace

import pytest

from components.claims import Claims, ClaimsArgs, resident_stanzas
from tenancy.ledger import ClaimedDevices, Seat
from tests.support.engine import Graph, names
from tests.support.given import LEDGER, declared

VISION = Seat(name="vision", tenant="vision", pool="t4", gpumem_mib=2048, replicas=2)
SPEECH = Seat(name="speech", tenant="vision", pool="t4", gpumem_mib=1000)
LEDGER_OF_THREE = replace(LEDGER, seats=(*LEDGER.seats, SPEECH, VISION))


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Claims, "claims", ClaimsArgs(ledger=LEDGER_OF_THREE))


def test_each_seat_is_a_class_and_a_template_in_its_tenants_namespace(graph: Graph) -> None:
    assert {found.inputs["metadata"]["name"] for found in graph.all("DeviceClass")} == {
        "chat.gpumem.example.com",
        "speech.gpumem.example.com",
        "vision.gpumem.example.com",
    }
    templates = {found.inputs["metadata"]["name"]: found.inputs for found in graph.all("ResourceClaimTemplate")}
    assert templates["vision-gpumem"]["metadata"]["namespace"] == "vision"
    (request,) = templates["vision-gpumem"]["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "vision.gpumem.example.com",
        "allocationMode": "ExactCount",
        "count": 1,
        "capacity": {"requests": {"gpumem": "2Gi"}},
    }


def test_a_class_holds_our_devices_of_the_seats_pool_and_is_no_extended_resource(graph: Graph) -> None:
    (chat,) = (each for each in graph.all("DeviceClass") if each.inputs["metadata"]["name"].startswith("chat"))
    (selector,) = chat.inputs["spec"]["selectors"]
    assert 'device.driver == "gpumem.example.com"' in selector["cel"]["expression"]
    assert 'device.attributes["gpumem.example.com"].pool == "t4"' in selector["cel"]["expression"]
    assert "extendedResourceName" not in chat.inputs["spec"]


def test_a_tenants_quota_is_the_replicas_of_each_of_its_seats(graph: Graph) -> None:
    quotas = {
        found.inputs["metadata"]["namespace"]: found.inputs["spec"]["hard"] for found in graph.all("ResourceQuota")
    }
    assert quotas == {
        "chat": {"chat.gpumem.example.com.deviceclass.resource.k8s.io/devices": "1"},
        "vision": {
            "speech.gpumem.example.com.deviceclass.resource.k8s.io/devices": "1",
            "vision.gpumem.example.com.deviceclass.resource.k8s.io/devices": "2",
        },
    }


def test_what_limits_claims_is_there_before_there_is_anything_to_claim(graph: Graph) -> None:
    limits = [*graph.all("ValidatingAdmissionPolicyBinding"), *graph.all("ResourceQuota")]
    assert len(limits) == 4
    for found in graph.all("DeviceClass"):
        assert all(graph.depends_on(found, limit) for limit in limits)
    for found in graph.all("ResourceClaimTemplate"):
        assert any(graph.depends_on(found, each) for each in graph.all("DeviceClass"))


def test_a_resident_is_told_what_its_pods_carry() -> None:
    assert resident_stanzas(LEDGER)["chat"] == {
        "namespace": "chat",
        "pool": "t4",
        "nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4", "zone": "a"},
        "resourceClaims": [{"name": "gpumem", "resourceClaimTemplateName": "chat-gpumem"}],
        "resources": {"claims": [{"name": "gpumem"}]},
    }


def test_its_output_is_its_templates(graph: Graph) -> None:
    assert graph.outputs_of(graph.one("Claims")) == {"templates": ["chat-gpumem", "speech-gpumem", "vision-gpumem"]}
    assert "claims-chat-template" in names(graph.children(graph.one("Claims")))


NVIDIA = replace(LEDGER_OF_THREE, claimed=ClaimedDevices(driver="gpu.nvidia.com", shared=True))


@pytest.fixture(scope="module")
def nvidia() -> Graph:
    return declared(Claims, "claims", ClaimsArgs(ledger=NVIDIA))


def expression_of(graph: Graph) -> str:
    (chat,) = (each for each in graph.all("DeviceClass") if each.inputs["metadata"]["name"].startswith("chat"))
    (selector,) = chat.inputs["spec"]["selectors"]
    assert "extendedResourceName" not in chat.inputs["spec"]
    return str(selector["cel"]["expression"])


def test_of_nvidias_driver_a_class_holds_whole_gpus_as_large_as_declared_that_are_shared(nvidia: Graph) -> None:
    assert expression_of(nvidia) == (
        'device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu" && '
        'has(device.capacity["gpu.nvidia.com"].memory) && '
        'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("15Gi")) >= 0 && device.allowMultipleAllocations'
    )
    alone = replace(NVIDIA, claimed=ClaimedDevices(driver="gpu.nvidia.com"))
    assert "allowMultipleAllocations" not in expression_of(declared(Claims, "claims", ClaimsArgs(ledger=alone)))


def test_a_claim_on_nvidias_devices_is_for_the_seat_and_its_part_of_the_reserve(nvidia: Graph) -> None:
    (vision,) = (t for t in nvidia.all("ResourceClaimTemplate") if t.inputs["metadata"]["name"] == "vision-gpumem")
    (request,) = vision.inputs["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"] == {"requests": {"memory": "2247Mi"}}  # 2048 x 15360 / 14000, rounded up


def test_what_no_device_says_of_its_pool_the_pods_are_held_to(graph: Graph, nvidia: Graph) -> None:
    (pods,) = (
        policy
        for policy in nvidia.all("ValidatingAdmissionPolicy")
        if policy.inputs["metadata"]["name"] == "gpu-tenancy-seat-pods"
    )
    (selectors, _) = pods.inputs["spec"]["variables"]
    assert json.loads(selectors["expression"])["vision/vision-gpumem"] == {
        "nvidia.com/gpu.product": "Tesla-T4",
        "zone": "a",
    }
    assert len(graph.all("ValidatingAdmissionPolicy")) == 2
    for found in nvidia.all("DeviceClass"):
        assert all(nvidia.depends_on(found, limit) for limit in nvidia.all("ValidatingAdmissionPolicyBinding"))
