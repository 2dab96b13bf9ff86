"""The parts of a stack that preflight compares with a cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agents.kube.errors import Object
from tenancy.ledger import Ledger


class Named(NamedTuple):
    """The name of an object: its kind and namespace, which is empty for an object of the whole cluster."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def _nothing(there: Mapping[Named, Object]) -> Sequence[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class InstalledKueue:
    """The Kueue of others that a stack uses."""

    namespace: str
    service_account: str


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A stack: `stack` is None if only the cluster's ledger is known.

    `created` are the objects that a first rollout makes, and `labels` those that it adds to namespaces of others.
    `taken_over` has the findings of `make up` on the objects that are there. `gates` are the Deployments behind demand
    gates, by namespace and name. `namespace_labels` are all labels that the stack gives its namespaces.
    """

    ledger: Ledger
    stack: str | None = None
    created: tuple[Named, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    taken_over: Callable[[Mapping[Named, Object]], Sequence[str]] = _nothing
    has_queues: bool = False
    kueue_version: str | None = None
    installed_kueue: InstalledKueue | None = None
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    mutating_api: str = "v1"
    has_alerts: bool = False
    has_operator: bool = True
    is_watchdog_armed: bool = False
    is_gate_armed: bool = False
    gates: tuple[tuple[str, str], ...] = ()
