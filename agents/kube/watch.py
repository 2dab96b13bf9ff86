"""Reads the events of one watch request."""

import http.client
import json
import math
from collections.abc import Callable, Iterator
from typing import Self

from agents.kube.client import Api, Object
from agents.kube.errors import refusal, unanswered
from agents.kube.paths import ApiPath, with_query
from agents.runtime.clock import Clock


class Watch(Iterator[Object]):
    """Yields the events of the collection at `path`. The first event is the next change after `resource_version`. The
    watch ends after `seconds`.

    An event has the keys type and object. The type of an event is ADDED, MODIFIED, DELETED or BOOKMARK. The events end
    when `seconds` have passed, when the API server ends the watch, or after a call of `stop`. The opening of the watch
    and each read may raise ApiError. After status 410, the caller must list the collection again. Each watch has its
    own connection, and is not retried.

    `admit` gets the size of each event in bytes before the event is decoded. `admit` may wait or raise AgentError.
    `size` is the size of the last event in bytes.
    """

    def __init__(
        self,
        api: Api,
        path: ApiPath,
        *,
        clock: Clock,
        resource_version: str,
        seconds: float,
        admit: Callable[[int], None] = lambda size: None,
        **parameters: str,
    ) -> None:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, math.ceil(seconds))),
            **parameters,
        }
        self._request = f"WATCH {path}"
        self._clock = clock
        self._end = clock.monotonic() + seconds
        self._stopped = False
        self._admit = admit
        self.size = 0
        self._stream = api.open(with_query(path, **query))
        self._events = map(self._event, self._lines())

    def __next__(self) -> Object:
        return next(self._events)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def stop(self) -> None:
        """Ends the watch. Any thread may call this method."""
        self._stopped = True
        self._stream.stop()

    def _lines(self) -> Iterator[bytes]:
        line = bytearray()
        while (left := self._end - self._clock.monotonic()) > 0:
            chunk = self._read(left)
            if not chunk:
                return
            *whole, rest = chunk.split(b"\n")
            for end in whole:
                line += end
                yield bytes(line)
                line.clear()
            line += rest

    def _read(self, seconds: float) -> bytes:
        """Returns the next bytes of the watch, or b"" at its end."""
        try:
            return self._stream.read(seconds)
        except (OSError, http.client.HTTPException) as error:
            if self._stopped:
                return b""
            raise unanswered(self._request, error) from None

    def _event(self, line: bytes) -> Object:
        self.size = len(line)
        self._admit(self.size)
        event: Object = json.loads(line)
        if event["type"] == "ERROR":
            raise refusal(self._request, event["object"])
        return event
