"""Finds the names in the cluster with which the shell completes an argument."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from agents.extender.cache.inventory import NodeDevice, devices_of
from agents.kube.client import Object
from agents.kube.nodes import NODES, node_of
from agents.kube.slices import SLICES
from agents.runtime.errors import AgentError
from gpumem import cluster
from gpumem.arguments import CONNECTION
from gpumem.evidence import KINDS, collection, target_of
from gpumem.kubectl import Kubectl
from tenancy.ledger import Ledger
from tenancy.names import SYSTEM_NAMESPACE

# The maximum time for all requests of one completion. A user waits for the completion at the prompt.
SECONDS = 2.0

# The values of the flags that the user has typed already, by the name of the flag.
Given = Mapping[str, Sequence[str]]


class TooLateError(AgentError):
    """Raised if the cluster does not answer within SECONDS."""


@dataclass(frozen=True)
class _Cluster:
    """The cluster, the arguments that the user has typed, and the beginning of the argument to complete."""

    source: Kubectl
    given: Given
    begun: str

    def last(self, flag: str, otherwise: str = "") -> str:
        values = self.given.get(flag) or (otherwise,)
        return values[-1]

    @property
    def ledger(self) -> Ledger:
        return cluster.ledger(self.source, self.last("system_namespace", SYSTEM_NAMESPACE))


def find(
    argument: str, begun: str, given: Given, reach: Callable[[list[str]], Kubectl] = Kubectl, seconds: float = SECONDS
) -> list[str]:
    """Returns the names that are possible for an argument. After any error, and after `seconds`, returns no names."""
    names = _NAMES.get(argument)
    if names is None:
        return []
    flags = [f"--{flag}={value}" for flag in CONNECTION for value in given.get(flag.replace("-", "_"), ())]
    try:
        with reach(flags) as source, _at_most(seconds):
            return [*dict.fromkeys(names(_Cluster(source, given, begun)))]
    except Exception:  # noqa: BLE001 (a message would appear inside the line that the user types)
        return []


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises TooLateError inside the `with` statement after `seconds`."""

    def late(number: int, frame: object) -> None:
        raise TooLateError(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _pools(asked: _Cluster) -> list[str]:
    return [pool.name for pool in asked.ledger.pools]


def _tenants(asked: _Cluster) -> list[str]:
    ledger = asked.ledger
    with_budget = {each.tenant for each in ledger.seats}
    return sorted(with_budget | ledger.tenants_without_budget)


def _nodes(asked: _Cluster) -> list[str]:
    return [node["metadata"]["name"] for node in _of_pools(asked, asked.ledger)]


def _devices(asked: _Cluster) -> list[str]:
    ledger = asked.ledger
    wanted = asked.last("node")
    nodes = [node_of(node) for node in _of_pools(asked, ledger) if wanted in ("", node["metadata"]["name"])]
    slices = [*asked.source.items(SLICES)]
    devices: list[NodeDevice] = [each for node in nodes for each in devices_of(node, slices, ledger).devices]
    return [*map(str, sorted({each.index for each in devices})), *(each.uuid for each in devices)]


def _of_pools(asked: _Cluster, ledger: Ledger) -> list[Object]:
    nodes = asked.source.items(NODES)
    return [node for node in nodes if any(pool.matches(node["metadata"].get("labels") or {}) for pool in ledger.pools)]


def _targets(asked: _Cluster) -> list[str]:
    namespace = asked.last("namespace") or asked.source.namespace()
    kind, slash, _ = asked.begun.rpartition("/")
    target = target_of(f"{kind or 'pod'}/NAME", namespace)
    found = sorted(each["metadata"]["name"] for each in asked.source.items(collection(asked.source, target)))
    return [f"{kind}{slash}{name}" for name in found] + ([] if slash else [f"{each}/" for each in KINDS])


_NAMES: Mapping[str, Callable[[_Cluster], list[str]]] = {
    "pool": _pools,
    "node": _nodes,
    "device": _devices,
    "namespace": _tenants,
    "tenant": _tenants,
    "target": _targets,
}
