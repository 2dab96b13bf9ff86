"""A fake API client that answers an agent's requests from lists of trusted and hostile objects."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from agents.kube.client import Api, ApiError, Object
from agents.kube.paths import ApiPath
from tests.support.fake_cluster import merge


class HostileApi(Api):
    def __init__(self) -> None:
        self.time = None
        self.objects: dict[str, dict[str, Any]] = {}
        self.lists: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.hostile: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.writes: list[tuple[str, Any]] = []

    def close(self) -> None:
        pass

    def find(self, path: ApiPath) -> Object | None:
        return self.objects.get(path)

    def get(self, path: ApiPath) -> Object:
        found = self.objects.get(path)
        if found is None:
            raise ApiError(f"GET {path}", 404, "NotFound", "not found")
        return found

    def pages(self, path: ApiPath, **parameters: str) -> Iterator[Object]:
        selector = parameters.get("fieldSelector", "")
        trusted = [item for item in self.lists[path] if _selected(item, selector)]
        yield {"metadata": {"resourceVersion": "1"}, "items": [*self.hostile[path], *trusted]}

    def create(self, path: ApiPath, body: Object) -> Object:
        self.writes.append((path, body))
        return body

    def merge_patch(self, path: ApiPath, body: Object) -> Object:
        self.writes.append((path, body))
        target = self.objects.setdefault(path.partition("?")[0].removesuffix("/status"), {"metadata": {}})
        if isinstance(target.get("metadata"), dict) and isinstance(target.get("spec", {}), dict):
            merge(target, body)
        return {**target, "metadata": {"resourceVersion": "1"}}


def _selected(item: Object, selector: str) -> bool:
    for term in selector.split(","):
        key, _, value = term.partition("=")
        parent, _, name = key.partition(".")
        if key in ("spec.nodeName", "metadata.name") and item[parent].get(name, "") != value:
            return False
    return True


def received(item: object) -> Any:
    return json.loads(json.dumps(item))
