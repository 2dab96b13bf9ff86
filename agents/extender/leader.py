"""Watches the Lease of kube-scheduler's leader election.

Only the leading scheduler schedules pods, and each scheduler uses the extender in its own pod. An extender answers only
while its scheduler leads. So two extenders never give the same memory to different pods.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agents.kube.client import Api, Object
from agents.kube.informer import Informer, WatchSource, keep_whole, name_selector, read_list
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog

_DEFAULT_SECONDS = 15  # kube-scheduler's default for leaseDurationSeconds


class LeaderCheck(Protocol):
    """Shows whether this pod's scheduler leads. `since` is the start of leadership in monotonic seconds, or None."""

    @property
    def since(self) -> float | None: ...


@dataclass(frozen=True)
class AlwaysLeader:
    """Replaces the Lease for a single scheduler without leader election. This scheduler always leads."""

    since: float


@dataclass(kw_only=True)
class LeaseWatcher:
    """Watches the Lease. One thread runs `informer`; any thread may read `since`.

    `gained` is called each time the leadership begins.
    """

    api: Api
    namespace: str
    name: str
    holder: str  # this pod's name; kube-scheduler's identity is the pod's name, "_" and a UUID
    gained: Callable[[], None]
    clock: Clock
    log: Log
    _since: float | None = None
    _until: float = 0.0
    _renewed: object = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    informer: Informer = field(init=False)

    def __post_init__(self) -> None:
        problem = ProblemLog(log=self.log, failing="relists the Lease", recovered="watches the Lease again")
        self.informer = Informer(api=self.api, lists=self._list, apply=self._apply, problem=problem, clock=self.clock)

    @property
    def since(self) -> float | None:
        """Returns None for an expired Lease, because another scheduler may then lead."""
        with self._lock:
            return self._since if self.clock.monotonic() < self._until else None

    def see(self, lease: Object | None) -> None:
        """Stores the current Lease, or None if the Lease was deleted."""
        spec = (lease or {}).get("spec") or {}
        ours = str(spec.get("holderIdentity") or "").startswith(f"{self.holder}_")
        now = self.clock.monotonic()
        with self._lock:
            led = self._since is not None and now < self._until
            if spec.get("renewTime") != self._renewed:  # an equal time means that the Lease was not renewed
                self._renewed = spec.get("renewTime")
                self._until = now + (spec.get("leaseDurationSeconds") or _DEFAULT_SECONDS)
            self._since = (self._since if led else now) if ours else None
        if ours != led:
            self.log.info("leads" if ours else "is no longer the leader", holder=spec.get("holderIdentity"))
        if ours and not led:
            self.gained()

    def _list(self) -> Sequence[WatchSource]:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        listed = read_list(self.api, path, keep_whole, name_selector(self.name))
        self.see(listed.items[0] if listed.items else None)
        return (listed.source,)

    def _apply(self, event: Object) -> None:
        self.see(None if event["type"] == "DELETED" else event["object"])
