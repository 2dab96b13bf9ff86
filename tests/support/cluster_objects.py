"""Holds objects in memory. The commands of `stacks` read them instead of a cluster."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = Mapping[str, Any]

PLURALS = {
    "v1": {"Namespace": "namespaces", "ConfigMap": "configmaps", "ResourceQuota": "resourcequotas"},
    "rbac.authorization.k8s.io/v1": {"ClusterRole": "clusterroles", "RoleBinding": "rolebindings"},
    "scheduling.k8s.io/v1": {"PriorityClass": "priorityclasses"},
}


@dataclass
class Objects:
    lists: dict[str, list[Object]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def patch(self, *what: str, patch: Object) -> None:
        self.changes.append(f"patch {what[0]} {what[1]}")

    def delete(self, objects: Iterable[Object], *flags: str) -> None:
        self.changes += [" ".join(("delete", each["kind"], each["metadata"]["name"], *flags)) for each in objects]

    def give_back(self, found: Object, manager: str) -> None:
        self.changes.append(f"give back {found['kind']} {found['metadata']['name']} of {manager}")

    def find(self, path: str) -> Object | None:
        self.asked.append(path)
        if path == "/apis":
            served = (group for group in PLURALS if "/" in group)
            return {"groups": [{"preferredVersion": {"groupVersion": group}} for group in served]}
        group = PLURALS.get(path.removeprefix("/apis/").removeprefix("/api/"))
        if group is not None:
            return {"resources": [_served(kind, plural) for kind, plural in group.items()]}
        collection, _, name = path.rpartition("/")
        return next((each for each in self.lists.get(collection, ()) if each["metadata"]["name"] == name), None)

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        self.asked.append(path)
        yield from self.lists.get(path, ())


def _served(kind: str, plural: str) -> Object:
    has_namespace = kind not in ("Namespace", "ClusterRole", "PriorityClass")
    return {"kind": kind, "name": plural, "namespaced": has_namespace, "verbs": ["list"]}


def namespace(name: str, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, **metadata}}
