"""Tests a watch and its events without a connection."""

from types import SimpleNamespace
from typing import Any

from agents.kube.nodes import NODES
from agents.kube.watch import Watch
from agents.runtime.clock import Clock


def test_the_events_of_the_last_second_are_read() -> None:
    chunks = iter([b'{"type": "ADDED", "object": {"metadata": {"resourceVersion": "8"}}}\n', b""])
    stream = SimpleNamespace(read=lambda seconds: next(chunks), close=lambda: None)
    api: Any = SimpleNamespace(open=lambda path: stream)
    clock = Clock(monotonic=lambda: 0.0)
    with Watch(api, NODES, clock=clock, resource_version="7", seconds=0.5) as watch:
        assert [event["type"] for event in watch] == ["ADDED"]
