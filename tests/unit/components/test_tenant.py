from collections.abc import Mapping
from types import MappingProxyType

import pytest

from components.tenant import Role, Tenant, TenantArgs, TenantSpec
from tenancy.choices import PodSecurity
from tenancy.names import POD_SECURITY_ENFORCE, QUEUE_TENANT, STACK, Names
from tests.support.engine import Graph
from tests.support.given import DOMAIN, declared


def tenant(
    *,
    gpumem_mib: int = 0,
    gpu_count: int = 0,
    gpus: dict[str, int] | None = None,
    has_queue: bool = False,
    queue_labels: Mapping[str, str] = MappingProxyType({}),
    **spec: object,
) -> Graph:
    args = TenantArgs(
        tenant="immich",
        spec=TenantSpec.model_validate(spec),
        names=Names(DOMAIN),
        gpumem_mib=gpumem_mib,
        gpu_count=gpu_count,
        gpus=gpus or {},
        has_queue=has_queue,
        queue_labels=queue_labels,
    )
    return declared(Tenant, "immich", args)


@pytest.mark.parametrize(("mib", "hard"), [(4800, "4800"), (3000, "3k"), (5_000_000, "5M"), (0, "0")])
def test_its_quota_is_written_as_the_api_writes_it(mib: int, hard: str) -> None:
    quota = tenant(gpumem_mib=mib, gpu_count=2).one("ResourceQuota").inputs
    assert quota["metadata"]["namespace"] == "immich"
    assert quota["spec"] == {"hard": {f"requests.{DOMAIN}/gpumem": hard, f"requests.{DOMAIN}/gpu-count": "2"}}


def test_it_counts_the_gpus_of_each_name_that_it_is_given() -> None:
    hard = tenant(gpus={"nvidia.com/gpu": 3, "nvidia.com/gpu.shared": 0}).one("ResourceQuota").inputs["spec"]["hard"]
    assert hard["requests.nvidia.com/gpu"] == "3"
    assert hard["requests.nvidia.com/gpu.shared"] == "0"


@pytest.mark.parametrize(
    ("spec", "level"),
    [
        ({}, "baseline"),
        ({"pod_security": PodSecurity.RESTRICTED}, "restricted"),
        ({"pod_security": PodSecurity.PRIVILEGED, "pod_security_reason": "KVM"}, "privileged"),
    ],
)
def test_its_namespace_holds_its_pods_to_a_level(spec: dict[str, object], level: str) -> None:
    labels = tenant(**spec).one("Namespace").inputs["metadata"]["labels"]
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "warn")} == {level}


def test_kueue_manages_the_jobs_of_a_queue_tenant() -> None:
    assert tenant(has_queue=True).one("Namespace").inputs["metadata"]["labels"][QUEUE_TENANT] == "true"


def test_its_namespace_stays_when_the_tenant_goes_unless_the_stack_says_that_it_goes() -> None:
    assert tenant().one("Namespace").request.retainOnDelete
    assert not tenant(delete=True).one("Namespace").request.retainOnDelete


def test_nothing_else_of_a_tenant_stays() -> None:
    graph = tenant(groups={"ml": Role.EDIT})
    assert [each.name for each in graph.resources if each.request.retainOnDelete] == ["immich-namespace"]


def test_its_namespace_names_its_stack() -> None:
    assert tenant().one("Namespace").inputs["metadata"]["annotations"][STACK] == "gpu-tenancy/test"


def test_a_namespace_that_is_there_already_gets_the_labels_of_a_tenant_and_no_more() -> None:
    graph = tenant(create_namespace=False, groups={"dev": Role.EDIT})
    patch = graph.one("NamespacePatch")
    assert patch.inputs["metadata"] == {"name": "immich", "labels": {POD_SECURITY_ENFORCE: "baseline"}}
    assert graph.depends_on(graph.one("ResourceQuota"), patch)
    assert not graph.all("Namespace")


def test_a_queue_tenants_namespace_that_is_there_already_gets_kueues_label_too() -> None:
    patch = tenant(create_namespace=False, has_queue=True).one("NamespacePatch")
    assert patch.inputs["metadata"]["labels"] == {POD_SECURITY_ENFORCE: "baseline", QUEUE_TENANT: "true"}


def test_a_kueue_of_others_finds_the_namespace_by_its_labels_and_changes_none_of_ours() -> None:
    others = {"kueue-managed": "true", POD_SECURITY_ENFORCE: "privileged"}
    labels = tenant(has_queue=True, queue_labels=others).one("Namespace").inputs["metadata"]["labels"]
    assert (labels["kueue-managed"], labels[POD_SECURITY_ENFORCE]) == ("true", "baseline")
    assert "kueue-managed" not in tenant(queue_labels=others).one("Namespace").inputs["metadata"]["labels"]


def test_everything_of_a_tenant_waits_for_its_namespace() -> None:
    graph = tenant(groups={"ml": Role.EDIT})
    for kind in ("ResourceQuota", "RoleBinding"):
        assert graph.depends_on(graph.one(kind), graph.one("Namespace"))


def test_no_limit_range_gives_every_container_a_whole_device() -> None:
    """In a LimitRange, the maximum of a container is also its default."""
    assert not tenant(gpumem_mib=4800).all("LimitRange")
