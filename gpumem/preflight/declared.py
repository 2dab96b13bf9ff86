"""Defines the parts of a stack that preflight compares with a cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agents.kube.errors import Object
from tenancy.frameworks import Framework
from tenancy.host_memory.pool import HostMemoryPool
from tenancy.ledger import Ledger
from tenancy.policy_names import Refusal
from tenancy.workload import Manifest


class Named(NamedTuple):
    """The identity of an object: its kind, namespace and name. The namespace of a cluster-scoped object is empty."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def _nothing(there: Mapping[Named, Object]) -> Sequence[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class DeclaredPod:
    """A workload of the stack's agents, with the template of its pods."""

    workload: Named
    template: Manifest


@dataclass(frozen=True, kw_only=True)
class InstalledKueue:
    """An existing installation of Kueue that a stack uses."""

    namespace: str
    service_account: str


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The declared parts of a stack.

    `created` are the objects that a first rollout creates. `refusals` judges a pod by its namespace, its template,
    whether Kueue holds it back, and the handlers of the RuntimeClasses. `taken_over` returns the findings of `make up`
    on existing objects. `gates` has the namespace and the name of each Deployment that the demand gate scales.
    `namespace_labels` has all labels that the stack sets on namespaces. `frameworks` are the kinds of work that Kueue
    queues. If `has_checks` is True, queues wait for the cluster autoscaler.
    """

    ledger: Ledger
    stack: str
    created: tuple[Named, ...] = ()
    refusals: Callable[[str, Manifest, bool, Mapping[str, str]], Sequence[Refusal]]
    taken_over: Callable[[Mapping[Named, Object]], Sequence[str]] = _nothing
    has_queues: bool = False
    kueue_version: str | None = None
    installed_kueue: InstalledKueue | None = None
    frameworks: tuple[Framework, ...] = ()
    has_checks: bool = False
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    mutating_api: str = "v1"
    has_alerts: bool = False
    has_operator: bool = True
    is_watchdog_armed: bool = False
    is_gate_armed: bool = False
    gates: tuple[tuple[str, str], ...] = ()
    memory_pools: tuple[HostMemoryPool, ...] = ()
    # The pods that the rollout itself starts.
    pods: tuple[DeclaredPod, ...] = ()
