"""Kubernetes Events (events.k8s.io/v1): reports what an agent did or refused to do to an object, and why."""

import hashlib
import http.client
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Full, Queue
from typing import NoReturn

from agents.kube.client import Api, ApiError, below
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog

# Events on cluster-scoped objects are in this namespace (ValidateEventCreate in pkg/apis/core/validation/events.go).
_CLUSTER_SCOPED = "default"
_NOTE_BYTES = 1024
_MOST = 1000  # the most events that wait to be written while the API is away


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The object of an event; `namespace` is None if it is cluster-scoped."""

    api_version: str
    kind: str
    namespace: str | None = None
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event. The same note is written once an hour, unless `occasion` differs."""

    regarding: Reference
    reason: str
    note: str
    action: str
    warning: bool
    occasion: str = ""


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Writes events. `controller` is a workload, and `instance` is its pod."""

    api: Api
    controller: str
    instance: str

    def record(self, event: Event, now: datetime) -> None:
        """Writes an event, unless the same event exists: its name is a hash of its content. Raises ApiError."""
        regarding = event.regarding
        namespace = regarding.namespace or _CLUSTER_SCOPED
        content = "\0".join((self.controller, regarding.uid, event.reason, event.note, event.occasion))
        name = f"{self.controller}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "action": event.action,
            "note": event.note.encode()[:_NOTE_BYTES].decode(errors="ignore"),
            "regarding": _object_reference(regarding),
            "reportingController": self.controller,
            "reportingInstance": self.instance,
        }
        try:
            self.api.create(below("/apis/events.k8s.io/v1/namespaces", namespace, "events"), body)
        except ApiError as error:
            if error.status != http.client.CONFLICT:
                raise

    def try_record(self, event: Event, now: datetime, log: Log) -> None:
        """Writes an event, or logs why it could not be written. A missing Event must not stop the act."""
        try:
            self.record(event, now)
        except ApiError as error:
            log.warning(f"the event was not written: {error}")


@dataclass(kw_only=True)
class EventWriter:
    """Writes events in the background. Any thread puts, one thread runs `keep`.

    An event that cannot be written is logged, and delays no other event.
    """

    recorder: Recorder
    clock: Clock
    log: Log
    _queue: "Queue[Event]" = field(default_factory=lambda: Queue(_MOST))
    _problem: ProblemLog = field(init=False)

    def __post_init__(self) -> None:
        self._problem = ProblemLog(
            log=self.log, failing="an Event is not written", recovered="Events are written again"
        )

    def put(self, event: Event) -> None:
        """Adds an event to those that wait, and returns at once."""
        try:
            self._queue.put_nowait(event)
        except Full:
            self._problem.report(f"{_MOST} wait to be written")

    def write_next(self) -> None:
        event = self._queue.get()
        try:
            self.recorder.record(event, self.clock.now())
        except AgentError as error:
            self._problem.report(str(error))
        else:
            self._problem.report(None)

    def keep(self) -> NoReturn:
        while True:
            self.write_next()


def _object_reference(regarding: Reference) -> dict[str, str]:
    found = {"apiVersion": regarding.api_version, "kind": regarding.kind, "name": regarding.name, "uid": regarding.uid}
    return found if regarding.namespace is None else {**found, "namespace": regarding.namespace}
