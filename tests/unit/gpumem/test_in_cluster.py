"""Tests the reader of the API in a pod."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpumem import in_cluster
from gpumem.in_cluster import InCluster


class Lists:
    """An API whose pods are replaced before each reading."""

    def __init__(self) -> None:
        self.readings = 0

    def items(self, _: object, **__: str) -> Iterator[dict[str, Any]]:
        self.readings += 1
        yield {"metadata": {"namespace": "batch", "name": f"pod-{self.readings}"}, "status": {"podIP": "fd00::1"}}


def test_pods_that_are_gone_are_forgotten_and_those_of_every_list_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(in_cluster, "get", lambda url: asked.append(url) or b"")
    source = InCluster(Lists())  # type: ignore[arg-type]
    for _ in range(50):
        first, second = (list(source.items(path)) for path in ("/pods", "/exporters"))
    assert sum(map(len, source._addresses.values())) == 2  # noqa: SLF001 (what is kept is the point)
    for (pod,) in (first, second):
        source.ask("batch", pod["metadata"]["name"], 9400, "/metrics")
    assert asked == ["http://[fd00::1]:9400/metrics"] * 2
