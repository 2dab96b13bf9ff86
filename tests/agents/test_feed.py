"""Several watches at once: what is left of them when they are closed."""

import threading
import time

from agents.api import Api
from agents.clock import Clock
from agents.feed import Feed, Source
from tests.agents.cluster import Served

PATIENCE_SECONDS = 60


def following() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("watch of ")]


def test_a_closed_feed_leaves_no_thread_that_could_end_together_with_python(served: Served) -> None:
    served.cluster.add_node()
    api = served.opened(Api(served.endpoint(), clock=Clock()))
    sources = [Source(path=path, resource_version="1") for path in ("/api/v1/nodes", "/api/v1/pods")]
    feed = Feed(api, Clock(), sources, seconds=600)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sum("watch=1" in url for _, url in served.cluster.requests) < len(sources):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(following()) == len(sources)
    feed.close()
    assert following() == []
