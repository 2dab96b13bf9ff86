"""Keeps the objects of one collection up to date, as the store of a client-go informer does."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agents.kube.client import Api, Object
from agents.kube.fields import named
from agents.kube.informer import WatchSource, read_list
from agents.kube.paths import ApiPath

Kept = TypeVar("Kept")


@dataclass(kw_only=True)
class Store(Generic[Kept]):
    """The parts of a collection's objects that an agent needs, by the names of the objects (`named`).

    `keep` returns the part of an object, or None for an object that the agent does not need.
    """

    path: ApiPath
    keep: Callable[[Object], Kept | None]
    parameters: Mapping[str, str] = field(default_factory=dict)
    kept: dict[str, Kept] = field(default_factory=dict)

    def list(self, api: Api) -> WatchSource:
        """Replaces the objects by those of a new list, and returns the source for a watch. Raises ApiError."""
        self.kept = {}
        return read_list(api, self.path, self.put, self.parameters).source

    def apply(self, event: Object) -> bool:
        """Applies an ADDED, MODIFIED or DELETED event of the watch. Returns True if that changed what is kept."""
        name = named(event["object"])
        before = self.kept.get(name)
        if event["type"] == "DELETED":
            self.kept.pop(name, None)
        else:
            self.put(event["object"])
        return self.kept.get(name) != before

    def put(self, item: Object) -> None:
        name, part = named(item), self.keep(item)
        if part is None:
            self.kept.pop(name, None)
        else:
            self.kept[name] = part
