import pytest

from components.base.identity import Identity, IdentityArgs, PolicyRule, RoleRef
from tests.support.engine import Graph, names
from tests.support.given import declared, rights

ARGS = IdentityArgs(
    account="reader",
    namespace="home",
    component="reader",
    rules=(
        PolicyRule(resources=("pods",), verbs=("list",)),
        PolicyRule(resources=("configmaps",), verbs=("get",), resource_names=("book",), namespace="home"),
        PolicyRule(api_groups=("apps",), resources=("deployments/scale",), verbs=("get",), namespace="away"),
    ),
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Identity, "id", ARGS)


def test_an_account_has_the_rights_of_its_rules_and_no_more(graph: Graph) -> None:
    assert rights(graph) == {
        ("*", "/pods", "list", ()),
        ("home", "/configmaps", "get", ("book",)),
        ("away", "apps/deployments/scale", "get", ()),
    }


def test_each_reach_has_one_role_and_one_binding(graph: Graph) -> None:
    assert names(graph.children(graph.one("Identity"))) == {
        "id-account",
        *(f"id-{reach}-{what}" for reach in ("cluster", "home", "away") for what in ("role", "binding")),
    }


def test_every_binding_gives_this_account_the_role_beside_it(graph: Graph) -> None:
    for kind, role in (("RoleBinding", "Role"), ("ClusterRoleBinding", "ClusterRole")):
        for binding in graph.all(kind):
            assert binding.inputs["roleRef"] == {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": role,
                "name": "reader",
            }
            assert binding.inputs["subjects"] == [{"kind": "ServiceAccount", "name": "reader", "namespace": "home"}]
            assert graph.depends_on(binding, graph.one("ServiceAccount"))
            assert graph.depends_on(binding, graph.one(role, binding.name.replace("-binding", "-role")))


def test_the_account_itself_mounts_no_token(graph: Graph) -> None:
    assert graph.one("ServiceAccount").inputs["automountServiceAccountToken"] is False


def test_an_account_without_rules_has_neither_role_nor_binding() -> None:
    bare = declared(Identity, "id", IdentityArgs(account="a", namespace="n", component="c", rules=()))
    assert names(bare.children(bare.one("Identity"))) == {"id-account"}


def test_an_account_may_have_roles_that_kubernetes_brings() -> None:
    roles = (RoleRef("system:kube-scheduler"), RoleRef("reader", "kube-system"))
    graph = declared(Identity, "id", IdentityArgs(account="a", namespace="n", component="c", rules=(), roles=roles))
    assert names(graph.children(graph.one("Identity"))) == {
        "id-account",
        "id-kube-scheduler-binding",
        "id-reader-binding",
    }
    for kind, role, namespace in (
        ("ClusterRole", "system:kube-scheduler", None),
        ("Role", "reader", "kube-system"),
    ):
        bound = graph.one(f"{kind}Binding").inputs
        assert bound["metadata"]["name"] == f"a:{role}"
        assert bound["metadata"].get("namespace") == namespace
        assert (bound["roleRef"]["kind"], bound["roleRef"]["name"]) == (kind, role)
        assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "a", "namespace": "n"}]
