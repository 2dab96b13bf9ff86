"""Seats as claims, on the real scheduler: it gives shares of devices, in MiB, from the exporter's form of a slice.

The nodes are simulated and their slices written here. That a container gets the device of its claim is not shown: that
takes a kubelet plugin of the driver, and there is none.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from agents.telemetry.device import Device, Fault, Survey
from agents.telemetry.resourceslice import SLICES, PublishingNode, slice_of
from components import claims
from components.admission.policy import binding
from components.base.system import namespace
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.units import MIB
from tests.e2e.rollout import Object, becomes, condition, eventually, pods
from toolchain.cluster.cluster import HeldCluster

CHAT, VISION = "claims-chat", "claims-vision"
LABELS = {"claims-test/gpu": "t4"}
POOL = Pool(name="t4", node_selector=LABELS, nodes=1, device_count=1, memory_mib=15360, reserve_mib=1360)
LEDGER = Ledger(
    domain="viktorbarzin.me",
    pools=(POOL,),
    seats=(
        Seat(name="chat", tenant=CHAT, pool="t4", gpumem_mib=8000, replicas=2),
        Seat(name="vision", tenant=VISION, pool="t4", gpumem_mib=5000),
    ),
)
NAMES = LEDGER.names
NODE = "claims-node"
RESOURCES = "/apis/resource.k8s.io/v1"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
SLICE = f"{SLICES}/{NAMES.device_driver}-{NODE}"


def claims_path(tenant: str) -> str:
    return f"{RESOURCES}/namespaces/{tenant}/resourceclaims"


@pytest.fixture(scope="module")
def cluster(real_cluster: HeldCluster) -> Iterator[HeldCluster]:
    """A node of the pool, and all that the component declares, under strict validation."""
    api = real_cluster.api
    real_cluster.add_node(NODE, labels=LABELS, resources={})
    policies = claims.claim_policies(LEDGER)
    made: list[tuple[str, Mapping[str, Any]]] = [
        *(("/api/v1/namespaces", namespace(tenant, "baseline")) for tenant in (CHAT, VISION)),
        *((POLICIES, policy) for policy in policies),
        *((f"{POLICIES.removesuffix('policies')}policybindings", binding(policy)) for policy in policies),
        *(
            (f"/api/v1/namespaces/{tenant}/resourcequotas", claims.quota(tenant, LEDGER.seats_of(tenant), NAMES))
            for tenant in (CHAT, VISION)
        ),
        *((f"{RESOURCES}/deviceclasses", claims.device_class(seat, LEDGER)) for seat in LEDGER.seats),
        *(
            (f"{RESOURCES}/namespaces/{seat.tenant}/resourceclaimtemplates", claims.claim_template(seat, LEDGER))
            for seat in LEDGER.seats
        ),
    ]
    try:
        for collection, manifest in made:
            api.create(collection, manifest)
        eventually(lambda: write(real_cluster, CHAT, claim(CHAT, "vision", "1Mi")), "the policies are in force")
        yield real_cluster
    finally:
        for collection, manifest in reversed(made):
            api.request("DELETE", f"{collection}/{manifest['metadata']['name']}")
        api.request("DELETE", f"/api/v1/nodes/{NODE}")


@pytest.fixture
def one_device(cluster: HeldCluster) -> Iterator[HeldCluster]:
    """A device of 14000 MiB to share; all pods and the slice are gone afterwards."""
    yield from devices(cluster, [card()])


@pytest.fixture
def two_devices(cluster: HeldCluster) -> Iterator[HeldCluster]:
    """Two of them, and the first is ailing."""
    yield from devices(cluster, [card(fault=Fault.ROW_REMAPPING_FAILED), card(1)])


def devices(cluster: HeldCluster, cards: Sequence[Device]) -> Iterator[HeldCluster]:
    publish(cluster, cards)
    yield cluster
    for tenant in (CHAT, VISION):
        for found in items(cluster, pods(tenant)):
            cluster.api.request("DELETE", f"{pods(tenant, found['metadata']['name'])}?gracePeriodSeconds=0")
        eventually(lambda tenant=tenant: not items(cluster, claims_path(tenant)), "the claims went with their pods")
    cluster.api.request("DELETE", SLICE)


def card(gpu: int = 0, fault: Fault | None = None) -> Device:
    total = 15360 * MIB
    return Device(gpu=gpu, uuid=f"GPU-{gpu}", total_bytes=total, used_bytes=0, free_bytes=total, fault=fault)


def publish(cluster: HeldCluster, cards: Sequence[Device]) -> None:
    """As the exporter does."""
    uid = (cluster.api.get(f"/api/v1/nodes/{NODE}") or {})["metadata"]["uid"]
    before = cluster.api.get(SLICE)
    found = slice_of(Survey(devices=tuple(cards)), PublishingNode(name=NODE, uid=uid, pool=POOL), NAMES, before)
    if before is None:
        cluster.api.create(SLICES, found)
    else:
        cluster.api.patch(SLICE, {"spec": found["spec"]})


def items(cluster: HeldCluster, path: str) -> list[Object]:
    return list((cluster.api.get(path) or {})["items"])


def start(cluster: HeldCluster, resident: str, name: str) -> None:
    """A pod that carries what the stack's output says."""
    stanza = claims.resident_stanzas(LEDGER)[resident]
    spec = {
        "nodeSelector": stanza["nodeSelector"],
        "resourceClaims": stanza["resourceClaims"],
        "containers": [{"name": "main", "image": "busybox:1.37.0", "resources": stanza["resources"]}],
    }
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.api.create(pods(stanza["namespace"]), manifest)


def pod(cluster: HeldCluster, tenant: str, name: str) -> Object:
    return cluster.api.get(pods(tenant, name)) or {}


def result(cluster: HeldCluster, tenant: str, name: str) -> Object:
    """What the pod's claim was given, once the pod is bound."""
    becomes(lambda: pod(cluster, tenant, name)["spec"].get("nodeName"), NODE, f"{name} is bound")
    (status,) = pod(cluster, tenant, name)["status"]["resourceClaimStatuses"]
    found = cluster.api.get(f"{claims_path(tenant)}/{status['resourceClaimName']}") or {}
    (given,) = found["status"]["allocation"]["devices"]["results"]
    outcome: Object = given
    return outcome


def test_claims_that_fit_share_a_device_each_with_its_mib(one_device: HeldCluster) -> None:
    start(one_device, "chat", "chat-0")
    start(one_device, "vision", "vision-0")
    given = [result(one_device, CHAT, "chat-0"), result(one_device, VISION, "vision-0")]
    assert [(each["pool"], each["device"]) for each in given] == [(NODE, "gpu-0")] * 2
    assert [each["consumedCapacity"] for each in given] == [
        {"gpumem": "8000Mi", "memory": "0"},
        {"gpumem": "5000Mi", "memory": "0"},
    ]


def test_a_claim_that_does_not_fit_waits_with_the_reason_until_there_is_a_device(one_device: HeldCluster) -> None:
    start(one_device, "chat", "chat-0")
    assert result(one_device, CHAT, "chat-0")["device"] == "gpu-0"
    start(one_device, "chat", "chat-1")

    def why() -> str:
        return str(condition(pod(one_device, CHAT, "chat-1"), "PodScheduled").get("message", ""))

    eventually(lambda: "cannot allocate all claims" in why(), "the scheduler says why")
    assert "nodeName" not in pod(one_device, CHAT, "chat-1")["spec"]
    publish(one_device, [card(), card(1)])
    assert result(one_device, CHAT, "chat-1")["device"] == "gpu-1"


def test_an_ailing_device_is_given_to_nobody(two_devices: HeldCluster) -> None:
    start(two_devices, "vision", "vision-0")
    assert result(two_devices, VISION, "vision-0")["device"] == "gpu-1"


def claim(tenant: str, seat: str, mib: str | None, **request: Any) -> dict[str, Any]:
    capacity = {} if mib is None else {"capacity": {"requests": {"gpumem": mib}}}
    exactly = {"deviceClassName": NAMES.device_class(seat), **capacity, **request}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "try", "namespace": tenant},
        "spec": {"devices": {"requests": [{"name": "gpumem", "exactly": exactly}]}},
    }


def write(cluster: HeldCluster, tenant: str, manifest: Mapping[str, Any]) -> str:
    """Why the object is refused; empty where it is not."""
    plural = f"{manifest['kind'].lower()}s"
    path = f"{RESOURCES}/namespaces/{tenant}/{plural}?dryRun=All&fieldValidation=Strict"
    return cluster.api.request("POST", path, dict(manifest)).refusal or ""


ONE_OF = {
    "name": "gpumem",
    "firstAvailable": [{"name": "a", "deviceClassName": NAMES.device_class("chat"), "count": 1}],
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another tenant's seat": (claim(CHAT, "vision", "1Mi"), "a seat that its namespace does not have"),
    "a seat that nobody has": (claim(CHAT, "nobody", "1Mi"), "a seat that its namespace does not have"),
    "more than the seat holds": (claim(CHAT, "chat", "8001Mi"), "asks for more gpumem than its seat holds"),
    "more, in other words": (claim(CHAT, "chat", "8Gi"), "asks for more gpumem than its seat holds"),
    "without a size": (claim(CHAT, "chat", None), "asks for more gpumem than its seat holds, or does not say how much"),
    "two devices": (claim(CHAT, "chat", "1Mi", count=2), "asks for more than one device"),
    "all devices": (claim(CHAT, "chat", "1Mi", allocationMode="All"), "asks for more than one device"),
    "a seat among others": (
        {**claim(CHAT, "chat", "1Mi"), "spec": {"devices": {"requests": [ONE_OF]}}},
        "asks for a seat among others under firstAvailable",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_claim_is_held_to_the_seat_and_so_is_a_template(cluster: HeldCluster, case: str) -> None:
    manifest, message = REFUSED[case]
    assert message in write(cluster, CHAT, manifest)
    template = {**manifest, "kind": "ResourceClaimTemplate", "spec": {"spec": manifest["spec"]}}
    assert message in write(cluster, CHAT, template)


def test_a_claim_within_the_seat_and_one_on_another_drivers_devices_pass(cluster: HeldCluster) -> None:
    assert write(cluster, CHAT, claim(CHAT, "chat", "8000Mi")) == ""
    foreign = claim(CHAT, "chat", None, deviceClassName="gpu.nvidia.com", allocationMode="All")
    assert write(cluster, CHAT, foreign) == ""


def test_a_tenant_claims_no_more_seats_than_it_has(one_device: HeldCluster) -> None:
    """The third pod is made, and its claim is not: the controller is held by the quota as everybody is."""
    publish(one_device, [card(), card(1), card(2)])
    for name in ("chat-0", "chat-1", "chat-2"):
        start(one_device, "chat", name)
        if name != "chat-2":
            result(one_device, CHAT, name)

    def told() -> bool:
        events = items(one_device, f"/api/v1/namespaces/{CHAT}/events")
        return any("exceeded quota: gpumem-seat-claims" in event.get("message", "") for event in events)

    eventually(told, "the quota's refusal is told on the pod")
    assert len(items(one_device, claims_path(CHAT))) == 2
    assert "exceeded quota: gpumem-seat-claims" in write(one_device, CHAT, claim(CHAT, "chat", "1Mi"))
