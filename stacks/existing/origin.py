"""Finds out if the state of a stack describes another cluster. The uid of kube-system identifies a cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

from stacks.existing.lookup import Reader
from tenancy import names


def is_of_another_cluster(resources: Iterable[Mapping[str, Any]], reader: Reader) -> bool:
    """Returns False also for a state without any cluster. Raises the errors of the reader.

    `resources` are those that `pulumi stack export` prints.
    """
    patched = (each for each in resources if each["type"] == names.CLUSTER_TYPE)
    namespaces = [(each.get("outputs") or {}).get("metadata", {}) for each in patched]
    known = {each.get("uid") for each in namespaces if each.get("name") == names.EXEMPT_BY_NAME} - {None}
    found = reader.find(f"/api/v1/namespaces/{names.EXEMPT_BY_NAME}") if known else None
    return found is not None and found["metadata"]["uid"] not in known
