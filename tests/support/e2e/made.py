"""Creates objects that exist only during a `with` block."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.support.e2e.rollout import eventually
from toolchain.cluster.api import ClusterApi


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
