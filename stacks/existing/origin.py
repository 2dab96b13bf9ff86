"""Finds out if the state of a stack describes another cluster.

The namespaces of another cluster have other uids, also if their names are the same.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stacks.existing.lookup import Reader

_NAMESPACE_TYPE = "kubernetes:core/v1:NamespacePatch"


def namespaces_by_uid(deployment: Mapping[str, Any]) -> dict[str, str]:
    """Returns the uid and the name of each namespace that the stack patches.

    `deployment` is the data that `pulumi stack export` prints.
    """
    resources = deployment["deployment"].get("resources") or []
    created = [each.get("outputs") or {} for each in resources if each["type"] == _NAMESPACE_TYPE]
    found = [each["metadata"] for each in created if "metadata" in each]
    return {str(each["uid"]): str(each["name"]) for each in found if "uid" in each}


def lost(namespaces: Mapping[str, str], reader: Reader) -> Sequence[str]:
    """Returns the names of all namespaces, or an empty list if the cluster has one of these namespaces.

    The function raises the errors of the reader.
    """
    there = (each["metadata"]["uid"] for each in reader.items("/api/v1/namespaces"))
    return [] if any(uid in namespaces for uid in there) else sorted(namespaces.values())
