from collections.abc import Mapping
from types import MappingProxyType

from components.tenant import Role, Tenant, TenantArgs, TenantSpec
from tenancy.names import POD_SECURITY_ENFORCE, Names
from tests.support.engine import PATCHED, Graph
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


def test_a_namespace_gets_the_labels_of_a_tenant_and_is_never_owned() -> None:
    graph = tenant(groups={"dev": Role.EDIT})
    patch = graph.one("NamespacePatch")
    labels = {POD_SECURITY_ENFORCE: "baseline"}
    assert patch.inputs["metadata"] == {"name": "immich", "labels": labels, "annotations": PATCHED}
    assert not graph.all("Namespace")
    (alias,) = patch.request.aliases
    assert alias.spec.type == "kubernetes:core/v1:Namespace"


def test_a_kueue_of_others_finds_the_namespace_by_its_labels_and_changes_none_of_ours() -> None:
    others = {"kueue-managed": "true", POD_SECURITY_ENFORCE: "privileged"}
    labels = tenant(has_queue=True, queue_labels=others).one("NamespacePatch").inputs["metadata"]["labels"]
    assert (labels["kueue-managed"], labels[POD_SECURITY_ENFORCE]) == ("true", "baseline")
    assert "kueue-managed" not in tenant(queue_labels=others).one("NamespacePatch").inputs["metadata"]["labels"]


def test_everything_of_a_tenant_waits_for_its_namespace() -> None:
    graph = tenant(groups={"ml": Role.EDIT})
    for kind in ("ResourceQuota", "RoleBinding"):
        assert graph.depends_on(graph.one(kind), graph.one("NamespacePatch"))
