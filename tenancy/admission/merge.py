"""Merges admission policies. For each policy, the API server converts the whole pod again (newActivation in
apiserver/pkg/admission/plugin/cel), which takes longer than the evaluation of most expressions.

The modules of this package declare small policies, which are easy to read and to test.
`tenancy.policy_names.policy_of` names the policy of which each one becomes a part. A merged policy denies and changes
the same requests as its parts:

- It selects the requests and the namespaces of all its parts. If a part selects fewer, the part gets a condition.
- The conditions of a part become variables. The API server evaluates a variable at most once, and only if an
  expression reads the variable. An expression of the part is then `conditions ? expression : true` (or `[]` for
  patches). In CEL, an error in the conditions is an error of the whole expression, so the API server denies the request
  as before.
- If every part has conditions, the merged policy judges only requests that meet the conditions of at least one part.
  The API server converts the other pods once instead of three times. A policy that changes pods gets no such condition,
  because a webhook may add a container after the API server has evaluated the condition.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

from tenancy.admission import cel
from tenancy.admission.policy import Manifest, in_namespaces, outside_namespaces
from tenancy.names import LABEL_NAMESPACE, PROJECT
from tenancy.policy_names import policy_of

_SAME = ("apiVersion", "kind", "paramKind", "failurePolicy", "reinvocationPolicy", "labels")


def merged(parts: Iterable[Manifest]) -> list[Manifest]:
    """Returns the policies with the names of `policy_of`, in the order of their first parts.

    Raises ValueError if parts of one policy differ in a variable or in a field such as failurePolicy.
    """
    groups: dict[str, list[Manifest]] = {}
    for part in parts:
        groups.setdefault(policy_of(part["metadata"]["name"]), []).append(part)
    return [_one(name, group) for name, group in groups.items()]


def _one(name: str, parts: Sequence[Manifest]) -> Manifest:
    first = parts[0]
    metadata = {**first["metadata"], "name": name}
    if len(parts) == 1:
        return {**first, "metadata": metadata}
    for part in parts:
        if differs := [key for key in _SAME if _once(part, key) != _once(first, key)]:
            raise ValueError(f"{part['metadata']['name']} differs from {first['metadata']['name']}: {differs}")
    namespaces = _Namespaces.of_all([_Namespaces.of(part) for part in parts])
    requests = _Requests.of(parts)
    variables, mutations, validations = _Variables(), [], []
    for part in parts:
        spec = part["spec"]
        own = requests.conditions(_Requests.of([part]))
        conditions = [variables.reader(each["name"], each["expression"]) for each in spec.get("matchConditions", [])]
        holds = " && ".join([*own, *namespaces.conditions(_short(part), _Namespaces.of(part), variables), *conditions])
        for each in spec.get("variables", []):
            variables.declare(each["name"], each["expression"])
        validations += [
            {**each, "expression": _if(holds, each["expression"], "true")} for each in spec.get("validations", [])
        ]
        mutations += [_if(holds, each["jsonPatch"]["expression"], "[]") for each in spec.get("mutations", [])]
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": " + ".join(mutations)}}
    spec = {
        **{key: value for key, value in first["spec"].items() if key not in ("matchConditions", "variables")},
        "matchConstraints": {"namespaceSelector": namespaces.selector, "resourceRules": requests.rules},
        **({"matchConditions": concerned} if (concerned := _concerned(parts, requests)) else {}),
        **({"variables": variables.listed} if variables.listed else {}),
        **({"validations": validations} if validations else {"mutations": [patch]}),
    }
    return {**first, "metadata": metadata, "spec": spec}


def _concerned(parts: Sequence[Manifest], requests: "_Requests") -> list[dict[str, str]]:
    """Returns the condition that a request meets the conditions of at least one part. Returns an empty list if a part
    has no conditions, or if the policy changes pods."""
    each_part = []
    for part in parts:
        conditions = [each["expression"] for each in part["spec"].get("matchConditions", [])]
        if not conditions or "mutations" in part["spec"]:
            return []
        own = requests.conditions(_Requests.of([part]))
        each_part.append(" && ".join(f"({each})" for each in [*own, *conditions]))
    expression = " || ".join(f"({each})" for each in dict.fromkeys(each_part))
    return [{"name": "concerns-a-part", "expression": expression}]


def _short(part: Manifest) -> str:
    return str(part["metadata"]["name"]).removeprefix(f"{PROJECT}-")


def _once(part: Manifest, key: str) -> Any:
    spec = part["spec"]
    return next(at[key] for at in (part, spec, spec["matchConstraints"], part["metadata"], {key: None}) if key in at)


def _if(conditions: str, expression: str, otherwise: str) -> str:
    return f"({conditions} ? ({expression}) : {otherwise})" if conditions else f"({expression})"


@dataclass
class _Variables:
    """The variables of a merged policy. Equal expressions have one variable."""

    expressions: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    @property
    def listed(self) -> list[dict[str, str]]:
        return [{"name": name, "expression": expression} for name, expression in self.expressions.items()]

    def reader(self, name: str, expression: str) -> str:
        """Returns CEL that reads the value of the expression."""
        if expression not in self._names:
            base = re.sub(r"\W", "_", name)
            numbered = (f"{base}_{number}" for number in count(2))
            free = next(each for each in chain([base], numbered) if each not in self.expressions)
            self._names[expression] = free
            self.expressions[free] = expression
        return f"variables.{self._names[expression]}"

    def declare(self, name: str, expression: str) -> None:
        if self.expressions.setdefault(name, expression) != expression:
            raise ValueError(f"two parts have different variables {name}")


@dataclass(frozen=True)
class _Requests:
    """The requests on one resource and its subresources. `resources` maps each operation to names such as pods/status.
    `rule` has the other fields of the resource rules."""

    resources: Mapping[str, frozenset[str]]
    rule: Mapping[str, Any]

    @classmethod
    def of(cls, parts: Iterable[Manifest]) -> "_Requests":
        resources: dict[str, frozenset[str]] = {}
        others: list[dict[str, Any]] = []
        for rule in chain.from_iterable(part["spec"]["matchConstraints"]["resourceRules"] for part in parts):
            for operation in rule["operations"]:
                resources[operation] = resources.get(operation, frozenset()) | frozenset(rule["resources"])
            others.append({key: value for key, value in rule.items() if key not in ("operations", "resources")})
        if any(other != others[0] for other in others):
            raise ValueError(f"parts of one policy select different API groups or versions: {others}")
        if len(several := {name.partition("/")[0] for names in resources.values() for name in names}) > 1:
            raise ValueError(f"parts of one policy select several resources: {sorted(several)}")
        return cls(resources, others[0])

    @property
    def rules(self) -> list[dict[str, Any]]:
        return [
            {**self.rule, "operations": [operation], "resources": sorted(resources)}
            for operation, resources in self.resources.items()
        ]

    def conditions(self, part: "_Requests") -> list[str]:
        """Returns CEL: one of these requests is a request of the part."""
        if part.resources == self.resources:
            return []
        return [f"({' || '.join(self._condition(part, operation) for operation in part.resources)})"]

    def _condition(self, part: "_Requests", operation: str) -> str:
        is_operation, resources = f"request.operation == {cel.quoted(operation)}", part.resources[operation]
        if resources == self.resources[operation]:
            return is_operation
        subresources = sorted(resource.partition("/")[2] for resource in resources)
        return f"{is_operation} && request.?subResource.orValue('') in {cel.quoted_list(subresources)}"


@dataclass(frozen=True)
class _Namespaces:
    """Namespaces by name: only the `names`, or with `outside` all others that are not exempt."""

    names: frozenset[str]
    outside: bool

    @classmethod
    def of(cls, part: Manifest) -> "_Namespaces":
        selector = part["spec"]["matchConstraints"]["namespaceSelector"]
        listed = [each["values"] for each in selector.get("matchExpressions", []) if each["key"] == LABEL_NAMESPACE]
        names = frozenset(name for values in listed for name in values)
        for made, outside in ((in_namespaces(names), False), (outside_namespaces(names), True)):
            if made == selector:
                return cls(names, outside)
        raise ValueError(f"{part['metadata']['name']} selects namespaces by more than their names: {selector}")

    @classmethod
    def of_all(cls, parts: Collection["_Namespaces"]) -> "_Namespaces":
        among = frozenset[str]().union(*(part.names for part in parts if not part.outside))
        outside = [part.names for part in parts if part.outside]
        return cls(frozenset.intersection(*outside) - among, True) if outside else cls(among, False)

    @property
    def selector(self) -> Mapping[str, Any]:
        return outside_namespaces(self.names) if self.outside else in_namespaces(self.names)

    def conditions(self, name: str, part: "_Namespaces", variables: _Variables) -> list[str]:
        """Returns CEL: a request in these namespaces is in the namespaces of the part with the name."""
        if part == self:
            return []
        role, listed = ("exceptions", part.names - self.names) if part.outside else ("namespaces", part.names)
        among = variables.reader(f"{name}-{role}", f"request.namespace in {cel.quoted_list(sorted(listed))}")
        return [f"!{among}" if part.outside else f"({among})"]
