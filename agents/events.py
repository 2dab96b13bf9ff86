"""Kubernetes Events (events.k8s.io/v1) on a Node: what an agent did to it, or refused to do, and why."""

import hashlib
import http.client
from dataclasses import dataclass
from datetime import UTC, datetime

from agents.api import Api, ApiError

# Events on cluster-scoped objects live here (ValidateEventCreate in pkg/apis/core/validation/events.go).
NAMESPACE = "default"
_NOTE_BYTES = 1024


@dataclass(frozen=True, kw_only=True)
class NodeEvent:
    """`occasion` tells two occurrences of the same note apart; without it the note stands once while it lasts (1 h)."""

    node: str
    uid: str
    reason: str
    note: str
    action: str
    warning: bool
    occasion: str = ""


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Writes events in the name of `controller`, a workload, and `instance`, its pod."""

    api: Api
    controller: str
    instance: str

    def record(self, event: NodeEvent, now: datetime) -> None:
        """Raises ApiError. An event that is there already is kept: its name is made from its content."""
        content = "\0".join((self.controller, event.uid, event.reason, event.note, event.occasion))
        name = f"{self.controller}.{hashlib.sha256(content.encode()).hexdigest()[:16]}"
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "eventTime": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "action": event.action,
            "note": event.note.encode()[:_NOTE_BYTES].decode(errors="ignore"),
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": event.node, "uid": event.uid},
            "reportingController": self.controller,
            "reportingInstance": self.instance,
        }
        try:
            self.api.create(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events", body)
        except ApiError as error:
            if error.status != http.client.CONFLICT:
                raise
