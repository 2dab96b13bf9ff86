"""An informer like client-go's. The informer lists collections, and starts a watch of each collection at the
resourceVersion of the list.

If a watch fails, the informer lists all collections again.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from agents.kube.client import Api, ApiError, Object
from agents.kube.paths import ApiPath
from agents.kube.watch import Watch
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.loop import ProblemLog

# The longest duration of one watch. After an unnoticed failure of a connection, events are missing for at most this
# time.
WATCH_SECONDS = 300.0
# If a watch without events ends earlier than this time, the informer relists instead of resuming the watch.
SHORTEST_SECONDS = 1.0
# The wait after the first failure, which doubles after each further failure. The wait has jitter, because the watches
# on all nodes may fail at the same time.
BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 5.0
# An informer that has watched for this time without an error has recovered.
STEADY_SECONDS = 30.0
_TAKE_SECONDS = 0.5
# The longest wait for the end of each thread. All threads together must end within one second after SIGTERM.
_JOIN_SECONDS = 0.3
_BOOKMARK = "BOOKMARK"
# The maximum size in bytes of all events that are read but not yet applied. Parsed events take up to 25 times as much
# host memory.
BACKLOG_BYTES = 256 * 2**10

Kept = TypeVar("Kept")


@dataclass(frozen=True, kw_only=True)
class WatchSource:
    """A collection, and the resourceVersion at which a watch of the collection starts."""

    path: ApiPath
    resource_version: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Listed(Generic[Kept]):
    """The result of a list request: the kept parts of the objects, and the source for a watch of the collection."""

    items: tuple[Kept, ...]
    source: WatchSource


def read_list(
    api: Api, path: ApiPath, keep: Callable[[Object], Kept | None], parameters: Mapping[str, str] | None = None
) -> Listed[Kept]:
    """Reads a consistent list. At most one page of complete objects is in host memory at the same time.

    `keep` returns the part of an object that the caller needs, or None. Raises ApiError, and the errors of `keep`.
    """
    given = dict(parameters or {})
    items: list[Kept] = []
    version = ""
    for page in api.pages(path, **given):
        version = page["metadata"]["resourceVersion"]
        items += [kept for item in page.get("items") or () if (kept := keep(item)) is not None]
        del page  # this statement frees the memory of one page before the next page is read
    return Listed(tuple(items), WatchSource(path=path, resource_version=version, parameters=given))


def keep_whole(item: Object) -> Object:
    """Returns the whole object. This function can be the argument `keep` of `read_list`."""
    return item


def name_selector(name: str) -> Mapping[str, str]:
    """Returns the field selector for one object. RBAC permits lists and watches by resourceNames only with a field
    selector for one object.
    """
    return {"fieldSelector": f"metadata.name={name}"}


def backoff_seconds(failures: int, jitter: float) -> float:
    """Returns the number of seconds to wait after a number of failures in a row. `jitter` is between 0 and 1."""
    return float(min(BACKOFF_SECONDS * 2 ** min(failures - 1, 10), LONGEST_BACKOFF_SECONDS)) * (0.5 + jitter)


class Backlog:
    """Limits the bytes of events that are decoded but not yet applied.

    A single event may be larger than the limit. When the limit is reached, the reading thread waits. While the reading
    thread waits, the API server may end the watch.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    def enter(self, size: int) -> None:
        """Waits until the event's size is within the limit. After a call of `close`, raises AgentError, so that the
        thread decodes no more events.
        """
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
        """Ends all waits. Every later call of `enter` raises AgentError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Watches:
    """Watches several collections, each in a separate thread. Resumes a watch after its normal end."""

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
        """Returns the events since the last call. If no event arrives within `seconds`, returns an empty list.

        Before the next call, the caller must apply all events of the last call. The opening of a watch adds a BOOKMARK
        event to the events. Raises AgentError if a watch has failed. After status 410, the error is an ApiError with
        `expired`.
        """
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
        """Ends the watches and their threads. A thread that waits for a response ends later.

        If a thread ends together with the Python interpreter, the process may crash, because pthread_exit needs
        libgcc_s.
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
        """Reads one watch to its end, and returns the resourceVersion for the next watch. Raises AgentError."""
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
            if not self._closed:  # `close` may have been called during the opening of the watch
                for event in watch:
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._happened.put((watch.size, event))
                    del event  # frees the memory of the event before the next event is decoded
            self._watches.remove(watch)
        if version == watched and self._clock.monotonic() - began < SHORTEST_SECONDS:
            raise AgentError(f"WATCH {source.path}: the server ended it at once")
        return version


@dataclass(kw_only=True)
class Informer:
    """Lists and watches collections. One thread runs `run`. Any thread may call `relist` and `stop`.

    `lists` lists the collections, stores the objects and returns the sources for the watches. `apply` gets each ADDED,
    MODIFIED or DELETED event. If `lists` or `apply` raises AgentError, the informer waits and lists all collections
    again. The informer lists nothing before `ready` returns True.

    `alive_at` is the time of the last activity of the informer's thread. `heard_at` is the time of the API server's
    last event. The times are in monotonic seconds.
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
    relist_wanted: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.alive_at = self.heard_at = self.clock.monotonic()

    @property
    def age_seconds(self) -> float:
        """Returns the seconds since the API server's last event, or since the start of the informer."""
        return self.clock.monotonic() - self.heard_at

    def relist(self) -> None:
        """Requests a relist that begins after this call."""
        self.relist_wanted.set()

    def stop(self) -> None:
        """Requests the end of `run`."""
        self._stopped = True
        self.relist_wanted.set()

    def run(self) -> None:
        while not self._stopped:
            try:
                if self._is_ready():
                    self._follow()
                else:
                    self.clock.sleep(_TAKE_SECONDS)
            except AgentError as error:
                self._failures += 1
                if not (isinstance(error, ApiError) and error.expired):  # status 410 is a normal end of a watch
                    self.problem.report(str(error))
                self.alive_at = self.clock.monotonic()
                self.clock.sleep(backoff_seconds(self._failures, self.jitter()))

    def _is_ready(self) -> bool:
        self.alive_at = self.clock.monotonic()
        return self.ready()

    def _follow(self) -> None:
        """Lists the objects, and watches them until somebody requests a relist. Raises AgentError if a watch fails."""
        self.relist_wanted.clear()
        watches = Watches(self.api, self.clock, self.lists())
        began = self.heard_at = self.clock.monotonic()
        try:
            # A call of `stop` before `clear` has left only `_stopped`.
            while not self._stopped and self._is_ready() and not self.relist_wanted.is_set():
                self._apply_all(watches.take(_TAKE_SECONDS))
                if self.clock.monotonic() - began > STEADY_SECONDS:
                    self._failures = 0
                    self.problem.report(None)
        finally:
            watches.close()

    def _apply_all(self, events: Sequence[Object]) -> None:
        for event in events:
            self.heard_at = self.clock.monotonic()
            if event["type"] != _BOOKMARK:
                self.apply(event)
