"""Reads the PodDisruptionBudgets of the pods that a preemption may evict.

The extender does not watch PodDisruptionBudgets, because preemptions are rare. A preemption reads PodDisruptionBudgets
only if it needs other victims than kube-scheduler has chosen. If the API server does not answer, kube-scheduler retries
the preemption.
"""

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from agents.extender.cache.pod_info import PodInfo
from agents.extender.preemption import Disruptions
from agents.kube.client import Api
from agents.kube.disruption_budgets import DisruptionBudget, disruption_budget_of, disruption_budgets_of
from agents.runtime.clock import Clock
from agents.runtime.items import ItemProblems

# The requests for all pages of one preemption must begin within this time. Each namespace gets an equal part of the
# remaining time.
READ_SECONDS = 2.0
# The largest number of PodDisruptionBudgets that the extender reads in one namespace.
MOST_IN_NAMESPACE = 500
# The substitute for PodDisruptionBudgets that cannot be read. This substitute selects every pod of the namespace and
# allows no disruption.
UNREADABLE = DisruptionBudget()

BudgetsByNamespace = Mapping[str, tuple[DisruptionBudget, ...]]


@dataclass(kw_only=True)
class DisruptionBudgetReader:
    """Reads the PodDisruptionBudgets of namespaces. Any thread may call `read`."""

    api: Api
    clock: Clock
    problems: ItemProblems
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, namespaces: Collection[str]) -> BudgetsByNamespace:
        """Returns the PodDisruptionBudgets of each namespace. Raises ApiError.

        A namespace with too many PodDisruptionBudgets allows no disruption.
        """
        with self._lock:
            deadline, found = self.clock.monotonic() + READ_SECONDS, {}
            for number, namespace in enumerate(sorted(namespaces)):
                now = self.clock.monotonic()
                share_seconds = (deadline - now) / (len(namespaces) - number)
                found[namespace] = self._in_namespace(namespace, now + share_seconds)
            return found

    def _in_namespace(self, namespace: str, deadline: float) -> tuple[DisruptionBudget, ...]:
        found: list[DisruptionBudget] = []
        problem = None
        for item in self.api.items(disruption_budgets_of(namespace)):
            if len(found) == MOST_IN_NAMESPACE or self.clock.monotonic() > deadline:
                problem = f"there are too many PodDisruptionBudgets; only {len(found)} were read"
                found.append(UNREADABLE)
                break
            found.append(disruption_budget_of(item))
        self.problems.note("namespace", namespace, problem)
        return tuple(found)


def disruptions_of(pods: Iterable[PodInfo], budgets: BudgetsByNamespace) -> Disruptions:
    """Returns the disruptions that PodDisruptionBudgets allow for these pods. In a namespace that cannot be read, no
    disruption is allowed.
    """
    used: dict[str, tuple[str, ...]] = {}
    allowed: dict[str, int] = {}
    for pod in pods:
        in_namespace = budgets.get(pod.namespace, (UNREADABLE,))
        counting = {f"{pod.namespace}/{n}": b for n, b in enumerate(in_namespace) if b.counts(pod.name, pod.labels)}
        used[pod.uid] = tuple(counting)
        allowed |= {key: budget.allowed for key, budget in counting.items()}
    return Disruptions(used, allowed)
