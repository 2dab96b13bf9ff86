"""Watches the API objects that concern the exporter's node: pods, the ledger, the watchdog's journal and
ResourceSlices.

While the API server does not answer, the exporter uses the last objects. A metric shows the age of the last objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from agents.kube.client import Api, Object
from agents.kube.fields import uid_of
from agents.kube.informer import Informer, Listed, WatchSource, keep_whole, name_selector, read_list
from agents.kube.journal import JournalError, content_of
from agents.kube.ledger import LedgerError, stored_ledger
from agents.kube.nodes import NODES, Node, node_of
from agents.kube.paths import api_path
from agents.kube.pods import PODS, bound_pods_selector
from agents.kube.slices import SLICES
from agents.node.pods import NodePod, NodePods, node_pod
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems
from agents.runtime.log import Log
from agents.runtime.loop import ProblemLog
from tenancy import names
from tenancy.decode import DecodeError, decode
from tenancy.ledger import Ledger, Pool, SeveralPoolsError


@dataclass(frozen=True)
class Recycle:
    """A recycle in the watchdog's journal."""

    at: datetime
    workload: str

    @property
    def tenant(self) -> str:
        return self.workload.partition("/")[0]


@dataclass(frozen=True)
class Registry:
    """The objects that the API server reported last. A field is None before the API server has answered.

    `recycled` is None if the watchdog's journal is missing or invalid.
    """

    node_pods: NodePods = field(default_factory=NodePods)
    ledger: Ledger | None = None
    recycled: tuple[Recycle, ...] | None = None
    node: Node | None = None
    # maps the names of ResourceSlices to the slices of all drivers
    slices: Mapping[str, Object] = field(default_factory=dict)

    @property
    def pool(self) -> Pool | None:
        """Returns the pool of the node, or None if the node is in no pool or in several pools."""
        try:
            return self.ledger.pool_of(self.node.labels) if self.ledger and self.node else None
        except SeveralPoolsError:
            return None

    @property
    def caps(self) -> bool:
        """Returns True if the node's pool has `enforce: driver`, so that the driver must cap containers."""
        return self.pool is not None and self.pool.caps


@dataclass(kw_only=True)
class RegistryInformer:
    """Watches the API objects that concern the exporter's node.

    One thread runs the informer and writes `last`, and any thread may read `last`.

    The informer watches instead of polling, because polls from hundreds of nodes would load the API server too much.
    """

    api: Api
    node: str
    ledger_namespace: str
    clock: Clock
    log: Log
    slices: bool = False  # if True, the registry also watches the ResourceSlices of the node
    last: Registry = field(default_factory=Registry)
    problems: ItemProblems = field(init=False)
    informer: Informer = field(init=False)

    def __post_init__(self) -> None:
        self.problems = ItemProblems(log=self.log)
        problem = ProblemLog(
            log=self.log,
            failing="names and budgets are not updated",
            recovered="names and budgets are up to date again",
        )
        self.informer = Informer(api=self.api, lists=self._list, apply=self._apply, problem=problem, clock=self.clock)

    def _list(self) -> Sequence[WatchSource]:
        config_maps = api_path("v1", "namespaces", self.ledger_namespace, "configmaps")
        ledgers = read_list(self.api, config_maps, keep_whole, name_selector(names.LEDGER))
        journals = read_list(self.api, config_maps, keep_whole, name_selector(names.journal(names.WATCHDOG)))
        nodes = read_list(self.api, NODES, node_of, name_selector(self.node))
        slices: tuple[Listed[Object], ...] = ()
        if self.slices:
            slices = (read_list(self.api, SLICES, keep_whole, {"fieldSelector": f"spec.nodeName={self.node}"}),)
        ledger = self._ledger(next(iter(ledgers.items), None))
        pods = self._pods(ledger)
        self.last = Registry(
            node_pods=NodePods(pods.items),
            ledger=ledger,
            recycled=_recycled(next(iter(journals.items), None)),
            node=next(iter(nodes.items), None),
            slices={found["metadata"]["name"]: found for listed in slices for found in listed.items},
        )
        return [ledgers.source, journals.source, nodes.source, *(each.source for each in slices), pods.source]

    def _apply(self, event: Object) -> None:
        found = event["object"]
        name, stored = found["metadata"].get("name"), None if event["type"] == "DELETED" else found
        match found["kind"]:
            case "Pod":
                node_pods = self.last.node_pods.without(uid_of(found))
                pod = node_pod(stored, self.last.ledger, self.problems) if stored else None
                self.last = replace(self.last, node_pods=NodePods((*node_pods.pods, pod)) if pod else node_pods)
            case "Node":
                self.last = replace(self.last, node=node_of(stored) if stored else None)
            case "ResourceSlice":
                others = {key: other for key, other in self.last.slices.items() if key != name}
                self.last = replace(self.last, slices={**others, name: stored} if stored else others)
            case "ConfigMap" if name == names.LEDGER:
                ledger = self._ledger(stored)
                self.last = replace(self.last, ledger=ledger, node_pods=NodePods(self._pods(ledger).items))
            case "ConfigMap":
                self.last = replace(self.last, recycled=_recycled(stored))

    def _pods(self, ledger: Ledger | None) -> Listed[NodePod]:
        bound = {"fieldSelector": bound_pods_selector(self.node)}
        self.problems.relist()
        return read_list(self.api, PODS, partial(node_pod, ledger=ledger, problems=self.problems), bound)

    def _ledger(self, stored: Object | None) -> Ledger | None:
        """Returns the stored ledger, or None if the ledger is deleted or terminating.

        If the stored ledger is invalid, the last valid ledger is returned.
        """
        if stored is None:
            return None
        found = stored_ledger(stored, self.ledger_namespace)
        try:
            return None if found.deleting else found.ledger()
        except LedgerError as error:
            self.log.error(str(error))
            return self.last.ledger


def _recycled(stored: Object | None) -> tuple[Recycle, ...] | None:
    """Returns the recycles in the watchdog's journal, or None if the journal is invalid.

    The watchdog's own alert reports an invalid journal.
    """
    if stored is None:
        return None
    try:
        entries = content_of(stored).get("recycled", ())
        return decode(tuple[Recycle, ...], entries, ignored=[])
    except (JournalError, DecodeError):
        return None
