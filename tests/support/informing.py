"""Runs an informer or a single watch in real time, with short pauses."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from unittest import mock

from agents.kube import informer as informers
from agents.kube.informer import Informer
from agents.kube.nodes import NODES
from agents.kube.watch import Watch
from agents.runtime.clock import Clock
from tests.support.fake_cluster import FakeCluster, Served
from tests.support.waiting import PATIENCE_SECONDS


@dataclass
class HurriedTime:
    ahead_seconds: float = 0.0
    slept: list[float] = field(default_factory=list)

    def clock(self) -> Clock:
        return Clock(monotonic=lambda: time.monotonic() + self.ahead_seconds, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        time.sleep(min(seconds, 0.02))


def wakeful() -> AbstractContextManager[object]:
    return mock.patch.object(informers, "_TAKE_SECONDS", 0.02)


@contextmanager
def running(informer: Informer, cluster: FakeCluster, *, watches: int = 1) -> Iterator[None]:
    cluster.watches_last = True
    thread = threading.Thread(target=informer.run, daemon=True)
    with wakeful():
        thread.start()
        try:
            cluster.await_watches(watches)
            yield
        finally:
            informer.stop()
            thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def watched(served: Served, *, seconds: float = 20, **parameters: str) -> Watch:
    served.cluster.watches_last = True
    api = served.api(clock=Clock())
    return Watch(api, NODES, clock=Clock(), resource_version="100", seconds=seconds, **parameters)
