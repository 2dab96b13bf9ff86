"""Whether this pod's kube-scheduler leads: its Lease, followed by a watch.

Two schedulers never schedule at once, and each asks the extender of its own pod. So the extender that answers is the
one whose scheduler holds the Lease, and no two of them hand out the same memory.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from agents.api import Api, Object
from agents.clock import Clock
from agents.errors import AgentError
from agents.feed import Feed, Source
from agents.log import Log

_BACKOFF_SECONDS = 1.0
_WATCH_SECONDS = 300.0
_TAKE_SECONDS = 1.0
_DEFAULT_SECONDS = 15  # of leaseDurationSeconds, kube-scheduler's own


class Leadership(Protocol):
    """When this process began to lead without a break, monotonic seconds; None while it does not."""

    @property
    def since(self) -> float | None: ...


@dataclass(frozen=True)
class Always:
    """For a single scheduler without leader election."""

    since: float


@dataclass(kw_only=True)
class LeaseLeadership:
    """One thread runs `keep`, all read. `gained` is called at each beginning."""

    api: Api
    namespace: str
    name: str
    holder: str  # the pod; kube-scheduler's identity is its host name, "_" and a UUID
    gained: Callable[[], None]
    clock: Clock
    log: Log
    _since: float | None = None
    _until: float = 0.0
    _renewed: object = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def since(self) -> float | None:
        """None as well where no renewal has been seen for the Lease's duration: another may have taken over."""
        with self._lock:
            return self._since if self.clock.monotonic() < self._until else None

    def keep(self) -> None:
        """For ever; after an error again, a little later."""
        while True:
            try:
                self._follow()
            except AgentError as error:
                self.log.warning(f"reads the Lease anew: {error}")
                self.clock.sleep(_BACKOFF_SECONDS)

    def see(self, lease: Object | None) -> None:
        """A Lease as it is now; None for one that is gone."""
        spec = (lease or {}).get("spec") or {}
        ours = str(spec.get("holderIdentity") or "").startswith(f"{self.holder}_")
        now = self.clock.monotonic()
        with self._lock:
            led = self._since is not None and now < self._until
            if spec.get("renewTime") != self._renewed:  # not where the same Lease is only read again
                self._renewed = spec.get("renewTime")
                self._until = now + (spec.get("leaseDurationSeconds") or _DEFAULT_SECONDS)
            self._since = (self._since if led else now) if ours else None
        if ours != led:
            self.log.info("leads" if ours else "does not lead any more", holder=spec.get("holderIdentity"))
        if ours and not led:
            self.gained()

    def _follow(self) -> None:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        only = {"fieldSelector": f"metadata.name={self.name}"}
        (listed,) = self.api.pages(path, **only)
        for lease in listed["items"] or [None]:
            self.see(lease)
        source = Source(path=path, resource_version=listed["metadata"]["resourceVersion"], parameters=only)
        feed = Feed(self.api, self.clock, [source], seconds=_WATCH_SECONDS, lasts=True)
        try:
            while True:
                for event in feed.take(_TAKE_SECONDS):
                    if event["type"] != "BOOKMARK":
                        self.see(None if event["type"] == "DELETED" else event["object"])
        finally:
            feed.close()
