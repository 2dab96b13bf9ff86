"""Tests that the settings refuse a name that is already used."""

import pytest

from tenancy.names import Names
from tests.support.prod import put, raw, refusal

DOMAIN, SYSTEM = "cluster resource_domain", "cluster system_namespace"
EXEMPT, CLASSES, PRIORITIES = "admission exempt_namespaces", "admission device_classes", "admission exempt_priorities"
GROUPS = "tenants frigate groups"
TTS = raw()["on_demand"]["tts"]
VICTIM = raw()["memory_pools"]["node-4"]["disposable"]["agent-microvm"]

# Each case has a key, a name that is already used, and the start of the error message.
TAKEN: list[tuple[str, object, str]] = [
    (DOMAIN, "gpu.kubernetes.io", ": kubernetes.io is Kubernetes' own; name a domain of yours"),
    (DOMAIN, "my-kubernetes.io", ": kubernetes.io is Kubernetes' own; name a domain of yours"),
    (DOMAIN, "gpu.k8s.io", ": k8s.io is Kubernetes' own; name a domain of yours"),
    (DOMAIN, "nvidia.com", ": nvidia.com is NVIDIA's own; name a domain of yours"),
    (DOMAIN, "requests.example.com", ": begins with requests., which Kubernetes reads as no resource of yours"),
    (DOMAIN, "hugepages-2.example.com", ": begins with hugepages-, which Kubernetes reads as no resource of yours"),
    ("priorities system-foo", {"value": 1}, ": names that begin with system- are Kubernetes' own"),
    (SYSTEM, "kueue-system", ": is taken already; name another"),
    ("kueue namespace", "default", ": is Kubernetes' own; name another"),
    ("tenants gpu-tenancy-system", {}, ": this namespace is the agents'; give"),
    ("tenants gpu-tenancy-system-nodes", {}, ": this namespace is the agents'; give"),
    ("tenants kueue-system", {}, ": this namespace is Kueue's; give the tenant one of its own"),
    ("tenants kube-node-lease", {}, ": this namespace is Kubernetes' own; give"),
    (EXEMPT, ["a", "default"], ".1: is where whatever names no namespace ends, and would be exempt with it; remove it"),
    (EXEMPT, ["a", "kube-public"], ".1: is Kubernetes' own; remove it, and give what needs the exemption"),
    (EXEMPT, ["gpu-tenancy-system-nodes"], ".0: is the agents'; remove it"),
    (EXEMPT, ["kueue-system"], ".0: is Kueue's; remove it"),
    (EXEMPT, ["a", "gpu-tenancy-system"], ".1: is the agents'; remove it, and give what needs the exemption"),
    (CLASSES, ["a.b", "gpu.nvidia.com"], ".1: hands out GPUs, which claims would take beside the ledger"),
    (PRIORITIES, ["a", "gpu-workload"], ".1: is that of admission.gpu_priority; remove it"),
    (PRIORITIES, ["tier-2-gpu"], ".0: is that of admission.tenant_priorities.tts; remove it"),
    (PRIORITIES, ["homelab-disposable"], ".0: is that of memory_pools.node-4.disposable.agent-microvm.priority"),
    (GROUPS, {"system:authenticated": "edit"}, ".system:authenticated: the name must be a group of your"),
    ("on_demand night", {**TTS, "deployment": "tts"}, ": is the same workload as on_demand.tts; remove one"),
    (
        "memory_pools node-4 disposable clickhouse",
        VICTIM | {"tenant": "signoz"},
        ": is the same workload as memory_pools.node-4.workloads.clickhouse; remove one",
    ),
]


@pytest.mark.parametrize(("path", "value", "line"), TAKEN)
def test_a_name_that_is_taken_is_refused(path: str, value: object, line: str) -> None:
    (refused,) = refusal(put(path, value))
    assert refused.startswith(f"gpu-tenancy:{path.replace(' ', '.')}{line}")


@pytest.mark.parametrize("tenant", ["frigate", "tts", "signoz", "team-a"])
def test_no_tenant_is_exempt(tenant: str) -> None:
    assert refusal(put("admission exempt_namespaces", ["monitoring", tenant])) == [
        f"gpu-tenancy:tenants.{tenant}: this namespace is exempt from admission; give the tenant one of its own"
    ]


def test_a_domain_leaves_room_for_the_driver_of_its_devices() -> None:
    """The name of a DRA driver has at most 63 characters."""
    longest = f"{'x' * 44}.example.com"
    assert refusal(put(DOMAIN, longest)) == []
    assert len(Names(longest).device_driver) == 63
    assert refusal(put(DOMAIN, f"x{longest}")) == [
        f"gpu-tenancy:cluster.resource_domain: must be at most 56 characters (got 'x{longest}')"
    ]
