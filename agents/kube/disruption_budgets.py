"""Decodes PodDisruptionBudgets (policy/v1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agents.kube.client import Object
from agents.kube.paths import ApiPath, api_path
from tenancy.workload import map_at, maps_at


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


def disruption_budgets_of(namespace: str) -> ApiPath:
    """Returns the path of a namespace's PodDisruptionBudgets."""
    return api_path("policy/v1", "namespaces", namespace, "poddisruptionbudgets")


@dataclass(frozen=True)
class LabelTerm:
    """One condition of a label selector. Each entry of `matchLabels` becomes a term with the operator In."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Source: Requirement.Matches in k8s.io/apimachinery/pkg/labels/selector.go."""
        match self.operator:
            case Operator.IN:
                return self.key in labels and labels[self.key] in self.values
            case Operator.NOT_IN:
                return self.key not in labels or labels[self.key] not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels


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
        terms=None if selector is None else _terms(selector),
        disrupted=frozenset(map_at(status, "disruptedPods")),
    )


def _terms(selector: Object) -> tuple[LabelTerm, ...]:
    labels, expressions = map_at(selector, "matchLabels"), maps_at(selector, "matchExpressions")
    exact = [LabelTerm(key, Operator.IN, frozenset({value})) for key, value in labels.items()]
    return (*exact, *map(_term, expressions))


def _term(expression: Object) -> LabelTerm:
    return LabelTerm(expression["key"], Operator(expression["operator"]), frozenset(expression.get("values") or ()))
