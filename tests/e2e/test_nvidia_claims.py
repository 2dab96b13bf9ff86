"""Tests seats that are ResourceClaims for devices of NVIDIA's DRA driver, with a real kube-scheduler. The nodes are
simulated.

The tests do not show that NVIDIA's kubelet plugin can prepare one device for two claims.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from agents.kube.slices import SLICES
from components import claims
from components.admission.policy import binding
from components.agents.exporter import device_claim
from components.base.system import namespace, node_namespace
from tenancy.choices import ConsumableShares
from tenancy.ledger import Ledger, Pool, Seat
from tenancy.names import NVIDIA_DEVICE_DRIVER
from tests.support.e2e.rollout import Object, becomes, condition, eventually, pods
from tests.support.nvidia_slices import Gpu, nvidia_slice
from toolchain.cluster.cluster import HeldCluster

CHAT, VISION, WHOLE = "nvidia-chat", "nvidia-vision", "nvidia-whole"
AGENTS = "nvidia-agents"
LABELS = {"nvidia-claims-test/gpu": "t4"}
NODE, STRANGE = "nvidia-node", "nvidia-elsewhere"
POOL = Pool(name="t4", node_selector=LABELS, nodes=1, device_count=2, memory_mib=15360, reserve_mib=1360)
LEDGER = Ledger(
    domain="viktorbarzin.me",
    pools=(POOL,),
    seats=(
        Seat(name="chat", tenant=CHAT, pool="t4", gpumem_mib=7000, replicas=2),
        Seat(name="vision", tenant=VISION, pool="t4", gpumem_mib=1000),
        Seat(name="whole", tenant=WHOLE, pool="t4", gpumem_mib=1000, replicas=2),
    ),
    claimed=ConsumableShares.MEMORY,
)
# By default, the driver gives each claim a whole device.
ALONE = replace(LEDGER, claimed=ConsumableShares.DISABLED)
# deployments/helm/dra-driver-nvidia-gpu/templates/deviceclass-gpu.yaml
WHOLE_GPUS = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"
NVIDIAS_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": WHOLE_GPUS}}], "extendedResourceName": "nvidia.com/gpu"},
}
RESOURCES = "/apis/resource.k8s.io/v1"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
STANZAS = claims.resident_stanzas(LEDGER)


def of_namespace(tenant: str, plural: str) -> str:
    return f"{RESOURCES}/namespaces/{tenant}/{plural}"


@pytest.fixture(scope="module")
def cluster(real_cluster: HeldCluster) -> Iterator[HeldCluster]:
    api = real_cluster.api
    real_cluster.add_node(NODE, labels=LABELS, resources={})
    real_cluster.add_node(STRANGE, labels={}, resources={})
    policies = claims.claim_policies(LEDGER)
    made: list[tuple[str, Mapping[str, Any]]] = [
        *(("/api/v1/namespaces", namespace(tenant, "baseline")) for tenant in (CHAT, VISION, WHOLE)),
        ("/api/v1/namespaces", node_namespace(AGENTS, claims_devices=True)),
        (f"{RESOURCES}/deviceclasses", NVIDIAS_CLASS),
        *((POLICIES, policy) for policy in policies),
        *((f"{POLICIES.removesuffix('policies')}policybindings", binding(policy)) for policy in policies),
    ]
    for seat in LEDGER.seats:
        quota = claims.quota(seat.tenant, [seat], LEDGER.names)
        made.append((f"/api/v1/namespaces/{seat.tenant}/resourcequotas", quota))
        made.append(
            (f"{RESOURCES}/deviceclasses", claims.device_class(seat, ALONE if seat.name == "whole" else LEDGER))
        )
        made.append((of_namespace(seat.tenant, "resourceclaimtemplates"), claims.claim_template(seat, LEDGER)))
    try:
        for collection, manifest in made:
            api.create(collection, manifest)
        eventually(lambda: write(real_cluster, VISION, claim()), "the policies are in force")
        yield real_cluster
    finally:
        for collection, manifest in reversed(made):
            api.request("DELETE", f"{collection}/{manifest['metadata']['name']}")
        for name in (NODE, STRANGE):
            api.request("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture
def devices(cluster: HeldCluster) -> Iterator[HeldCluster]:
    yield cluster
    for tenant in (CHAT, VISION, WHOLE, AGENTS):
        for found in items(cluster, pods(tenant)):
            cluster.api.request("DELETE", f"{pods(tenant, found['metadata']['name'])}?gracePeriodSeconds=0")
        path = of_namespace(tenant, "resourceclaims")
        eventually(lambda path=path: not items(cluster, path), "the claims went with their pods")
    for found in items(cluster, SLICES):
        if found["spec"]["driver"] == NVIDIA_DEVICE_DRIVER:
            cluster.api.request("DELETE", f"{SLICES}/{found['metadata']['name']}")


def publish(cluster: HeldCluster, *gpus: Gpu, node: str = NODE) -> None:
    cluster.api.create(SLICES, nvidia_slice(node, gpus))


def items(cluster: HeldCluster, path: str) -> list[Object]:
    return list((cluster.api.get(path) or {})["items"])


def pod_of(resident: str, name: str) -> dict[str, Any]:
    stanza = STANZAS[resident]
    spec = {
        "nodeSelector": stanza["nodeSelector"],
        "resourceClaims": stanza["resourceClaims"],
        "containers": [{"name": "main", "image": "busybox:1.37.0", "resources": stanza["resources"]}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def start(cluster: HeldCluster, resident: str, name: str) -> None:
    cluster.api.create(pods(STANZAS[resident]["namespace"]), pod_of(resident, name))


def given(cluster: HeldCluster, resident: str, name: str) -> tuple[str, dict[str, str]]:
    tenant = STANZAS[resident]["namespace"]

    def pod() -> Object:
        return cluster.api.get(pods(tenant, name)) or {}

    becomes(lambda: pod()["spec"].get("nodeName"), NODE, f"{name} is bound")
    (status,) = pod()["status"]["resourceClaimStatuses"]
    found = cluster.api.get(f"{of_namespace(tenant, 'resourceclaims')}/{status['resourceClaimName']}") or {}
    (result,) = found["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"]) == (NVIDIA_DEVICE_DRIVER, NODE)
    return result["device"], result.get("consumedCapacity", {})


def waits(cluster: HeldCluster, resident: str, name: str) -> None:
    tenant = STANZAS[resident]["namespace"]

    def why() -> str:
        found = cluster.api.get(pods(tenant, name)) or {}
        return str(condition(found, "PodScheduled").get("message", ""))

    eventually(lambda: "cannot allocate all claims" in why(), "the scheduler says why")


def test_seats_share_a_device_and_leave_its_reserve_although_the_slice_has_all_memory(devices: HeldCluster) -> None:
    """Two seats of 7000 MiB fill the 14,000 MiB that a device offers to claims."""
    publish(devices, Gpu(shares="memory"))
    for name in ("chat-0", "chat-1"):
        start(devices, "chat", name)
        assert given(devices, "chat", name) == ("gpu-0", {"memory": "7680Mi"})
    start(devices, "vision", "vision-0")
    waits(devices, "vision", "vision-0")
    publish(devices, Gpu(shares="memory"), node=STRANGE)  # The node STRANGE is in no pool.
    waits(devices, "vision", "vision-0")
    (ours,) = (each for each in items(devices, SLICES) if each["spec"].get("nodeName") == NODE)
    two = nvidia_slice(NODE, [Gpu(shares="memory"), Gpu(minor=1, shares="memory")], generation=2)
    devices.api.patch(f"{SLICES}/{ours['metadata']['name']}", {"spec": two["spec"]})
    assert given(devices, "vision", "vision-0") == ("gpu-1", {"memory": "1098Mi"})


def test_smaller_devices_and_lost_devices_of_a_node_are_not_used(devices: HeldCluster) -> None:
    lost = ({"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"},)
    small, gone = Gpu(mib=8192, shares="memory"), Gpu(minor=1, shares="memory", taints=lost)
    publish(devices, small, gone, Gpu(minor=2, mib=24576, shares="memory"))
    start(devices, "chat", "chat-0")
    assert given(devices, "chat", "chat-0") == ("gpu-2", {"memory": "7680Mi"})


def test_without_consumable_shares_a_seat_that_needs_part_of_a_device_waits(
    devices: HeldCluster,
) -> None:
    publish(devices, Gpu())
    start(devices, "chat", "chat-0")
    waits(devices, "chat", "chat-0")


def test_a_seat_of_a_whole_device_does_not_share_it(devices: HeldCluster) -> None:
    publish(devices, Gpu())
    start(devices, "whole", "whole-0")
    assert given(devices, "whole", "whole-0") == ("gpu-0", {})
    start(devices, "whole", "whole-1")
    waits(devices, "whole", "whole-1")


def test_the_exporter_sees_every_device_although_one_is_full_and_one_is_lost(devices: HeldCluster) -> None:
    """A claim with admin access takes no capacity (KEP-5018). The exporter has such a claim."""
    lost = ({"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"},)
    publish(devices, Gpu(), Gpu(minor=1, taints=lost))
    start(devices, "whole", "whole-0")
    assert given(devices, "whole", "whole-0")[0] == "gpu-0"
    template = device_claim(AGENTS)
    devices.api.create(of_namespace(AGENTS, "resourceclaimtemplates"), template)
    claimed = {"name": "devices", "resourceClaimTemplateName": template["metadata"]["name"]}
    container = {"name": "main", "image": "busybox:1.37.0", "resources": {"claims": [{"name": "devices"}]}}
    spec = {"nodeSelector": LABELS, "resourceClaims": [claimed], "containers": [container]}
    devices.api.create(
        pods(AGENTS), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "exporter"}, "spec": spec}
    )
    becomes(lambda: (devices.api.get(pods(AGENTS, "exporter")) or {})["spec"].get("nodeName"), NODE, "it is bound")
    (found,) = items(devices, of_namespace(AGENTS, "resourceclaims"))
    results = found["status"]["allocation"]["devices"]["results"]
    assert {(each["device"], each["adminAccess"]) for each in results} == {("gpu-0", True), ("gpu-1", True)}


def test_a_pod_that_requests_0_gpus_may_run_on_a_node_without_gpus(devices: HeldCluster) -> None:
    """docs/operations.md explains why pods with gpumem request 0 of nvidia.com/gpu."""
    container = {"name": "main", "image": "busybox:1.37.0", "resources": {"limits": {"nvidia.com/gpu": "0"}}}
    spec = {"nodeSelector": LABELS, "containers": [container]}
    devices.api.create(pods(CHAT), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "none"}, "spec": spec})
    becomes(lambda: (devices.api.get(pods(CHAT, "none")) or {})["spec"].get("nodeName"), NODE, "it is bound")


def claim(**exactly: Any) -> dict[str, Any]:
    share = {"capacity": {"requests": {"memory": "1098Mi"}}}
    request = {
        "name": "gpumem",
        "exactly": {"deviceClassName": LEDGER.names.device_class("vision"), **share, **exactly},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "try", "namespace": VISION},
        "spec": {"devices": {"requests": [request]}},
    }


def write(cluster: HeldCluster, tenant: str, manifest: Mapping[str, Any]) -> str:
    plural = f"{manifest['kind'].lower()}s"
    path = pods(tenant) if plural == "pods" else of_namespace(tenant, plural)
    return cluster.api.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", dict(manifest)).refusal or ""


def template(name: str = "vision-gpumem", **exactly: Any) -> dict[str, Any]:
    made = claim(**exactly)
    metadata = {"name": name, "namespace": VISION}
    return {**made, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": {"spec": made["spec"]}}


ONE_OF = {
    "name": "gpumem",
    "firstAvailable": [{"name": "a", "deviceClassName": LEDGER.names.device_class("vision"), "count": 1}],
}
ASTRAY = {**pod_of("vision", "astray"), "spec": {**pod_of("vision", "x")["spec"], "nodeSelector": {}}}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a claim that no pod's template made": (claim(), "a seat is claimed by the template of its resident"),
    "a template of one's own": (template("own"), "a seat has one template, which the stack declares"),
    "more than the seat and its part of the reserve": (
        template(capacity={"requests": {"memory": "1099Mi"}}),
        "asks for more memory than its seat holds",
    ),
    "more, in other words": (template(capacity={"requests": {"memory": "2Gi"}}), "asks for more memory than its seat"),
    "without a size": (
        template(capacity={"requests": {"gpumem": "1000Mi"}}),
        "asks for more memory than its seat holds, or does not say how much",
    ),
    "another tenant's seat": (
        template(deviceClassName=LEDGER.names.device_class("chat")),
        "a seat that its namespace does not have",
    ),
    "two devices": (template(count=2), "asks for more than one device"),
    "all devices": (template(allocationMode="All"), "asks for more than one device"),
    "a seat among others": (
        {**template(), "spec": {"spec": {"devices": {"requests": [ONE_OF]}}}},
        "asks for a seat among others under firstAvailable",
    ),
    "a pod that may run where the pool is not": (ASTRAY, "may run where the seat's pool is not"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_claims_and_pods_beyond_the_seat_or_outside_its_pool_are_refused(cluster: HeldCluster, case: str) -> None:
    manifest, message = REFUSED[case]
    assert message in write(cluster, VISION, manifest)


def test_the_seats_own_pod_and_claims_on_other_device_classes_are_admitted(cluster: HeldCluster) -> None:
    assert write(cluster, VISION, pod_of("vision", "fine")) == ""
    assert write(cluster, VISION, claim(deviceClassName="nic.example.com", capacity=None)) == ""


def test_a_tenant_claims_no_more_seats_than_it_has(devices: HeldCluster) -> None:
    """The quota also counts claims that a controller creates."""
    publish(devices, Gpu(shares="memory"), Gpu(minor=1, shares="memory"))
    for name in ("chat-0", "chat-1", "chat-2"):
        start(devices, "chat", name)

    def refused() -> bool:
        events = items(devices, f"/api/v1/namespaces/{CHAT}/events")
        return any("exceeded quota: gpumem-seat-claims" in event.get("message", "") for event in events)

    eventually(refused, "an event of the pod has the quota's refusal")
    assert len(items(devices, of_namespace(CHAT, "resourceclaims"))) == 2
