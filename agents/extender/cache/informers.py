"""What the API says of nodes, their devices and the pods on them, brought to the allocations: listed, then watched.

A watch that breaks is answered by new lists. The ledger is asked for again and again: without it nothing may be placed.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents import ledger as ledgers
from agents.allocated import Allocated, AskError, Bystander, holder
from agents.allocations import Allocations
from agents.api import Api, ApiError, Object
from agents.clock import Clock
from agents.errors import AgentError
from agents.feed import Feed, Source
from agents.inventory import NodeDevices, devices_of
from agents.ledger import LedgerError
from agents.log import Log
from agents.nodes import NODES, Node
from agents.view import BOUND, PODS
from tenancy.ledger import Ledger
from tenancy.names import Names
from tenancy.workload import at

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
LEDGER_SECONDS = 3.0
BACKOFF_SECONDS = (0.5, 1.0, 2.0, 5.0)
# What was followed for so long has begun well.
_STEADY_SECONDS = 30.0
# A watch on a connection that died without a word misses no more than this.
_WATCH_SECONDS = 300.0
_TAKE_SECONDS = 0.5


@dataclass(frozen=True)
class Listed:
    """A list of the API, and the version from which its watch goes on."""

    items: tuple[Object, ...]
    version: str


@dataclass(kw_only=True)
class Mirror:
    """One thread runs `keep`; all read. `problem` says why nothing may be placed, None where it may.

    `listed_at` is when the lists behind the allocations began, monotonic seconds, None without such; `alive_at` when
    the thread last came round.
    """

    api: Api
    allocations: Allocations
    ledger_namespace: str
    clock: Clock
    log: Log
    problem: str | None = "the API has not been read yet"
    listed_at: float | None = None
    alive_at: float = 0.0
    grown: Callable[[], None] = lambda: None  # called where there may be more room than before
    ledger_seconds: float = LEDGER_SECONDS
    ledger: Ledger | None = None  # the last one that could be read
    _ledger_due: float = 0.0
    _stopped: bool = False
    _renew: threading.Event = field(default_factory=threading.Event)
    _nodes: dict[str, Object] = field(default_factory=dict)
    _slices: dict[str, dict[str, Object]] = field(default_factory=dict)
    known_devices: dict[str, NodeDevices] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.alive_at = self.clock.monotonic()

    @property
    def names(self) -> Names | None:
        """None until the first ledger was read."""
        return self.ledger.names if self.ledger else None

    @property
    def pools(self) -> tuple[Node, ...]:
        """The nodes, as the telemetry wants them."""
        return tuple(
            Node(name=name, labels=node["metadata"].get("labels") or {}) for name, node in [*self._nodes.items()]
        )

    def devices(self, node: str) -> NodeDevices | None:
        """What a node offers; None for one that is not known."""
        return self.known_devices.get(node)

    def renew(self) -> None:
        """Has everything listed anew; `listed_at` tells when that has happened."""
        self._renew.set()

    def stop(self) -> None:
        """Ends `keep` within a moment."""
        self._stopped = True
        self._renew.set()

    def keep(self) -> None:
        """Until `stop`; after an error again, a little later each time."""
        failures = 0
        while not self._stopped:
            began = self.clock.monotonic()
            try:
                self._follow()
                failures = 0
            except AgentError as error:
                self.log.warning(f"lists the cluster anew: {error}")
                self.alive_at = self.clock.monotonic()
                failures = 0 if self.alive_at - began > _STEADY_SECONDS else failures
                self.clock.sleep(BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)])
                failures += 1

    def _follow(self) -> None:
        """Lists everything, then tells what happens until that is over or somebody wants new lists."""
        self._renew.clear()
        self._read_ledger()
        if self.ledger is None:
            self.alive_at = self.clock.monotonic()
            self.clock.sleep(self.ledger_seconds)
            return
        feed = Feed(self.api, self.clock, self._list(self.ledger), seconds=_WATCH_SECONDS, lasts=True)
        try:
            while not (self._renew.is_set() or self._stopped):
                self.alive_at = self.clock.monotonic()
                for event in feed.take(_TAKE_SECONDS):
                    self._tell(event)
                if self.clock.monotonic() >= self._ledger_due:
                    self._read_ledger()
        finally:
            feed.close()

    def _list(self, known: Ledger) -> list[Source]:
        since = self.clock.monotonic()
        nodes, slices = self._listed(NODES), self._listed(SLICES)
        pods = self._listed(PODS, BOUND)
        self._nodes = {node["metadata"]["name"]: _trimmed(node) for node in nodes.items}
        self._slices = {}
        for found in slices.items:
            self._keep_slice(found)
        self.known_devices = {name: devices_of(node, self._of(name), known) for name, node in self._nodes.items()}
        bound = [pod for item in pods.items if (pod := self._pod(item)) is not None]
        self.allocations.replace(self.known_devices.values(), bound, since)
        self.listed_at = since
        self.log.info("listed the cluster", nodes=len(self._nodes), pods=len(bound))
        self.grown()
        return [
            Source(path=NODES, resource_version=nodes.version),
            Source(path=SLICES, resource_version=slices.version),
            Source(path=PODS, resource_version=pods.version, parameters=BOUND),
        ]

    def _listed(self, path: str, parameters: Mapping[str, str] | None = None) -> Listed:
        """Page by page, of each item what matters; a consistent read."""
        items: list[Object] = []
        version = ""
        for page in self.api.pages(path, **(parameters or {})):
            version = page["metadata"]["resourceVersion"]
            items += page["items"]
        return Listed(tuple(items), version)

    def _tell(self, event: Object) -> None:
        found, kind = event["object"], event["type"]
        if kind == "BOOKMARK":
            return
        gone = kind == "DELETED"
        match found["kind"]:
            case "Pod":
                self._tell_pod(found, gone)
            case "Node":
                name = found["metadata"]["name"]
                if gone:
                    self._nodes.pop(name, None)
                    self.known_devices.pop(name, None)
                    self.allocations.drop_node(name)
                else:
                    self._nodes[name] = _trimmed(found)
                    self._count(name)
            case "ResourceSlice":
                self._keep_slice(found, gone)
                self._count(found["spec"].get("nodeName", ""))

    def _tell_pod(self, found: Object, gone: bool) -> None:
        pod = None if gone else self._pod(found)
        if pod is not None:
            self.allocations.set_pod(pod)
        else:
            self.allocations.drop_pod(found["metadata"]["uid"])
            self.grown()

    def _pod(self, item: Object) -> Allocated | Bystander | None:
        try:
            return holder(item, self.ledger.names) if self.ledger else None
        except AskError as error:
            self.log.error(f"is not counted: {error}")
            return None

    def _keep_slice(self, found: Object, gone: bool = False) -> None:
        of_node = self._slices.setdefault(found["spec"].get("nodeName", ""), {})
        if gone:
            of_node.pop(found["metadata"]["name"], None)
        else:
            of_node[found["metadata"]["name"]] = {"spec": found["spec"]}

    def _of(self, node: str) -> Iterable[Object]:
        return self._slices.get(node, {}).values()

    def _count(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or self.ledger is None:
            return
        devices = devices_of(node, self._of(name), self.ledger)
        if devices != self.known_devices.get(name):
            self.known_devices[name] = devices
            self.allocations.set_node(devices)
            self.grown()

    def _read_ledger(self) -> None:
        """Fails closed: a ledger that goes or cannot be read stops all placement."""
        self._ledger_due = self.clock.monotonic() + self.ledger_seconds
        try:
            found = _ledger(self.api, self.ledger_namespace)
            problem = None
        except LedgerError as error:
            found, problem = None, str(error)
        except ApiError as error:
            if self.ledger is None:
                problem = str(error)
            else:
                return  # what was read last holds: without the API nothing can be bound either
            found = None
        if problem != self.problem:
            self.log.error(problem) if problem else self.log.info("the ledger is read")
        self.problem = problem
        if found is None or found == self.ledger:
            return
        if self.ledger is not None and found.domain != self.ledger.domain:
            self.listed_at = None  # nothing that is counted is under the new names
            self._renew.set()
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
    return {"metadata": kept, "status": {"allocatable": {"cpu": at(node, "status", "allocatable").get("cpu")}}}
