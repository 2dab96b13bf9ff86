"""The objects of Kubernetes' own admission policies: a policy, the namespaces it is for, its binding.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/ and, from Kubernetes 1.36,
https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.base.manifest import Manifest
from tenancy.names import EXEMPT, EXEMPT_VALUE, LABEL_NAMESPACE, labels

_API = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True)
class ResourceRule:
    """An operation on resources of a group, in its version v1, that a policy looks at."""

    operation: str
    resources: Sequence[str]
    group: str = ""


@dataclass(frozen=True)
class MessageExpression:
    """CEL for the text of a refusal, where it depends on the object."""

    cel: str


_POD_CREATION = (ResourceRule("CREATE", ("pods",)),)


@dataclass(frozen=True)
class Scope:
    """Where and when a policy applies: in the namespaces, for the rules, if every condition holds (name to CEL)."""

    namespaces: Mapping[str, Any]
    conditions: Mapping[str, str]
    rules: Sequence[ResourceRule] = _POD_CREATION

    def to_spec(self) -> dict[str, Any]:
        rules = [
            {
                "apiGroups": [rule.group],
                "apiVersions": ["v1"],
                "operations": [rule.operation],
                "resources": list(rule.resources),
            }
            for rule in self.rules
        ]
        return {
            "failurePolicy": "Fail",
            "matchConstraints": {"namespaceSelector": dict(self.namespaces), "resourceRules": rules},
            "matchConditions": _named(self.conditions),
        }


def within(namespaces: Iterable[str]) -> dict[str, Any]:
    """Selects the namespaces, of which there is at least one, by the label that Kubernetes sets itself."""
    return {"matchExpressions": [{"key": LABEL_NAMESPACE, "operator": "In", "values": sorted(set(namespaces))}]}


def outside(namespaces: Iterable[str]) -> dict[str, Any]:
    """Selects every namespace but these, and but those that are exempt by their label."""
    values = sorted(set(namespaces))
    by_name = [{"key": LABEL_NAMESPACE, "operator": "NotIn", "values": values}] if values else []
    return labelled({"matchExpressions": by_name}, EXEMPT, "NotIn", [EXEMPT_VALUE])


def labelled(selector: Mapping[str, Any], key: str, operator: str, values: Iterable[str]) -> dict[str, Any]:
    """Of the selected namespaces those whose label is, or is not (NotIn), one of the values."""
    expressions = selector.get("matchExpressions", [])
    return {"matchExpressions": [*expressions, {"key": key, "operator": operator, "values": list(values)}]}


def mutating(component: str, name: str, scope: Scope, operations: Sequence[str], *, again: bool = True) -> Manifest:
    """Changes the object by JSON Patch: CEL expressions that are lists of operations, one after the other. They are
    applied again, to their own result, where another policy or a webhook changed the object since, as a service mesh
    does that adds a container. The API server takes policies in any order, and one whose conditions did not hold at
    first is not asked again: no condition may wait for what another policy writes."""
    expression = " + ".join(operations)
    return _policy(
        "MutatingAdmissionPolicy",
        component,
        name,
        {
            **scope.to_spec(),
            "reinvocationPolicy": "IfNeeded" if again else "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    )


def validating(
    component: str,
    name: str,
    scope: Scope,
    validations: Mapping[str, str] | Mapping[str, str | MessageExpression],
    variables: Mapping[str, str] | None = None,
    *,
    params: Mapping[str, str] | None = None,
) -> Manifest:
    """Refuses the object unless every expression holds; `validations` are the messages by expression. They are judged
    for each object of the cluster of the kind `params`, where one is given, as `params`."""
    return _policy(
        "ValidatingAdmissionPolicy",
        component,
        name,
        {
            **({"paramKind": dict(params)} if params else {}),
            **scope.to_spec(),
            "variables": _named(variables or {}),
            "validations": [{"expression": holds, **_message(message)} for holds, message in validations.items()],
        },
    )


def _message(message: str | MessageExpression) -> dict[str, str]:
    return {"message": message} if isinstance(message, str) else {"messageExpression": message.cel}


def renamed(policy: Manifest, name: str) -> Manifest:
    return {**policy, "metadata": {**policy["metadata"], "name": name}}


def binding(policy: Manifest) -> Manifest:
    """Puts a policy into force, everywhere that its own scope says."""
    spec: dict[str, Any] = {"policyName": policy["metadata"]["name"]}
    if policy["kind"] == "ValidatingAdmissionPolicy":
        spec["validationActions"] = ["Deny"]
    if "paramKind" in policy["spec"]:
        spec["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return {**policy, "kind": f"{policy['kind']}Binding", "spec": spec}


def _policy(kind: str, component: str, name: str, spec: dict[str, Any]) -> Manifest:
    """Without the empty lists, which the API server does not keep."""
    given = {key: value for key, value in spec.items() if value != []}
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name, "labels": labels(component)}, "spec": given}


def _named(expressions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]
