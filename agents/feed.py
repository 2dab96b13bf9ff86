"""Several watches at once, each read by a thread of its own, told in one place."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from agents.api import Api, Object
from agents.clock import Clock
from agents.errors import AgentError
from agents.watch import Watch

# Of each thread, together within the second that SIGTERM leaves.
_JOIN_SECONDS = 0.3
# Between two watches of a server that ends each at once.
_RESUME_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Source:
    """A collection, and the version of it after which its events are wanted."""

    path: str
    resource_version: str
    parameters: Mapping[str, str] = field(default_factory=dict)


class FeedError(AgentError):
    """One of the watches is over: what happens there is not told any more."""


class Feed:
    """The events of all sources, for at most so many seconds; one that `lasts` goes on where a watch ended in order."""

    def __init__(
        self, api: Api, clock: Clock, sources: Sequence[Source], *, seconds: float, lasts: bool = False
    ) -> None:
        self._api = api
        self._clock = clock
        self._seconds = seconds
        self._lasts = lasts
        self._told: SimpleQueue[Object | FeedError] = SimpleQueue()
        self._watches: list[Watch] = []
        self._closed = False
        self._threads = [
            threading.Thread(target=self._follow, args=(source,), name=f"watch of {source.path}", daemon=True)
            for source in sources
        ]
        for thread in self._threads:
            thread.start()

    def take(self, seconds: float) -> list[Object]:
        """The events that came meanwhile; none were there before that many seconds. Raises FeedError."""
        events: list[Object] = []
        try:
            told = self._told.get(timeout=seconds)
            while True:
                if isinstance(told, FeedError):
                    raise told
                events.append(told)
                told = self._told.get_nowait()
        except Empty:
            return events

    def close(self) -> None:
        """Ends every watch, and its thread, which closes the connection; one that is not answered yet is left behind.

        A thread that ends while Python does may fail the run: pthread_exit aborts where libgcc_s is not installed.
        """
        self._closed = True
        for watch in [*self._watches]:
            watch.stop()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def _follow(self, source: Source) -> None:
        why = "the server ended it"
        version = source.resource_version
        try:
            while version := self._watch(source, version):
                self._clock.sleep(_RESUME_SECONDS)
        except AgentError as error:
            why = str(error)
        finally:
            self._told.put(FeedError(f"the watch of {source.path} is over: {why}"))

    def _watch(self, source: Source, version: str) -> str:
        """One watch, from its start to its end. Returns the version at which the next one goes on, "" for none."""
        with Watch(
            self._api,
            source.path,
            clock=self._clock,
            resource_version=version,
            seconds=self._seconds,
            **source.parameters,
        ) as watch:
            self._watches.append(watch)
            if not self._closed:  # before it could be stopped
                for event in watch:
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._told.put(event)
            self._watches.remove(watch)
        return version if self._lasts and not self._closed else ""
