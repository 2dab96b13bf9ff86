"""Writes Kubernetes Events (events.k8s.io/v1) about the acts and refusals of an agent."""

import hashlib
import http.client
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Full, Queue
from typing import NoReturn

from agents.kube.client import Api, ApiError
from agents.kube.paths import api_path
from agents.runtime.clock import Clock
from agents.runtime.errors import AgentError
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog

# Events about cluster-scoped objects are in this namespace (ValidateEventCreate in pkg/apis/core/validation/events.go).
_CLUSTER_SCOPED = "default"
_NOTE_BYTES = 1024
_MOST = 1000  # the maximum number of queued Events while the API server does not answer


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The object that an Event is about. `namespace` is None for a cluster-scoped object."""

    api_version: str
    kind: str
    namespace: str | None = None
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class Event:
    """An Event.

    An agent writes an equal Event only after the API server has deleted the first one, usually after an hour. Two
    Events with different `occasion` are not equal.
    """

    regarding: Reference
    reason: str
    note: str
    action: str
    warning: bool
    occasion: str = ""


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Writes Events. `controller` is the name of the agent, and `instance` is the name of the agent's pod."""

    api: Api
    controller: str
    instance: str

    def record(self, event: Event, now: datetime) -> None:
        """Writes an Event, unless it exists already. The name of an Event is a hash of its content. Raises ApiError."""
        regarding = event.regarding
        namespace = regarding.namespace or _CLUSTER_SCOPED
        content = "\0".join((self.controller, regarding.uid, event.reason, event.note, event.occasion))
        name = f"{self.controller}.{hashlib.sha256(content.encode(errors='replace')).hexdigest()[:16]}"
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "action": event.action,
            "note": event.note.encode(errors="replace")[:_NOTE_BYTES].decode(errors="ignore"),
            "regarding": _object_reference(regarding),
            "reportingController": self.controller,
            "reportingInstance": self.instance,
        }
        try:
            self.api.create(api_path("events.k8s.io/v1", "namespaces", namespace, "events"), body)
        except ApiError as error:
            if error.status != http.client.CONFLICT:
                raise

    def try_record(self, event: Event, now: datetime, log: Log) -> None:
        """Writes an Event, or logs the error."""
        try:
            self.record(event, now)
        except ApiError as error:
            log.warning(f"the event was not written: {error}")


@dataclass(kw_only=True)
class EventWriter:
    """Writes Events in the background. One thread runs `keep`. Any thread may call `put`.

    If an Event cannot be written, the writer logs the error and continues with the next Event.
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
        """Adds an Event to the queue, and returns without waiting."""
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
