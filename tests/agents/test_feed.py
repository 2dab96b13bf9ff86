"""Several watches at once: what is left of them when they are closed."""

import threading

import pytest

from agents.api import Api
from agents.clock import Clock
from agents.feed import Feed, Source
from tests.agents.cluster import Served

PATIENCE_SECONDS = 60


def test_a_closed_feed_leaves_no_thread_that_could_end_together_with_python(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.feed._JOIN_SECONDS", PATIENCE_SECONDS)  # a loaded machine is no reason to leave one
    served.cluster.watches_last = True
    api = served.opened(Api(served.endpoint(), clock=Clock()))
    others = set(threading.enumerate())
    sources = [Source(path=path, resource_version="1") for path in ("/api/v1/nodes", "/api/v1/pods")]
    feed = Feed(api, Clock(), sources, seconds=600)
    following = [thread for thread in threading.enumerate() if thread not in others and "watch of" in thread.name]
    assert len(following) == len(sources)
    served.cluster.await_watches(len(sources))
    feed.close()
    assert not any(thread.is_alive() for thread in following)
