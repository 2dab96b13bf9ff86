"""Decodes label selectors."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agents.kube.client import Object
from tenancy.workload import map_at, maps_at


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


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


def terms_of(selector: Object) -> tuple[LabelTerm, ...]:
    """Returns the conditions of a label selector. All of them must match."""
    labels, expressions = map_at(selector, "matchLabels"), maps_at(selector, "matchExpressions")
    exact = [LabelTerm(key, Operator.IN, frozenset({value})) for key, value in labels.items()]
    return (*exact, *map(_term, expressions))


def _term(expression: Object) -> LabelTerm:
    return LabelTerm(expression["key"], Operator(expression["operator"]), frozenset(expression.get("values") or ()))
