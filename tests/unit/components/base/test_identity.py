import pytest

from components.base.identity import Account, Identity, PolicyRule
from tests.support.engine import Graph, names
from tests.support.given import declared

ARGS = Account(
    name="reader",
    namespace="home",
    program="reader",
    rules=(
        PolicyRule("", ("pods",), ("list",)),
        PolicyRule("", ("configmaps",), ("get",), resource_names=("book",), namespace="home"),
        PolicyRule("apps", ("deployments/scale",), ("get",), namespace="away"),
    ),
)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return declared(Identity, "id", ARGS)


def test_each_reach_has_one_role_and_one_binding(graph: Graph) -> None:
    assert names(graph.children(graph.one("Identity"))) == {
        "id-account",
        *(f"id-{reach}-{what}" for reach in ("cluster", "home", "away") for what in ("role", "binding")),
    }


def test_every_binding_gives_this_account_the_role_next_to_it(graph: Graph) -> None:
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
