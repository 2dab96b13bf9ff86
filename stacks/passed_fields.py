"""Checks the fields that the stack passes through to Kueue, by the schemas in components/base."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft7Validator, ValidationError

from components.base.passed import PassedSpec
from components.kueue import KueueSpec
from components.queues.nodes import FlavorSpec, ProvisioningSpec
from components.queues.spec import ClusterQueueSpec, LocalQueueSpec
from stacks.paths import values_at
from stacks.problems import KeyPath, key, nearest, shown_value

PASSED: Mapping[str, type[PassedSpec]] = {
    "kueue": KueueSpec,
    "queues.flavors.*": FlavorSpec,
    "queues.cluster_queues.*": ClusterQueueSpec,
    "queues.local_queues.*": LocalQueueSpec,
    "queues.admission_checks.*": ProvisioningSpec,
}
_RENAMED = {
    "queues.cluster_queues.*.strategy": "queueing_strategy",
    "kueue.retention": "object_retention_policies.workloads",
}
MESSAGES = {
    "maxItems": "must have at most {} entries",
    "maxProperties": "must have at most {} entries",
    "maxLength": "must be at most {} characters",
    "minItems": "must not be empty",
    "minLength": "must not be empty",
    "minimum": "must be at least {}",
    "pattern": "must match {}",
}
_TYPES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "a map of keys",
    "string": "a string; quote it",
}


def problems(raw: Mapping[str, Any]) -> list[str]:
    """Returns an error message for each mistake. Leaves keys without a value to the check of the settings."""
    found = (
        line
        for pattern, spec in PASSED.items()
        for path, value in values_at(raw, pattern)
        if isinstance(value, Mapping)
        for line in _of_one(pattern, path, value, spec)
    )
    return list(dict.fromkeys(found))


def _of_one(pattern: str, path: KeyPath, value: Mapping[str, Any], spec: type[PassedSpec]) -> Iterator[str]:
    schema = spec.schema_of_kueue()
    passed = {name: each for name, each in value.items() if name not in spec.model_fields}
    for name in [each for each in passed if f"{pattern}.{each}" in _RENAMED]:
        del passed[name]
        yield f"{key(*path, name)}: has a new name; write {_RENAMED[f'{pattern}.{name}']}"
    for error in Draft7Validator(schema).iter_errors(passed):
        if error.instance is not None:
            known = spec.model_fields if error.schema is schema else {}
            yield from _lines((*path, *error.absolute_path), error, known)


def _lines(path: KeyPath, error: ValidationError, ours: Mapping[str, Any]) -> Iterator[str]:
    """Yields the messages of an error. `ours` has the settings that may stand next to the fields of Kueue."""
    rule, value, limit = str(error.validator), error.instance, error.validator_value
    if rule == "additionalProperties":
        known = error.schema["properties"]
        for name in [each for each in value if each not in known and value[each] is not None]:
            yield f"{key(*path, name)}: unknown key; {nearest(name, {*known, *ours}, 'here')}"
    elif rule == "required":
        yield from (f"{key(*path, name)}: is missing; add it" for name in limit if name not in value)
    elif rule == "enum":
        yield f"{key(*path)}: must be one of {', '.join(map(repr, limit))}{shown_value(value)}"
    elif rule == "type":
        pattern = error.schema.get("pattern") if limit == "string" else None
        if pattern and re.search(pattern, str(value)) is None:  # Who quoted the value would be refused again.
            yield f"{key(*path)}: {MESSAGES['pattern'].format(pattern)}{shown_value(value)}"
            return
        yield f"{key(*path)}: must be {_TYPES[limit]}{shown_value(value)}"
    else:
        yield f"{key(*path)}: {MESSAGES[rule].format(limit)}{shown_value(value)}"
