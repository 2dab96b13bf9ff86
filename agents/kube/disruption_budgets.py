"""Decodes PodDisruptionBudgets (policy/v1). Tenants write PodDisruptionBudgets."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agents.kube.client import Object
from agents.kube.fields import integer_at, name_at, unreadable
from agents.kube.paths import ApiPath, api_path
from tenancy.workload import map_at, maps_at

# The limits for the size of a selector.
_MOST_TERMS = 100
_MOST_VALUES = 1000
_LONGEST_LABEL = 320  # the characters of a key with a prefix; a value has at most 63 characters


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
    """Returns the decoded PodDisruptionBudget. Raises FieldError and ShapeError."""
    spec, status = map_at(item, "spec"), map_at(item, "status")
    disrupted = map_at(status, "disruptedPods")
    return DisruptionBudget(
        allowed=integer_at(status, "disruptionsAllowed", 0, 0, 2**31 - 1),
        terms=None if spec.get("selector") is None else _terms(map_at(spec, "selector")),
        disrupted=frozenset(name_at({"disruptedPods": name}, "disruptedPods") for name in disrupted),
    )


def _terms(selector: Object) -> tuple[LabelTerm, ...]:
    labels, expressions = map_at(selector, "matchLabels"), maps_at(selector, "matchExpressions")
    if len(labels) + len(expressions) > _MOST_TERMS:
        raise unreadable("selector", f"a selector of at most {_MOST_TERMS} terms", len(labels) + len(expressions))
    exact = [LabelTerm(_label("key", key), Operator.IN, frozenset({_label(key, labels[key])})) for key in labels]
    return (*exact, *map(_term, expressions))


def _term(expression: Object) -> LabelTerm:
    operator, values = expression.get("operator"), expression.get("values") or []
    if not isinstance(operator, str) or operator not in {*Operator}:
        raise unreadable("operator", "one of the four operators", operator)
    if not isinstance(values, list) or len(values) > _MOST_VALUES:
        raise unreadable("values", f"a list of at most {_MOST_VALUES} values", values)
    key = _label("key", expression.get("key"))
    return LabelTerm(key, Operator(operator), frozenset(_label("values", value) for value in values))


def _label(field: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_LABEL:
        raise unreadable(field[:_LONGEST_LABEL], "the key or the value of a label", value)
    return value
