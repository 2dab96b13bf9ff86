"""An informer, after client-go's: lists collections, watches from the lists' versions, relists when a watch is lost."""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from agents.kube.client import Api, ApiError, Object
from agents.kube.watch import Watch
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.loop import ProblemLog

# A watch on a connection that died silently misses no more than this.
WATCH_SECONDS = 300.0
# A watch that the server ends sooner, without an event, is lost: to resume it might go on like that.
SHORTEST_SECONDS = 1.0
# Between two relists: doubles, with jitter, because all nodes lose their watches together when the server restarts.
BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 5.0
# An informer that watched for so long without an error has recovered.
STEADY_SECONDS = 30.0
_TAKE_SECONDS = 0.5
# Of each thread, together within the second that SIGTERM leaves.
_JOIN_SECONDS = 0.3
_BOOKMARK = "BOOKMARK"
# Of events that wait to be applied; as objects of Python they take up to 25 times as much.
BACKLOG_BYTES = 256 * 2**10

Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True)
class WatchSource:
    """A collection, and the version of it after which its events are wanted."""

    path: str
    resource_version: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listed(Generic[Kept]):
    """What is kept of a list, and from where to watch."""

    items: tuple[Kept, ...]
    source: WatchSource


def read_list(
    api: Api, path: str, keep: Callable[[Object], Kept | None], parameters: Mapping[str, str] | None = None
) -> Listed[Kept]:
    """A consistent list, which holds one page of whole objects in memory: `keep` returns what is kept of each, None for
    nothing. Raises ApiError and what `keep` raises."""
    given = dict(parameters or {})
    items: list[Kept] = []
    version = ""
    for page in api.pages(path, **given):
        version = page["metadata"]["resourceVersion"]
        items += [kept for item in page.get("items") or () if (kept := keep(item)) is not None]
        del page  # before the next one is read
    return Listed(tuple(items), WatchSource(path=path, resource_version=version, parameters=given))


def backoff_seconds(failures: int, jitter: float) -> float:
    """The wait after so many failures in a row; `jitter` is between 0 and 1."""
    return float(min(BACKOFF_SECONDS * 2 ** min(failures - 1, 10), LONGEST_BACKOFF_SECONDS)) * (0.5 + jitter)


class Backlog:
    """The bytes of events that are decoded and not applied yet: so many, or one event. Who reads more of them waits,
    and so, in the end, does the API server, which ends a watch that falls behind."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def enter(self, size: int) -> None:
        """Waits until there is room, or nothing else. Raises AgentError from `close` on: what nobody takes is not
        decoded either."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._bytes or self._bytes + size <= self._most_bytes)
            if self._closed:
                raise AgentError("these watches are closed")
            self._bytes += size

    def leave(self, size: int) -> None:
        with self._changed:
            self._bytes -= size
            self._changed.notify_all()

    def close(self) -> None:
        """Nobody waits or enters any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Watches:
    """Watches of several collections, each read by a thread of its own; one that ends in order is resumed."""

    def __init__(self, api: Api, clock: Clock, sources: Sequence[WatchSource]) -> None:
        self._api = api
        self._clock = clock
        self._happened: SimpleQueue[tuple[int, Object] | AgentError] = SimpleQueue()
        self._backlog = Backlog(BACKLOG_BYTES)
        self._taken = 0
        self._watches: list[Watch] = []
        self._closed = False
        self._threads = [
            threading.Thread(target=self._follow, args=(source,), name=f"watch of {source.path}", daemon=True)
            for source in sources
        ]
        for thread in self._threads:
            thread.start()

    def take(self, seconds: float) -> list[Object]:
        """Events since the last call, which are then applied; none if none came within that many seconds. A watch that
        was opened shows as a BOOKMARK of its version. Raises AgentError when a watch is lost; `expired` says that it
        was by a 410."""
        events: list[Object] = []
        self._backlog.leave(self._taken)
        self._taken = 0
        try:
            happened = self._happened.get(timeout=seconds)
            while True:
                if isinstance(happened, AgentError):
                    raise happened
                size, event = happened
                self._taken += size
                events.append(event)
                happened = self._happened.get_nowait()
        except Empty:
            return events

    def close(self) -> None:
        """Ends every watch, and its thread, which closes the connection; one that is not answered yet is left behind.

        A thread that ends while Python does may fail the run: pthread_exit aborts where libgcc_s is not installed.
        """
        self._closed = True
        self._backlog.close()
        for watch in [*self._watches]:
            watch.stop()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def _follow(self, source: WatchSource) -> None:
        lost = AgentError(f"the watch of {source.path} ended")
        version = source.resource_version
        try:
            while not self._closed:
                version = self._watch(source, version)
        except AgentError as error:
            lost = error
        finally:
            self._happened.put(lost)

    def _watch(self, source: WatchSource, version: str) -> str:
        """One watch, from its start to its end. Returns the version to resume from. Raises AgentError."""
        began, watched = self._clock.monotonic(), version
        with Watch(
            self._api,
            source.path,
            clock=self._clock,
            resource_version=version,
            seconds=WATCH_SECONDS,
            admit=self._backlog.enter,
            **source.parameters,
        ) as watch:
            self._watches.append(watch)
            self._happened.put((0, {"type": _BOOKMARK, "object": {"metadata": {"resourceVersion": version}}}))
            if not self._closed:  # before it could be stopped
                for event in watch:
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._happened.put((watch.size, event))
                    del event  # before the next one is decoded
            self._watches.remove(watch)
        if version == watched and self._clock.monotonic() - began < SHORTEST_SECONDS:
            raise AgentError(f"WATCH {source.path}: the server ended it at once")
        return version


@dataclass(kw_only=True)
class Informer:
    """One thread runs `run`, which calls the other functions; any thread may call `relist` and `stop`.

    `lists` lists, takes over what it found and returns from where to watch; `apply` takes an ADDED, MODIFIED or DELETED
    object. When either raises AgentError, what is known stays, and everything is listed again after a backoff. `ready`
    is called several times a second, and nothing is listed before it returns True.

    `alive_at` is when the thread last came round, `heard_at` when the API server last sent anything; monotonic seconds,
    at first those of the start.
    """

    api: Api
    lists: Callable[[], Sequence[WatchSource]]
    apply: Callable[[Object], None]
    problem: ProblemLog
    clock: Clock
    ready: Callable[[], bool] = lambda: True
    jitter: Callable[[], float] = random.random
    alive_at: float = field(init=False)
    heard_at: float = field(init=False)
    _failures: int = 0
    _stopped: bool = False
    _relist: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.alive_at = self.heard_at = self.clock.monotonic()

    def relist(self) -> None:
        """Has everything listed again, by a list that begins after this call."""
        self._relist.set()

    def stop(self) -> None:
        """Ends `run` within a moment."""
        self._stopped = True
        self._relist.set()

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped:
            try:
                if self._is_ready():
                    self._follow()
                else:
                    self.clock.sleep(_TAKE_SECONDS)
            except AgentError as error:
                self._failures += 1
                if not (isinstance(error, ApiError) and error.expired):  # a 410 is part of how watches work
                    self.problem.report(str(error))
                self.alive_at = self.clock.monotonic()
                self.clock.sleep(backoff_seconds(self._failures, self.jitter()))

    def _is_ready(self) -> bool:
        self.alive_at = self.clock.monotonic()
        return self.ready()

    def _follow(self) -> None:
        """Lists, then watches until that is over or a relist is wanted."""
        self._relist.clear()
        watches = Watches(self.api, self.clock, self.lists())
        began = self.heard_at = self.clock.monotonic()
        try:
            while self._is_ready() and not self._relist.is_set():
                self._apply_all(watches.take(_TAKE_SECONDS))
                if self.clock.monotonic() - began > STEADY_SECONDS:
                    self._failures = 0
                    self.problem.report(None)
        finally:
            watches.close()

    def _apply_all(self, events: Sequence[Object]) -> None:
        """Afterwards no event is held."""
        for event in events:
            self.heard_at = self.clock.monotonic()
            if event["type"] != _BOOKMARK:
                self.apply(event)
