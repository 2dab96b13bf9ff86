"""Watches the Lease of kube-scheduler's leader election.

Only the leading scheduler schedules pods, and each scheduler uses the extender in its own pod. An extender answers
kube-scheduler only while the scheduler in its pod leads. Two extenders therefore never give the same memory to
different pods.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.kube.client import Api, Object
from agents.kube.informer import Informer, WatchSource, keep_whole, name_selector, read_list
from agents.kube.paths import api_path
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog
from tenancy.seconds import EXTENDER_TIMEOUT_SECONDS

_DEFAULT_SECONDS = 15  # kube-scheduler's default for leaseDurationSeconds.
# Within this time, the last bind of an earlier leader ends, because kube-scheduler stops before it loses its Lease.
FENCE_SECONDS = EXTENDER_TIMEOUT_SECONDS


@dataclass(kw_only=True)
class LeaseWatcher:
    """Watches the Lease. One thread runs `informer`. Any thread may read `since`.

    `gained` is called whenever a leadership begins. After another scheduler held the Lease, this leadership begins with
    the first renewal after FENCE_SECONDS. When `gained` lists the pods, the list therefore contains the last bind of
    the earlier leader.
    """

    api: Api
    namespace: str
    name: str
    holder: str  # this pod's name. The identity of kube-scheduler is the pod's name, "_" and a UUID
    gained: Callable[[], None]
    clock: Clock
    log: Log
    _since: float | None = None
    _until: float = 0.0
    _renewed: object = None
    _transitions: int = 0
    _fenced_until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    informer: Informer = field(init=False)

    def __post_init__(self) -> None:
        problem = ProblemLog(log=self.log, failing="relists the Lease", recovered="watches the Lease again")
        self.informer = Informer(api=self.api, lists=self._list, apply=self._apply, problem=problem, clock=self.clock)

    @property
    def since(self) -> float | None:
        """Returns the monotonic time when the leadership began, or None. Also returns None if the Lease has expired,
        because another scheduler may now lead.
        """
        with self._lock:
            return self._since if self.clock.monotonic() < self._until else None

    def see(self, lease: Object | None) -> None:
        """Stores the current Lease, or None after the deletion of the Lease."""
        spec = (lease or {}).get("spec") or {}
        ours = str(spec.get("holderIdentity") or "").startswith(f"{self.holder}_")
        now = self.clock.monotonic()
        with self._lock:
            led = self._since is not None and now < self._until
            if spec.get("renewTime") != self._renewed:  # if the time is equal, the Lease was not renewed
                self._renewed = spec.get("renewTime")
                self._until = now + (spec.get("leaseDurationSeconds") or _DEFAULT_SECONDS)
            transitions = spec.get("leaseTransitions") or 0
            if transitions != self._transitions:
                self._transitions, self._fenced_until = transitions, now + FENCE_SECONDS
            leads = ours and now >= self._fenced_until
            self._since = (self._since if led else now) if leads else None
        if leads != led:
            self.log.info("leads" if leads else "is no longer the leader", holder=spec.get("holderIdentity"))
        if leads and not led:
            self.gained()

    def _list(self) -> Sequence[WatchSource]:
        path = api_path("coordination.k8s.io/v1", "namespaces", self.namespace, "leases")
        listed = read_list(self.api, path, keep_whole, name_selector(self.name))
        self.see(listed.items[0] if listed.items else None)
        return (listed.source,)

    def _apply(self, event: Object) -> None:
        self.see(None if event["type"] == "DELETED" else event["object"])
