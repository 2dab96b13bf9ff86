"""Roles of one name in many namespaces, as the watchdog has them, are not compared with one another."""

import pytest

from policy.graph import Graph
from policy.objects import Object
from policy.rules import rbac
from policy.unknown import Unknown

GROUP = "rbac.authorization.k8s.io"
TENANTS = 200


def in_namespace(kind: str, namespace: object, **more: object) -> Object:
    metadata = {"name": "watchdog", "namespace": namespace}
    return Object(kind, GROUP, {"kind": kind, "metadata": metadata, **more}, f"urn:{kind}-{namespace!r}")


def pair(namespace: object) -> list[Object]:
    reference = {"kind": "Role", "name": "watchdog", "apiGroup": GROUP}
    role = in_namespace("Role", namespace, rules=[{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
    return [role, in_namespace("RoleBinding", namespace, roleRef=reference, subjects=[])]


def test_what_is_asked_grows_with_the_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, together = [], rbac._are_together
    monkeypatch.setattr(rbac, "_are_together", lambda *two: asked.append(two) or together(*two))
    pairs = [pair(f"tenant-{number}") for number in range(TENANTS)]
    graph = Graph(tuple(each for two in pairs for each in two))
    for role, binding in pairs:
        assert [*rbac._bindings_of(graph, role)] == [binding]
        assert rbac._declared(graph, binding) is role
    assert TENANTS <= len(asked) <= 4 * TENANTS  # all pairs would be 40,000


def test_one_of_an_unknown_namespace_is_compared_with_its_like() -> None:
    role, binding = pair(Unknown("metadata.namespace"))
    elsewhere = pair("tenant")
    graph = Graph((role, *elsewhere, binding))
    assert graph.beside(role, f"RoleBinding.{GROUP}") == [binding]
    assert graph.beside(elsewhere[0], f"RoleBinding.{GROUP}", f"Role.{GROUP}") == [
        elsewhere[1],
        elsewhere[0],
        binding,
        role,
    ]
