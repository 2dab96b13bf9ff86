"""Creates objects, such as an agent's account, that exist only during a `with` block."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from components.base.identity import Account, binding, built_in_binding, role, service_account
from tests.support.waiting import eventually
from toolchain.cluster.api import ClusterApi

_RBAC = "/apis/rbac.authorization.k8s.io/v1"


def account_objects(account: Account, *namespaces: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields an agent's account with its rights in the whole cluster and in the namespaces."""
    yield f"/api/v1/namespaces/{account.namespace}/serviceaccounts", service_account(account)
    for where in (None, *namespaces):
        prefix, kind = (_RBAC, "clusterrole") if where is None else (f"{_RBAC}/namespaces/{where}", "role")
        yield f"{prefix}/{kind}s", role(account, where)
        yield f"{prefix}/{kind}bindings", binding(account, where)
    for each in account.roles:
        home = f"{_RBAC}/namespaces/{each.namespace}/rolebindings"
        path = f"{_RBAC}/clusterrolebindings" if each.namespace is None else home
        yield path, built_in_binding(account, each)


@contextmanager
def made(api: ClusterApi, objects: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[None]:
    paths: list[str] = []
    try:
        for collection, manifest in objects:
            found = api.create(collection, manifest)
            paths.append(f"{collection}/{found['metadata']['name']}")
        yield
    finally:
        for path in reversed(paths):
            api.request("DELETE", f"{path}?propagationPolicy=Background")
        eventually(lambda: not any(map(api.get, paths)), "all that was made is gone")
