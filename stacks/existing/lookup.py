"""Finds objects in the cluster by one list request for each kind."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from stacks.existing.planned import Identity

Object = Mapping[str, Any]


class Reader(Protocol):
    """The methods that read objects of a cluster.

    The methods raise an error if the API server refuses the request.
    """

    def find(self, path: str) -> Object | None:
        """Returns the object at the path, or None if there is no such object."""

    def items(self, path: str, **parameters: str) -> Iterator[Object]:
        """Yields the objects of a list, page by page. The list of a kind that the cluster does not know is empty."""


class Writer(Reader, Protocol):
    """A reader that can also change objects."""

    def patch(self, *what: str, patch: Object) -> None:
        """Runs `kubectl patch` with a merge patch. Raises EngineError with kubectl's message."""

    def delete(self, objects: Iterable[Object], *flags: str) -> None:
        """Deletes the objects that are there, and waits until they are gone. Raises EngineError."""

    def give_back(self, found: Object, manager: str) -> None:
        """Removes all fields that only this field manager has set. Raises EngineError."""


def lookup(reader: Reader, wanted: Iterable[Identity]) -> dict[Identity, Object]:
    """Returns the wanted objects that exist. Sends requests only for objects in namespaces that exist."""
    kinds: dict[tuple[str, str], set[Identity]] = {}
    for each in wanted:
        kinds.setdefault((each.api_version, each.kind), set()).add(each)
    if not kinds:
        return {}
    namespaces = {each["metadata"]["name"]: each for each in reader.items("/api/v1/namespaces")}
    found = {each: namespaces[each.name] for each in kinds.pop(("v1", "Namespace"), ()) if each.name in namespaces}
    resources: dict[str, dict[str, str]] = {}
    for (api_version, kind), objects in sorted(kinds.items()):
        possible = {each for each in objects if not each.namespace or each.namespace in namespaces}
        if not possible:
            continue
        if api_version not in resources:
            resources[api_version] = plurals(reader, api_version)
        if kind in resources[api_version]:
            found |= _of_a_kind(reader, possible, group_path(api_version), resources[api_version][kind])
    return found


def _of_a_kind(reader: Reader, wanted: set[Identity], group: str, plural: str) -> dict[Identity, Object]:
    """Returns the wanted objects of one kind that exist.

    If all wanted objects are in one namespace, lists only this namespace.
    """
    names = {(each.namespace, each.name): each for each in wanted}
    homes = {each.namespace for each in wanted}
    within = f"/namespaces/{homes.pop()}" if len(homes) == 1 and homes != {""} else ""
    listed = reader.items(f"{group}{within}/{plural}")
    keys = (((each["metadata"].get("namespace", ""), each["metadata"]["name"]), each) for each in listed)
    return {names[key]: each for key, each in keys if key in names}


def plurals(reader: Reader, api_version: str) -> dict[str, str]:
    """Returns the plural name of each kind in an API group. The result is empty if the cluster does not serve the API
    group."""
    served = reader.find(group_path(api_version)) or {}
    return {each["kind"]: each["name"] for each in served.get("resources", ()) if "/" not in each["name"]}


def namespaced(reader: Reader, api_version: str) -> dict[str, str]:
    """Returns the plural name of each kind in an API group whose objects have a namespace and can be listed."""
    served = (reader.find(group_path(api_version)) or {}).get("resources", ())
    return {each["kind"]: each["name"] for each in served if each["namespaced"] and "list" in each["verbs"]}


def group_path(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
