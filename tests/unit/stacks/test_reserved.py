"""Names that belong to Kubernetes, to the stack itself, or to another key."""

import pytest

from stacks import settings
from tenancy.names import Names
from tests.support.prod import Change, drop, put, raw, refusal

TAKEN: dict[str, tuple[Change, str]] = {
    "a domain of Kubernetes' own": (
        put("cluster resource_domain", "gpu.kubernetes.io"),
        "cluster.resource_domain: kubernetes.io is Kubernetes' own; name a domain of yours (got 'gpu.kubernetes.io')",
    ),
    "a domain that is anything before kubernetes.io": (
        put("cluster resource_domain", "my-kubernetes.io"),
        "cluster.resource_domain: kubernetes.io is Kubernetes' own; name a domain of yours (got 'my-kubernetes.io')",
    ),
    "a domain of Kubernetes' labels": (
        put("cluster resource_domain", "gpu.k8s.io"),
        "cluster.resource_domain: k8s.io is Kubernetes' own; name a domain of yours (got 'gpu.k8s.io')",
    ),
    "NVIDIA's domain": (
        put("cluster resource_domain", "nvidia.com"),
        "cluster.resource_domain: nvidia.com is NVIDIA's own; name a domain of yours (got 'nvidia.com')",
    ),
    "a domain under NVIDIA's": (
        put("cluster resource_domain", "gpu.nvidia.com"),
        "cluster.resource_domain: nvidia.com is NVIDIA's own; name a domain of yours (got 'gpu.nvidia.com')",
    ),
    "a domain that is a quota's": (
        put("cluster resource_domain", "requests.example.com"),
        "cluster.resource_domain: a resource that begins with requests. is Kubernetes' own; name it otherwise "
        "(got 'requests.example.com')",
    ),
    "a domain that reads as a limit": (
        put("cluster resource_domain", "limits.example.com"),
        "cluster.resource_domain: limits. reads as a limit on the resource after it; name it otherwise "
        "(got 'limits.example.com')",
    ),
    "the agents' class for the exempt": (
        put("admission exempt_priorities", ["system-cluster-critical"]),
        "admission.exempt_priorities.0: is the agents' as well, and kept from all others already; remove it "
        "(got 'system-cluster-critical')",
    ),
    "a domain of huge pages": (
        put("cluster resource_domain", "hugepages-2.example.com"),
        "cluster.resource_domain: a resource that begins with hugepages- is Kubernetes' own; name it otherwise "
        "(got 'hugepages-2.example.com')",
    ),
    "a tenant in the agents' namespace": (
        put("tenants gpu-tenancy-system", {}),
        "tenants.gpu-tenancy-system: this namespace is the agents'; give the tenant one of its own",
    ),
    "a tenant in the node agents' namespace": (
        put("tenants gpu-tenancy-system-nodes", {}),
        "tenants.gpu-tenancy-system-nodes: this namespace is the agents'; give the tenant one of its own",
    ),
    "a tenant in Kueue's namespace": (
        put("tenants kueue-system", {}),
        "tenants.kueue-system: this namespace is Kueue's; give the tenant one of its own",
    ),
    "agents in a namespace of Kubernetes": (
        put("cluster system_namespace", "kube-system"),
        "cluster.system_namespace: is taken already; name another (got 'kube-system')",
    ),
    "agents in Kueue's namespace": (
        put("cluster system_namespace", "kueue-system"),
        "cluster.system_namespace: is taken already; name another (got 'kueue-system')",
    ),
    "a system namespace without room for its suffix": (
        put("cluster system_namespace", "n" * 58),
        f"cluster.system_namespace: must be at most 57 characters (got '{'n' * 58}')",
    ),
    "Kueue in a namespace of Kubernetes": (
        put("kueue namespace", "default"),
        "kueue.namespace: is Kubernetes' own; name another (got 'default')",
    ),
    "a class with the system's prefix": (
        put("priorities system-gpu", {"value": 1}),
        "priorities.system-gpu: names that begin with system- are Kubernetes' own; name it otherwise",
    ),
    "a LocalQueue that captures unlabelled Jobs": (
        put("queues local_queues default", {"tenant": "team-a", "cluster_queue": "gpu-cq"}),
        "queues.local_queues.default: would capture every Job without a queue; name it otherwise",
    ),
    "a resident that is on demand too": (
        put("residents tts", {"tenant": "tts", "pool": "t4", "gpumem_mib": 100}),
        "on_demand.tts: is the same workload as residents.tts; remove one",
    ),
    "two gates on one Deployment": (
        lambda config: config["on_demand"].update(
            night={**config["on_demand"]["ytdlp"], "deployment": "tts", "tenant": "tts"}
        ),
        "on_demand.night: is the same workload as on_demand.tts; remove one",
    ),
    "a victim that is protected too": (
        put(
            "memory_pools node-4 disposable clickhouse",
            raw()["memory_pools"]["node-4"]["disposable"]["agent-microvm"] | {"tenant": "signoz"},
        ),
        "memory_pools.node-4.disposable.clickhouse: is the same workload as "
        "memory_pools.node-4.workloads.clickhouse; remove one",
    ),
}


@pytest.mark.parametrize(("change", "line"), TAKEN.values(), ids=TAKEN.keys())
def test_a_name_that_is_taken_is_refused(change: Change, line: str) -> None:
    assert refusal(change) == [f"gpu-tenancy:{line}"]


@pytest.mark.parametrize("namespace", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_no_tenant_lives_in_a_namespace_of_kubernetes(namespace: str) -> None:
    assert refusal(put(f"tenants {namespace}", {"create_namespace": False})) == [
        f"gpu-tenancy:tenants.{namespace}: this namespace is Kubernetes' own; give the tenant one of its own"
    ]


@pytest.mark.parametrize("tenant", ["frigate", "tts", "signoz", "team-a"])
def test_no_tenant_is_exempt_from_what_holds_tenants(tenant: str) -> None:
    """With a seat, on demand, in a memory pool, in a queue."""
    assert refusal(put("admission exempt_namespaces", ["nvidia", tenant])) == [
        f"gpu-tenancy:tenants.{tenant}: this namespace is exempt from admission; give the tenant one of its own"
    ]
    assert refusal(put("admission trusted_namespaces", ["monitoring", tenant])) == [
        f"gpu-tenancy:tenants.{tenant}: this namespace is trusted by admission; give the tenant one of its own"
    ]


def test_who_is_trusted_is_on_the_ledger() -> None:
    config = raw()
    put("admission trusted_namespaces", ["monitoring", "argocd", "monitoring"])(config)
    put("admission trusted_groups", ["sre"])(config)
    ledger = settings.parse(config).ledger()
    assert ledger.trusted_namespaces == ("argocd", "monitoring")
    assert ledger.trusted_groups == ("sre",)


def test_no_tenants_people_are_trusted_and_no_group_of_kubernetes() -> None:
    assert refusal(put("admission trusted_groups", ["sre", "team-a", "system:authenticated"])) == [
        "gpu-tenancy:admission.trusted_groups.1: has a role in tenants.team-a, and no tenant is trusted; name another "
        "(got 'team-a')",
        "gpu-tenancy:admission.trusted_groups.2: groups that begin with system: are Kubernetes' own; name people "
        "(got 'system:authenticated')",
    ]


EXEMPT = "admission.exempt_namespaces.1"
INSTEAD = "remove it, and give what needs the exemption a namespace of its own"


@pytest.mark.parametrize(
    ("namespace", "words"),
    [
        ("default", "is where whatever names no namespace ends, and would be exempt with it"),
        ("kube-public", "is Kubernetes' own"),
        ("kube-node-lease", "is Kubernetes' own"),
        ("gpu-tenancy-system", "is the agents'"),
    ],
)
def test_a_namespace_that_is_not_the_drivers_is_not_exempt(namespace: str, words: str) -> None:
    assert refusal(put("admission exempt_namespaces", ["nvidia", namespace])) == [
        f"gpu-tenancy:{EXEMPT}: {words}; {INSTEAD} (got '{namespace}')"
    ]


@pytest.mark.parametrize("namespace", ["kube-system", "gpu-tenancy-system-nodes", "monitoring", "gpu-operator"])
def test_a_namespace_that_is_exempt_in_any_case_may_be_listed(namespace: str) -> None:
    assert refusal(put("admission exempt_namespaces", ["nvidia", namespace])) == []


@pytest.mark.parametrize(
    "name",
    [
        "gpu.nvidia.com",
        "mig.nvidia.com",
        "vfio.gpu.nvidia.com",
        "gpumem.viktorbarzin.me",
        "immich-ml.gpumem.viktorbarzin.me",
    ],
)
def test_a_class_that_hands_out_what_the_ledger_promises_is_not_listed_as_harmless(name: str) -> None:
    assert refusal(put("admission device_classes", ["nic.example.com", name])) == [
        f"gpu-tenancy:admission.device_classes.1: hands out GPUs, which claims would take beside the ledger; remove "
        f"it: listed are classes that give no GPU, such as a network card's (got '{name}')"
    ]


@pytest.mark.parametrize(
    "name", ["compute-domain-default-channel.nvidia.com", "rdma.nvidia.com", "nic.viktorbarzin.me"]
)
def test_a_class_that_gives_no_gpu_is_listed_whoever_made_it(name: str) -> None:
    assert refusal(put("admission device_classes", [name])) == []


@pytest.mark.parametrize(
    ("name", "user"),
    [
        ("gpu-workload", "admission.gpu_priority"),
        ("tier-2-gpu", "admission.tenant_priorities.tts"),
        ("homelab-disposable", "memory_pools.node-4.disposable.agent-microvm.priority"),
    ],
)
def test_a_class_that_somebody_has_is_not_for_the_exempt_alone(name: str, user: str) -> None:
    assert refusal(put("admission exempt_priorities", ["longhorn-critical", name])) == [
        f"gpu-tenancy:admission.exempt_priorities.1: is that of {user}; remove it (got '{name}')"
    ]


@pytest.mark.parametrize(
    "group",
    [
        "system:authenticated",
        "system:unauthenticated",
        "system:serviceaccounts",
        "system:masters",
        "system:nodes",
        "system:anything",
    ],
)
def test_a_group_of_kubernetes_is_no_tenants_people(group: str) -> None:
    assert refusal(put("tenants frigate groups", {group: "edit", "friends": "view"})) == [
        f"gpu-tenancy:tenants.frigate.groups.{group}: groups that begin with system: are Kubernetes' own, most with "
        "everybody in them; name a group of your identity provider"
    ]


@pytest.mark.parametrize("group", ["system-admins", "team:system:a", "system:serviceaccounts:ci"])
def test_a_group_of_few_is(group: str) -> None:
    """The accounts of one namespace, such as that of a pipeline, are a group as well."""
    assert refusal(put("tenants frigate groups", {group: "edit"})) == []


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("admission exempt_namespaces", ["nvidia", "nvidia"], "admission.exempt_namespaces.1: 'nvidia'"),
        ("admission device_classes", ["a.b", "c.d", "a.b"], "admission.device_classes.2: 'a.b'"),
        ("kueue exclude_resource_prefixes", ["cpu", "cpu"], "kueue.exclude_resource_prefixes.1: 'cpu'"),
    ],
)
def test_a_name_stands_in_a_list_once(path: str, value: list[str], line: str) -> None:
    assert refusal(put(path, value)) == [f"gpu-tenancy:{line} is there twice; remove one"]


@pytest.mark.parametrize("domain", ["example-k8s.io", "mynvidia.com", "limit.example.com", "request.example.com"])
def test_a_domain_that_only_looks_like_another_ones_is_free(domain: str) -> None:
    assert refusal(put("cluster resource_domain", domain)) == []


def test_the_same_workload_name_in_two_tenants_is_two_workloads() -> None:
    tts = raw()["on_demand"]["tts"]
    assert refusal(lambda config: config["on_demand"].update(frigate={**tts, "tenant": "ytdlp"})) == []


def test_namespaces_that_are_named_otherwise_are_free() -> None:
    assert refusal(put("cluster system_namespace", "gpus"), put("tenants gpu-tenancy-system", {})) == []


def test_a_domain_leaves_room_for_the_driver_of_its_devices() -> None:
    """Kubernetes takes no ResourceSlice of a driver with more than 63 characters, and without one nothing is placed."""
    longest = f"{'x' * 44}.example.com"
    assert refusal(put("cluster resource_domain", longest)) == []
    assert len(Names(longest).device_driver) == 63
    assert refusal(put("cluster resource_domain", f"x{longest}")) == [
        "gpu-tenancy:cluster.resource_domain: must be at most 56 characters where scheduler is there "
        f"(got 'x{longest}')"
    ]


def test_without_a_scheduler_a_domain_may_be_longer() -> None:
    assert refusal(put("cluster resource_domain", f"{'x' * 60}.example.com"), drop("scheduler")) == []
