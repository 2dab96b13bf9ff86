"""Keeps the cache up to date with watches on nodes, ResourceSlices and pods.

If one watch fails, the informer relists nodes, ResourceSlices and pods. The informer polls the ledger.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from agents.extender.cache.cache import Cache
from agents.extender.cache.inventory import devices_of
from agents.extender.cache.pod_info import Known, PodInfo, PodState, holder_of
from agents.kube import ledger as ledgers
from agents.kube.client import Api, ApiError, Object
from agents.kube.fields import named, uid_of
from agents.kube.informer import Informer, Listed, WatchSource, keep_whole, read_list
from agents.kube.ledger import LedgerError
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.pods import LIVE, PODS, Pod
from agents.kube.slices import SLICES
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog
from tenancy.ledger import Ledger
from tenancy.names import Names

LEDGER_SECONDS = 3.0


@dataclass(kw_only=True)
class Informers:
    """Fills the extender's cache from the API. One thread runs `informer`, and any thread may read the fields.

    `problem` is the reason why the extender may place no pod, or None. `listed_at` is the start of the last relist in
    monotonic seconds, or None before the first relist.
    """

    api: Api
    cache: Cache
    ledger_namespace: str
    clock: Clock
    log: Log
    problem: str | None = "the API has not been read yet"
    listed_at: float | None = None
    # the informer calls this function when more memory may be free than before
    grown: Callable[[], None] = lambda: None
    ledger_seconds: float = LEDGER_SECONDS
    ledger: Ledger | None = None  # the last valid ledger
    _ledger_due: float = 0.0
    problems: ItemProblems = field(init=False)
    informer: Informer = field(init=False)
    _nodes: dict[str, Node] = field(default_factory=dict)
    _slices: dict[str, dict[str, Object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.problems = ItemProblems(log=self.log)
        problem = ProblemLog(log=self.log, failing="relists the cluster", recovered="watches the cluster again")
        self.informer = Informer(
            api=self.api, lists=self.list_all, apply=self._apply, ready=self._ready, problem=problem, clock=self.clock
        )

    @property
    def server_now(self) -> datetime:
        """Returns the time in the API server's last response, which is a few seconds old."""
        return self.api.time or self.clock.now()

    @property
    def names(self) -> Names | None:
        """Returns the names in the ledger, or None before the first ledger is read."""
        return self.ledger.names if self.ledger else None

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (*self._nodes.values(),)

    def renew(self) -> None:
        """Requests a new read of the ledger and a relist. `listed_at` changes after the requested relist."""
        self._ledger_due = 0.0
        self.informer.relist()

    def _ready(self) -> bool:
        """Reads the ledger if its next read is due. Returns False if the ledger does not exist yet."""
        if self.clock.monotonic() >= self._ledger_due:
            self._read_ledger()
        return self.ledger is not None

    def list_all(self) -> Sequence[WatchSource]:
        """Rebuilds the cache from new lists, and returns the sources for the watches. Raises AgentError."""
        since, known = self.clock.monotonic(), self.ledger
        if known is None:
            raise LedgerError("no ledger has been read")
        self.problems.relist()
        nodes = read_list(self.api, NODES, node_of)
        slices = read_list(self.api, SLICES, keep_whole)
        pods: Listed[Known] = read_list(self.api, PODS, self._pod, LIVE)
        self._nodes = {node.name: node for node in nodes.items}
        self._slices = {}
        for found in slices.items:
            self._slices.setdefault(_node_of(found), {})[named(found)] = found
        devices = [devices_of(node, self._of(node.name), known) for node in self._nodes.values()]
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
                name = named(found)
                if gone:
                    self._nodes.pop(name, None)
                    self.cache.remove_node(name)
                else:
                    self._nodes[name] = node_of(found)
                    self._count(name)
            case "ResourceSlice":
                self._keep_slice(found, gone)

    def _apply_pod(self, found: Object, gone: bool) -> None:
        uid, pod = uid_of(found), None if gone else self._pod(found)
        if gone:
            self.problems.note("pod", named(found), None)
        if isinstance(pod, PodInfo) and pod.state is PodState.NOMINATED:
            self.cache.nominate(pod, self.clock.monotonic())
        elif pod is not None:
            self.cache.update_pod(pod)
        elif gone or Pod(found).node or Pod(found).ended:
            self.cache.remove_pod(uid)
            self.grown()
        # ends the nomination of the pod and keeps its reservation
        elif self.cache.withdraw(uid, self.clock.monotonic()):
            self.grown()

    def _pod(self, item: Object) -> Known | None:
        """Returns what the Pod holds. For an unreadable Pod, returns what the cache knows of it."""

        def unreadable(why: str) -> Known | None:
            del why
            return self.cache.known(uid_of(item))

        return self.problems.judge("pod", named(item), partial(self._holder, item), unreadable)

    def _holder(self, item: Object) -> Known | None:
        return holder_of(item, self.ledger.names) if self.ledger else None

    def _keep_slice(self, found: Object, gone: bool) -> None:
        node = _node_of(found)
        of_node = self._slices.setdefault(node, {})
        if gone:
            of_node.pop(named(found), None)
        else:
            of_node[named(found)] = found
        self._count(node)

    def _of(self, node: str) -> Iterable[Object]:
        return self._slices.get(node, {}).values()

    def _count(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None or self.ledger is None:
            return
        if self.cache.update_node(devices_of(node, self._of(name), self.ledger)):
            self.grown()

    def _read_ledger(self) -> None:
        """Reads the ledger. The extender places no pod while the ledger is missing or invalid."""
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
            self.listed_at = None  # the informer has listed no object of the new domain yet
            self.informer.relist()
        self.ledger = found
        self.cache.promise(found, [devices_of(node, self._of(node.name), found) for node in self._nodes.values()])
        self.grown()


def _node_of(found: Object) -> str:
    node: str = found["spec"].get("nodeName", "")
    return node


def _ledger(api: Api, namespace: str) -> Ledger:
    stored = ledgers.read(api, namespace)
    if stored is None or stored.deleting:
        raise LedgerError("there is no ledger, or it is being deleted: nothing is placed; run pulumi up")
    return stored.ledger()
