"""Evaluates the CEL of admission policies on a pod that a preview or a cluster shows.

The API server evaluates CEL on typed objects, and so does this module: `object` is a protobuf message with the fields
that the policies read. A policy that reads another field fails to compile, so a new field can't be forgotten here. An
unknown value is a value that CEL can't unpack. An expression is therefore unknown exactly if its result depends on one:
`false && unknown` is false, and an environment variable with an unknown value is harmless under any other name.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from cel_expr_python import cel
from cel_expr_python.ext.ext_optional import ExtOptional
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, json_format, message_factory, struct_pb2
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BoolValue, Int64Value, StringValue

from policy.unknown import Unknown, UnprovenError, is_unknown, unknown, unknowns
from tenancy.quantity import parse
from tenancy.workload import ShapeError

# For each message, its fields. A field with "*" is a list, and a field with "{}" is a map in which one value can be
# unknown. Without a mark, a field is a message, or a value that is known or unknown as a whole.
_SCHEMA: dict[str, dict[str, str]] = {
    "Pod": {"metadata": "Meta", "spec": "Spec", "deleteOptions": ""},  # an Eviction has deleteOptions
    "Params": {"metadata": "Meta", "handler": ""},
    "Meta": {"name": "", "labels": "{}", "annotations": "{}", "ownerReferences": "*Owner"},
    "Owner": {"apiVersion": "", "kind": "", "name": "", "controller": ""},
    "Spec": {
        **dict.fromkeys(("containers", "initContainers", "ephemeralContainers"), "*Container"),
        **dict.fromkeys(("nodeName", "schedulerName", "runtimeClassName", "priorityClassName", "priority"), ""),
        **dict.fromkeys(("preemptionPolicy", "terminationGracePeriodSeconds"), ""),
        "nodeSelector": "",
        "resources": "Resources",
        "schedulingGates": "*Gate",
        "volumes": "*Volume",
    },
    "Container": {
        "name": "",
        "restartPolicy": "",
        "env": "*Variable",
        "envFrom": "*Source",
        "resources": "Resources",
        "volumeMounts": "*Mount",
    },
    "Variable": {"name": "", "value": "", "valueFrom": "Reference"},
    "Reference": {"fieldRef": "FieldReference"},
    "FieldReference": {"fieldPath": ""},
    "Source": {"prefix": ""},
    "Resources": {"limits": "{}", "requests": "{}"},
    "Mount": {"mountPath": ""},
    "Gate": {"name": ""},
    "Volume": {"hostPath": "HostPath"},
    "HostPath": {"path": ""},
}
T = TypeVar("T", list[Any], dict[Any, Any])
_URL = "type.googleapis.com/unknown."
_UNKNOWN = re.compile(r"unable to find descriptor for type name: unknown\.([0-9]+)")
_LACKING = re.compile(r'Key not found in map : "(\w+)"')


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for known in (any_pb2, struct_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="admission.proto", syntax="proto3", dependency=[any_pb2.DESCRIPTOR.name, struct_pb2.DESCRIPTOR.name]
    )
    for name, fields in _SCHEMA.items():
        message = file.message_type.add(name=name)
        for number, (key, kind) in enumerate(fields.items(), 1):
            listed = kind.startswith(("*", "{}"))
            declared = message.field.add(name=key, json_name=key, number=number, type=11, label=3 if listed else 1)
            declared.type_name = f".{kind.strip('*')}" if kind.strip("*{}") else ".google.protobuf.Any"
            if kind == "{}":
                entry = message.nested_type.add(name=f"{key[0].upper()}{key[1:]}Entry")
                entry.options.map_entry = True
                entry.field.add(name="key", number=1, type=9, label=1)
                entry.field.add(name="value", number=2, type=11, label=1, type_name=".google.protobuf.Any")
                declared.type_name = f".{name}.{entry.name}"
    patch = file.message_type.add(name="JSONPatch")
    for number, key in enumerate(("op", "path"), 1):
        patch.field.add(name=key, number=number, type=9, label=1)
    patch.field.add(name="value", number=3, type=11, label=1, type_name=".google.protobuf.Value")
    pool.AddSerializedFile(file.SerializeToString())
    return pool


@cache
def _environment() -> Any:
    kinds = cel.Type

    def function(name: str, takes: list[Any], returns: Any, impl: Callable[..., Any], *, member: bool = True) -> Any:
        def of_plain(*given: Any) -> Any:
            return impl(*map(_plain, given))

        overload = cel.Overload(id=name, return_type=returns, parameters=takes, is_member=member, impl=of_plain)
        return cel.FunctionDecl(name, [overload])

    return cel.NewEnv(
        descriptor_pool=_pool(),
        variables={
            "object": kinds("Pod"),
            "params": kinds("Params"),
            **dict.fromkeys(("oldObject", "request", "variables"), kinds.DYN),
        },
        extensions=[ExtOptional()],
        # https://kubernetes.io/docs/reference/using-api/cel/#cel-community-libraries has these of Kubernetes.
        functions=[
            function("quantity", [kinds.STRING], kinds.MAP, lambda text: {"is": text}, member=False),
            function("asInteger", [kinds.MAP], kinds.INT, lambda quantity: _integer(quantity["is"])),
            function("asApproximateFloat", [kinds.MAP], kinds.DOUBLE, lambda quantity: float(parse(quantity["is"]))),
            function("sum", [kinds.List(kinds.INT)], kinds.INT, sum),
            function("max", [kinds.List(kinds.INT)], kinds.INT, max),
            function("indexOf", [kinds.LIST, kinds.STRING], kinds.INT, lambda items, item: items.index(item)),
        ],
    )


def _plain(value: Any) -> Any:
    plain = value.plain_value() if isinstance(value, cel.Value) else value
    return [_plain(each) for each in plain] if isinstance(plain, list) else plain


def _integer(text: str) -> int:
    amount = parse(text)
    if amount.denominator != 1:
        raise ValueError(f"{text} is no integer")
    return int(amount)


@dataclass
class Encoder:
    """Encodes plain data as the messages that CEL reads. `paths` has the paths of the unknown values."""

    paths: list[str] = field(default_factory=list)

    def message(self, name: str, data: Mapping[str, Any]) -> Message:
        """Returns the message `name`. Leaves out what the API server leaves out: null, empty text and empty lists.

        Raises UnprovenError for an unknown list or map, and ShapeError for a value that is no list or map.
        """
        made = message_factory.GetMessageClass(_pool().FindMessageTypeByName(name))()
        self._fill(made, name, data)
        return made

    def _fill(self, made: Any, name: str, data: Mapping[str, Any]) -> None:
        for key, kind in _SCHEMA[name].items():
            value = data.get(key)
            if not kind:
                self._pack(getattr(made, key), value)
            elif kind == "{}":
                if key == "requests" and is_unknown(value):  # of these, the policies read only what is here
                    value = dict.fromkeys(("cpu", "memory"), value)
                for each, item in _known(key, value, dict).items():
                    self._pack(getattr(made, key)[each], _canonical(item) if name == "Resources" else item, empty=True)
            elif kind.startswith("*"):
                for each in _known(key, value, list):
                    self._fill(getattr(made, key).add(), kind[1:], _known(key, each, dict))
            elif is_unknown(value) or value is not None:
                getattr(made, key).SetInParent()
                self._fill(getattr(made, key), kind, _known(key, value, dict))

    def _pack(self, into: any_pb2.Any, value: Any, *, empty: bool = False) -> None:
        if is_unknown(value):
            into.type_url = f"{_URL}{len(self.paths)}"
            self.paths.extend(unknowns(value))
        elif isinstance(value, bool):
            into.Pack(BoolValue(value=value))
        elif isinstance(value, int | float):
            into.Pack(Int64Value(value=int(value)))  # Pulumi has no integers; the API server has no fractions here.
        elif isinstance(value, str) and (value or empty):
            into.Pack(StringValue(value=value))
        elif isinstance(value, dict):
            if inside := list(unknowns(value)):
                self._pack(into, Unknown(inside[0]))
            else:
                into.Pack(json_format.ParseDict(value, struct_pb2.Struct()))


def _known(key: str, value: Any, kind: Callable[[], T]) -> T:
    """Returns the value, which must be a list or a dict. Null is empty."""
    if is_unknown(value):
        raise UnprovenError(unknown(next(unknowns(value))))
    empty = kind()
    if value is None:
        return empty
    if not isinstance(value, type(empty)):
        raise ShapeError(f"{key} has another type than in the API of Kubernetes: {value!r}")
    return value


def _canonical(amount: Any) -> Any:
    """Returns the quantity as the API server stores it, as far as CEL can tell: an integer without a suffix."""
    if is_unknown(amount):
        return amount
    number = parse(amount)
    return str(int(number)) if number.denominator == 1 else str(amount)


@dataclass(frozen=True)
class Verdict:
    """A validation of a policy that a pod doesn't pass. `unproven` is the path of an unknown value on which it depends,
    or None if the pod certainly doesn't pass."""

    message: str
    unproven: str | None = None


def judges_new_pods(manifest: Mapping[str, Any]) -> bool:
    """Returns True if the admission policy judges or changes pods that are created."""
    rules = manifest["spec"]["matchConstraints"]["resourceRules"]
    return any("CREATE" in rule["operations"] and "pods" in rule["resources"] for rule in rules)


class Policy:
    """A ValidatingAdmissionPolicy or a MutatingAdmissionPolicy, compiled."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        spec = manifest["spec"]
        self.name = str(manifest["metadata"]["name"])
        self.has_params = "paramKind" in spec
        self._namespaces = spec["matchConstraints"]["namespaceSelector"].get("matchExpressions", [])
        self._conditions = [_compiled(each["expression"]) for each in spec.get("matchConditions", [])]
        self._variables = {each["name"]: _compiled(each["expression"]) for each in spec.get("variables", [])}
        self._validations = [
            (_compiled(each["expression"]), each.get("message", ""), each.get("messageExpression"))
            for each in spec.get("validations", [])
        ]
        self._mutations = [_compiled(each["jsonPatch"]["expression"]) for each in spec.get("mutations", [])]

    def selects(self, namespace: Mapping[str, str]) -> bool:
        """Returns True if the policy selects a namespace with these labels."""
        return all(
            (namespace.get(each["key"]) in each["values"]) == (each["operator"] == "In") for each in self._namespaces
        )

    def patches(self, given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Yields the JSON patches of a policy that changes pods."""
        data = {**given, "variables": self._values(given)} if self._mutations else given
        if self._mutations and all(_result(each, data) is True for each in self._conditions):
            for mutation in self._mutations:
                found = _result(mutation, data)
                yield from map(json_format.MessageToDict, found if isinstance(found, list) else ())

    def verdicts(self, given: Mapping[str, Any], paths: Sequence[str]) -> Iterator[Verdict]:
        """Yields the validations that the object does not pass. As `failurePolicy: Fail` says, an error denies."""
        data = {**given, "variables": self._values(given)}
        conditions = [_result(each, data) for each in self._conditions]
        if any(each is False for each in conditions):
            return
        # An unknown condition leaves open if the validations count. Any other error in a condition denies by itself.
        open_ones = [self._unproven(each, data, paths) for each in conditions if each is not True]
        if None in open_ones:
            yield Verdict(f"a condition of {self.name} has an error")
        for validation, message, expression in self._validations:
            result = _result(validation, data)
            if result is not True:
                own = None if result is False else self._unproven(result, data, paths)
                said = str(_result(_compiled(expression), data)) if expression else message
                yield Verdict(said, next(filter(None, open_ones), own))

    def _values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of the variables. A variable with an error is left out, because an error counts only where
        an expression reads the variable."""
        values: dict[str, Any] = {}
        for name, expression in self._variables.items():
            value = expression.eval(data={**given, "variables": values})
            if value.type() != cel.Type.ERROR:
                values[name] = value.plain_value()
        return values

    def _unproven(self, error: object, data: Mapping[str, Any], paths: Sequence[str]) -> str | None:
        if found := _UNKNOWN.search(str(error)):
            return paths[int(found[1])]
        lacking = _LACKING.search(str(error))
        if lacking and lacking[1] in self._variables:
            return self._unproven(_result(self._variables[lacking[1]], data), data, paths)
        return None


@cache
def _compiled(expression: str) -> Any:
    return _environment().compile(expression)


def _result(expression: Any, data: Mapping[str, Any]) -> Any:
    """Returns the plain result, or the text of the error."""
    return _plain(expression.eval(data=data))
