"""Keeps the cache up to date with watches on nodes, ResourceSlices and pods.

If one watch fails, the informer relists all three collections. The ledger is polled.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from agents.extender.cache.cache import Cache
from agents.extender.cache.inventory import devices_of
from agents.extender.cache.pod_info import Nomination, PodInfo, PodWithoutGpu, holder_of
from agents.kube import ledger as ledgers
from agents.kube.client import Api, ApiError, Object
from agents.kube.informer import Informer, Listed, WatchSource, read_list
from agents.kube.ledger import LedgerError
from agents.kube.nodes import NODES, Node
from agents.kube.pods import LIVE, PODS, Pod, PodError
from agents.kube.slices import SLICES
from agents.runtime.clock import Clock
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.workload import map_at

LEDGER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class StoredSlice:
    """A ResourceSlice with its spec as JSON. Python objects would take six times as much host memory."""

    node: str
    name: str
    spec: bytes

    @classmethod
    def of(cls, found: Object) -> Self:
        spec = found["spec"]
        return cls(spec.get("nodeName", ""), found["metadata"]["name"], json.dumps(spec).encode())

    def read(self) -> Object:
        return {"metadata": {"name": self.name}, "spec": json.loads(self.spec)}


@dataclass(kw_only=True)
class Informers:
    """Fills the cache from the API. One thread runs `informer`; any thread may read the fields.

    `problem` is the reason why no pod may be placed, or None. `listed_at` is the start of the last relist in monotonic
    seconds, or None before the first relist.
    """

    api: Api
    cache: Cache
    ledger_namespace: str
    clock: Clock
    log: Log
    problem: str | None = "the API has not been read yet"
    listed_at: float | None = None
    grown: Callable[[], None] = lambda: None  # called when more memory may be free than before
    ledger_seconds: float = LEDGER_SECONDS
    ledger: Ledger | None = None  # the last valid ledger
    _ledger_due: float = 0.0
    informer: Informer = field(init=False)
    _nodes: dict[str, Object] = field(default_factory=dict)
    _slices: dict[str, dict[str, StoredSlice]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem = ProblemLog(log=self.log, failing="relists the cluster", recovered="watches the cluster again")
        self.informer = Informer(
            api=self.api, lists=self.list_all, apply=self._apply, ready=self._ready, problem=problem, clock=self.clock
        )

    @property
    def server_now(self) -> datetime:
        """Returns the API server's time of day from its last response, which is a few seconds old."""
        return self.api.time or self.clock.now()

    @property
    def names(self) -> Names | None:
        """Returns the ledger's names, or None until the first ledger was read."""
        return self.ledger.names if self.ledger else None

    @property
    def nodes(self) -> tuple[Node, ...]:
        known = [*self._nodes.items()]
        return tuple(Node(name=name, labels=node["metadata"].get("labels") or {}) for name, node in known)

    def renew(self) -> None:
        """Requests a new read of the ledger and a relist. `listed_at` changes after the relist."""
        self._ledger_due = 0.0
        self.informer.relist()

    def _ready(self) -> bool:
        """Reads the ledger if the next read is due. Returns False if there is no ledger yet."""
        if self.clock.monotonic() >= self._ledger_due:
            self._read_ledger()
        return self.ledger is not None

    def list_all(self) -> Sequence[WatchSource]:
        """Rebuilds the cache from new lists, and returns the sources for the watches. Raises AgentError."""
        since, known = self.clock.monotonic(), self.ledger
        if known is None:
            raise LedgerError("no ledger has been read")
        nodes = read_list(self.api, NODES, _trimmed)
        slices = read_list(self.api, SLICES, StoredSlice.of)
        pods: Listed[PodInfo | PodWithoutGpu | Nomination] = read_list(self.api, PODS, self._pod, LIVE)
        self._nodes = {node["metadata"]["name"]: node for node in nodes.items}
        self._slices = {}
        for found in slices.items:
            self._slices.setdefault(found.node, {})[found.name] = found
        devices = [devices_of(node, self._of(name), known) for name, node in self._nodes.items()]
        self.cache.replace(devices, pods.items, since)
        self.listed_at = since
        self.log.info("listed the cluster", nodes=len(self._nodes), pods=len(pods.items))
        self.grown()
        return nodes.source, slices.source, pods.source

    def _apply(self, event: Object) -> None:
        found, gone = event["object"], event["type"] == "DELETED"
        match found["kind"]:
            case "Pod":
                self._apply_pod(found, gone)
            case "Node":
                name = found["metadata"]["name"]
                if gone:
                    self._nodes.pop(name, None)
                    self.cache.remove_node(name)
                else:
                    self._nodes[name] = _trimmed(found)
                    self._count(name)
            case "ResourceSlice":
                self._keep_slice(StoredSlice.of(found), gone)

    def _apply_pod(self, found: Object, gone: bool) -> None:
        pod, uid = None if gone else self._pod(found), found["metadata"]["uid"]
        if isinstance(pod, Nomination):
            self.cache.nominate(pod, self.clock.monotonic())
        elif pod is not None:
            self.cache.update_pod(pod)
        elif gone or Pod(found).node or Pod(found).ended:
            self.cache.remove_pod(uid)
            self.grown()
        elif self.cache.withdraw(uid, self.clock.monotonic()):  # ends the nomination and keeps the reservation
            self.grown()

    def _pod(self, item: Object) -> PodInfo | PodWithoutGpu | Nomination | None:
        try:
            return holder_of(item, self.ledger.names) if self.ledger else None
        except PodError as error:
            self.log.error(f"is not counted: {error}")
            return None

    def _keep_slice(self, found: StoredSlice, gone: bool) -> None:
        of_node = self._slices.setdefault(found.node, {})
        if gone:
            of_node.pop(found.name, None)
        else:
            of_node[found.name] = found
        self._count(found.node)

    def _of(self, node: str) -> Iterable[Object]:
        return [found.read() for found in self._slices.get(node, {}).values()]

    def _count(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or self.ledger is None:
            return
        if self.cache.update_node(devices_of(node, self._of(name), self.ledger)):
            self.grown()

    def _read_ledger(self) -> None:
        """Reads the ledger. No pod is placed while the ledger is missing or invalid."""
        self._ledger_due = self.clock.monotonic() + self.ledger_seconds
        found, problem = None, None
        try:
            found = _ledger(self.api, self.ledger_namespace)
        except (LedgerError, ApiError) as error:
            if self.ledger is not None and isinstance(error, ApiError):
                return  # the last ledger stays valid while the API server does not answer
            problem = str(error)
        if problem != self.problem:
            self.log.error(problem) if problem else self.log.info("the ledger is read")
        self.problem = problem
        if found is None or found == self.ledger:
            return
        if self.ledger is not None and found.domain != self.ledger.domain:
            self.listed_at = None  # nothing has been listed under the new domain yet
            self.informer.relist()
        self.ledger = found
        for name in [*self._nodes]:
            self._count(name)


def _ledger(api: Api, namespace: str) -> Ledger:
    stored = ledgers.read(api, namespace)
    if stored is None or stored.deleting:
        raise LedgerError("there is no ledger, or it is being deleted: nothing is placed; run pulumi up")
    return stored.ledger()


def _trimmed(node: Object) -> dict[str, Any]:
    metadata = node["metadata"]
    kept = {key: metadata[key] for key in ("name", "labels", "annotations") if key in metadata}
    return {"metadata": kept, "status": {"allocatable": {"cpu": map_at(node, "status", "allocatable").get("cpu")}}}
