"""Tests that the informer lists and watches objects, relists, and waits after errors."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from agents.kube import informer as module
from agents.kube.informer import Backlog, Informer, Watches, WatchSource, read_list
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.loop import ProblemLog
from tests.support.fake_cluster import Fault, Served, status
from tests.support.informing import HurriedTime, running
from tests.support.waiting import PATIENCE_SECONDS, eventually

NODES = "/api/v1/nodes"


def name_of(item: Any) -> str:
    found: str = item["metadata"]["name"]
    return found


class Nodes:
    def __init__(self, served: Served) -> None:
        self.served, self.cluster, self.time = served, served.cluster, HurriedTime()
        self.names: set[str] = set()
        self.lists = 0
        self.is_ready = True
        self.api = served.api(clock=self.time.clock(), attempts=1)
        self.informer = Informer(
            api=self.api,
            lists=self.list_nodes,
            apply=self.apply,
            ready=lambda: self.is_ready,
            problem=ProblemLog(log=served.log(), failing="relists the nodes", recovered="watches the nodes again"),
            clock=self.time.clock(),
            jitter=lambda: 0.5,
        )

    def steady(self) -> bool:
        self.time.ahead_seconds += module.STEADY_SECONDS + 1
        return True

    def list_nodes(self) -> Sequence[WatchSource]:
        self.lists += 1
        listed = read_list(self.api, NODES, name_of)
        self.names = set(listed.items)
        return (listed.source,)

    def apply(self, event: Any) -> None:
        (self.names.discard if event["type"] == "DELETED" else self.names.add)(name_of(event["object"]))

    def await_applied(self) -> None:
        """Waits until the informer has applied all events so far, which takes it at most two rounds."""
        self.cluster.await_read()
        for _ in range(2):
            began = self.informer.alive_at
            eventually(lambda began=began: self.informer.alive_at > began)

    def watched_from(self) -> list[str]:
        urls = [url for _, url in self.cluster.requests if "watch=1" in url]
        return [url.partition("resourceVersion=")[2].partition("&")[0] for url in urls]

    def messages(self) -> list[str]:
        return [line["message"] for line in self.served.lines()]


@pytest.fixture
def nodes(served: Served) -> Nodes:
    served.cluster.add_node("listed")
    return Nodes(served)


def bookmark(nodes: Nodes, version: str) -> None:
    nodes.cluster.tell("BOOKMARK", NODES, {"kind": "Node", "metadata": {"resourceVersion": version}})


def test_what_is_listed_is_kept_up_to_date_by_the_watch(nodes: Nodes) -> None:
    version = str(nodes.cluster.version)
    with running(nodes.informer, nodes.cluster):
        assert nodes.names == {"listed"}
        nodes.cluster.add_node("later")
        eventually(lambda: nodes.names == {"listed", "later"})
    assert (nodes.lists, nodes.watched_from()) == (1, [version])


def test_a_watch_that_the_server_ends_is_resumed_from_the_last_version_without_a_list(nodes: Nodes) -> None:
    with running(nodes.informer, nodes.cluster):
        nodes.cluster.add_node("later")
        eventually(lambda: "later" in nodes.names)
        version = str(nodes.cluster.version)
        nodes.cluster.end_open_watches()
        eventually(lambda: version in nodes.watched_from())
        nodes.cluster.add_node("meanwhile")
        eventually(lambda: "meanwhile" in nodes.names)
    assert nodes.lists == 1
    assert nodes.messages() == []


@pytest.mark.parametrize("where", ["as it is opened", "within it"])
def test_a_version_that_expired_is_answered_by_a_relist_and_is_no_error(nodes: Nodes, where: str) -> None:
    if where == "as it is opened":
        nodes.cluster.faults.append(Fault("GET", f"{NODES}?watch", 410, "Expired"))
    with running(nodes.informer, nodes.cluster):
        if where == "within it":
            metadata = {"resourceVersion": nodes.cluster.next_version()}
            expired = {**status(410, "Expired", "too old resource version"), "metadata": metadata}
            nodes.cluster.tell("ERROR", NODES, expired)
        eventually(lambda: nodes.lists == 2)
        eventually(lambda: len(nodes.watched_from()) >= 2)
    assert nodes.messages() == []


def test_an_informer_that_waits_until_it_may_list_is_alive(nodes: Nodes) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += 7.0
        if now[0] > 20.0:
            nodes.informer.stop()

    nodes.informer.clock = Clock(monotonic=lambda: now[0], sleep=sleep)
    nodes.informer.ready = lambda: False
    nodes.informer.run()
    assert (nodes.informer.alive_at, nodes.lists) == (14.0, 0)


def test_what_was_known_stays_while_the_lists_fail(nodes: Nodes) -> None:
    with running(nodes.informer, nodes.cluster):
        nodes.cluster.faults.append(Fault("GET", f"{NODES}?limit", 500, times=5))
        nodes.informer.relist()
        eventually(lambda: nodes.lists >= 3)
        assert nodes.names == {"listed"}
        eventually(lambda: nodes.lists == 7)


def test_the_server_is_heard_by_lists_bookmarks_and_watches_that_it_opens(nodes: Nodes) -> None:
    with running(nodes.informer, nodes.cluster):
        nodes.await_applied()
        nodes.time.ahead_seconds = 100
        assert nodes.informer.heard_at < nodes.time.clock().monotonic() - 90
        bookmark(nodes, "5000")
        eventually(lambda: nodes.informer.heard_at > nodes.time.clock().monotonic() - 90)
        nodes.time.ahead_seconds = 200
        nodes.cluster.end_open_watches()
        eventually(lambda: nodes.informer.heard_at > nodes.time.clock().monotonic() - 90)
    assert nodes.lists == 1


def test_relists_wait_longer_each_time_until_a_watch_was_steady(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched_seconds = [None, None, None, None, None, module.STEADY_SECONDS + 1, None]

    class Lost:
        def __init__(self, *given: object) -> None:
            self.seconds = watched_seconds.pop(0)

        def take(self, seconds: float) -> list[Any]:
            if self.seconds is None:
                if not watched_seconds:
                    informer.stop()
                raise AgentError("the watch is lost")
            served.time.seconds += self.seconds
            self.seconds = None
            return []

        def close(self) -> None:
            pass

    monkeypatch.setattr(module, "Watches", Lost)
    informer = Informer(
        api=served.api(), lists=tuple, apply=lambda event: None, clock=served.time.clock(), jitter=lambda: 0.5,
        problem=ProblemLog(log=served.log(), failing="relists", recovered="watches again"),
    )  # fmt: skip
    informer.run()
    assert served.time.slept == [0.5, 1.0, 2.0, 4.0, 5.0, 0.5, 1.0]


def test_who_reads_events_waits_until_those_before_are_applied() -> None:
    backlog, entered = Backlog(10), list[int]()

    def read(*sizes: int) -> None:
        for size in sizes:
            with suppress(AgentError):
                backlog.enter(size)
                entered.append(size)

    reader = threading.Thread(target=read, args=(4, 6, 50, 1))
    reader.start()
    eventually(lambda: entered == [4, 6])
    backlog.leave(4)
    backlog.leave(6)
    eventually(lambda: entered == [4, 6, 50], state=lambda: entered)
    backlog.close()
    reader.join(PATIENCE_SECONDS)
    assert entered == [4, 6, 50]  # the informer decodes no event after `close`


def test_closed_watches_leave_no_thread_that_could_end_together_with_python(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_JOIN_SECONDS", PATIENCE_SECONDS)
    served.cluster.watches_last = True
    others = set(threading.enumerate())
    sources = [WatchSource(path=path, resource_version="1") for path in (NODES, "/api/v1/pods")]
    watches = Watches(served.api(clock=Clock()), Clock(), sources)
    following = [thread for thread in threading.enumerate() if thread not in others and "watch of" in thread.name]
    assert len(following) == len(sources)
    served.cluster.await_watches(len(sources))
    watches.close()
    assert not any(thread.is_alive() for thread in following)
