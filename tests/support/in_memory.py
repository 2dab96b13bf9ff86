"""Connects a client to a FakeCluster in the same process, without sockets, TLS or threads."""

import http.client
import json
import time
from collections.abc import Iterator
from email.utils import format_datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from agents.kube.transport import ApiRequest, ApiResponse, Stream

if TYPE_CHECKING:
    from tests.support.fake_cluster import FakeCluster


class InMemory:
    def __init__(self, cluster: "FakeCluster") -> None:
        self._cluster = cluster

    def send(self, request: ApiRequest) -> ApiResponse:
        self._cluster.tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
        self._cluster.agents.append(request.headers["User-Agent"])
        body = json.loads(request.body) if request.body is not None else None
        try:
            code, answer, headers = self._cluster.answer(request.method, request.path, body)
        except ConnectionAbortedError:  # A real client gets this error when it reads the next line.
            raise http.client.RemoteDisconnected("Remote end closed connection without response") from None
        shown = {name.lower(): value for name, value in headers.items()}
        date = format_datetime(self._cluster.time_of_day(), usegmt=True)
        reason = http.client.responses.get(code, "")
        return ApiResponse(
            status=code, reason=reason, headers={"date": date, **shown}, body=json.dumps(answer).encode()
        )

    def open(self, request: ApiRequest) -> Stream | ApiResponse:
        response = self.send(request)
        if response.status >= http.client.BAD_REQUEST:
            return response
        split = urlsplit(request.path)
        return InMemoryStream(
            self._cluster, split.path, {key: values[0] for key, values in parse_qs(split.query).items()}
        )

    def close(self) -> None:
        pass


class InMemoryStream:
    def __init__(self, cluster: "FakeCluster", path: str, query: dict[str, str]) -> None:
        self._cluster = cluster
        self._stopped = False
        self._end = 0.0
        self._events: Iterator[dict[str, object]] = cluster.events_after(path, query, self._seconds_left)

    def read(self, seconds: float) -> bytes:
        self._end = time.monotonic() + seconds
        return next((json.dumps(event).encode() + b"\n" for event in self._events), b"")

    def stop(self) -> None:
        with self._cluster.happened:
            self._stopped = True
            self._cluster.happened.notify_all()

    def close(self) -> None:
        self.stop()
        self._events.close()  # type: ignore[attr-defined]

    def _seconds_left(self) -> float:
        return 0.0 if self._stopped else self._end - time.monotonic()
