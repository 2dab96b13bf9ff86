"""Makes the objects of Kubernetes' admission policies: a policy, its binding, and the namespaces that the policy
covers.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/ and, from Kubernetes 1.36,
https://kubernetes.io/docs/reference/access-authn-authz/mutating-admission-policy/
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tenancy.choices import Mode
from tenancy.names import EXEMPT, EXEMPT_BY_NAME, EXEMPT_VALUE, LABEL_NAMESPACE, labels

Manifest = dict[str, Any]

MUTATING = "MutatingAdmissionPolicy"
_GROUP = "admissionregistration.k8s.io"
_COMPONENT = "admission"


class MutatingApi(StrEnum):
    """The API versions of MutatingAdmissionPolicy that the stack can write."""

    V1 = "v1"
    V1BETA1 = "v1beta1"


@dataclass(frozen=True)
class ResourceRule:
    """Names an operation, such as CREATE, on resources in one version of an API group."""

    operation: str
    resources: Sequence[str]
    group: str = ""
    version: str = "v1"


POD_CREATION = (ResourceRule("CREATE", ("pods",)),)
# All requests that can write the metadata of a pod.
POD_WRITES = (
    *POD_CREATION,
    ResourceRule("UPDATE", ("pods", "pods/status", "pods/ephemeralcontainers", "pods/resize")),
)


@dataclass(frozen=True)
class Scope:
    """Selects the requests that a policy judges. `conditions` maps the name of each condition to CEL. A policy judges a
    request only if all conditions are true.
    """

    namespaces: Mapping[str, Any]
    conditions: Mapping[str, str]
    rules: Sequence[ResourceRule] = POD_CREATION

    def to_spec(self) -> dict[str, Any]:
        rules = [
            {
                "apiGroups": [rule.group],
                "apiVersions": [rule.version],
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


def in_namespaces(namespaces: Iterable[str]) -> dict[str, Any]:
    """Selects the given namespaces by the label that Kubernetes itself sets on each namespace. The caller must give at
    least one of the namespaces."""
    return {"matchExpressions": [{"key": LABEL_NAMESPACE, "operator": "In", "values": sorted(set(namespaces))}]}


def outside_namespaces(namespaces: Iterable[str] = ()) -> dict[str, Any]:
    """Selects all namespaces except the given ones, kube-system, and namespaces with the label of an exempt
    namespace."""
    values = sorted({EXEMPT_BY_NAME, *namespaces})
    by_name = [{"key": LABEL_NAMESPACE, "operator": "NotIn", "values": values}]
    return narrowed_by_label({"matchExpressions": by_name}, EXEMPT, "NotIn", [EXEMPT_VALUE])


def narrowed_by_label(selector: Mapping[str, Any], key: str, operator: str, values: Iterable[str]) -> dict[str, Any]:
    """Narrows the selector to namespaces where the label `key` has one of the values (In), or none of the values
    (NotIn)."""
    expressions = selector.get("matchExpressions", [])
    return {"matchExpressions": [*expressions, {"key": key, "operator": operator, "values": list(values)}]}


def mutating(
    name: str,
    scope: Scope,
    operations: Sequence[str],
    variables: Mapping[str, str] | None = None,
    *,
    again: bool = True,
    component: str = _COMPONENT,
) -> Manifest:
    """Returns a policy that changes the object by JSON Patch. Each of `operations` is CEL for a list of patches.

    With `again`, the policy runs a second time if another policy or a webhook has changed the object after the first
    run. For example, a service mesh may add a container. The API server runs policies in any order, and evaluates their
    conditions only once. Therefore a condition must never depend on another policy's change.
    """
    expression = " + ".join(operations)
    spec = {
        **scope.to_spec(),
        "variables": _named(variables or {}),
        "reinvocationPolicy": "IfNeeded" if again else "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    }
    return _policy(MUTATING, component, name, spec)


def validating(
    name: str,
    scope: Scope,
    validations: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
    *,
    params: Mapping[str, str] | None = None,
    message_key: str = "message",
    component: str = _COMPONENT,
) -> Manifest:
    """Returns a policy that allows an object only if every expression is true. `validations` maps each expression to
    its message.

    `params` names a kind of parameter objects. A policy with `params` judges an object once for each parameter object.
    In CEL, the variable `params` is the parameter object. If the messages are CEL, `message_key` is messageExpression.
    """
    spec = {
        **({"paramKind": dict(params)} if params else {}),
        **scope.to_spec(),
        "variables": _named(variables or {}),
        "validations": [{"expression": holds, message_key: message} for holds, message in validations.items()],
    }
    return _policy("ValidatingAdmissionPolicy", component, name, spec)


def served_as(version: MutatingApi, policies: Iterable[Manifest]) -> list[Manifest]:
    """Returns the policies, with each MutatingAdmissionPolicy in the given API version. Both API versions of
    MutatingAdmissionPolicy have the same fields."""
    api = {"apiVersion": f"{_GROUP}/{version}"}
    return [{**policy, **api} if policy["kind"] == MUTATING else policy for policy in policies]


def binding(policy: Manifest, mode: Mode = Mode.ENFORCE) -> Manifest:
    """Returns the policy's binding. The API server applies only a policy with a binding. In the mode
    observe, a policy only warns and writes to the audit log
    (https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/#validation-actions).
    """
    spec: dict[str, Any] = {"policyName": policy["metadata"]["name"]}
    if policy["kind"] == "ValidatingAdmissionPolicy":
        spec["validationActions"] = ["Deny"] if mode is Mode.ENFORCE else ["Warn", "Audit"]
    if "paramKind" in policy["spec"]:
        spec["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
    return {**policy, "kind": f"{policy['kind']}Binding", "spec": spec}


def _policy(kind: str, component: str, name: str, spec: dict[str, Any]) -> Manifest:
    """Leaves out empty lists, because the API server does not store them."""
    given = {key: value for key, value in spec.items() if value != []}
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": kind,
        "metadata": {"name": name, "labels": labels(component)},
        "spec": given,
    }


def _named(expressions: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]
