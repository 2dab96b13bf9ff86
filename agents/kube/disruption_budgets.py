"""Decodes PodDisruptionBudgets (policy/v1)."""

from collections.abc import Mapping
from dataclasses import dataclass

from agents.kube.client import Object
from agents.kube.paths import ApiPath, api_path
from agents.kube.selectors import LabelTerm, terms_of
from tenancy.workload import map_at


def disruption_budgets_of(namespace: str) -> ApiPath:
    """Returns the path of a namespace's PodDisruptionBudgets."""
    return api_path("policy/v1", "namespaces", namespace, "poddisruptionbudgets")


@dataclass(frozen=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget that now allows `allowed` more disruptions.

    A PodDisruptionBudget without a selector selects no pod, and its `terms` is None. An empty selector selects every
    pod of the namespace. The API server has already subtracted the evictions of the pods in `disrupted` from the
    allowed disruptions.
    """

    allowed: int = 0
    terms: tuple[LabelTerm, ...] | None = ()
    disrupted: frozenset[str] = frozenset()

    def counts(self, pod: str, labels: Mapping[str, str]) -> bool:
        """Returns True if the eviction of the pod with this name and these labels uses one allowed disruption."""
        selects = self.terms is not None and all(term.matches(labels) for term in self.terms)
        return selects and pod not in self.disrupted


def disruption_budget_of(item: Object) -> DisruptionBudget:
    status, selector = map_at(item, "status"), map_at(item, "spec").get("selector")
    return DisruptionBudget(
        allowed=status.get("disruptionsAllowed", 0),
        terms=None if selector is None else terms_of(selector),
        disrupted=frozenset(map_at(status, "disruptedPods")),
    )
