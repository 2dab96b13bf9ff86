"""Checks the fields that the stack passes through to Kueue, by the schemas in components/base."""

from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft7Validator

from components.base.passed import PassedSpec
from components.kueue import KueueSpec
from components.queues.nodes import FlavorSpec, ProvisioningSpec
from components.queues.spec import ClusterQueueSpec, LocalQueueSpec
from stacks.paths import values_at
from stacks.problems import KeyPath, key, nearest

PASSED: Mapping[str, type[PassedSpec]] = {
    "kueue": KueueSpec,
    "queues.flavors.*": FlavorSpec,
    "queues.cluster_queues.*": ClusterQueueSpec,
    "queues.local_queues.*": LocalQueueSpec,
    "queues.admission_checks.*": ProvisioningSpec,
}


def problems(raw: Mapping[str, Any]) -> Iterator[str]:
    """Yields an error message for each mistake, in the words of jsonschema. Leaves keys without a value to the check of
    the settings."""
    for pattern, spec in PASSED.items():
        for path, value in values_at(raw, pattern):
            if isinstance(value, Mapping):
                yield from _of_one(path, value, spec)


def _of_one(path: KeyPath, value: Mapping[str, Any], spec: type[PassedSpec]) -> Iterator[str]:
    schema = spec.schema_of_kueue()
    passed = {name: each for name, each in value.items() if name not in spec.model_fields}
    for error in Draft7Validator(schema).iter_errors(passed):
        where = (*path, *error.absolute_path)
        if error.validator == "additionalProperties":
            known = {*error.schema["properties"], *(spec.model_fields if error.schema is schema else ())}
            for name in [each for each, given in error.instance.items() if each not in known and given is not None]:
                yield f"{key(*where, name)}: unknown key; {nearest(name, known, 'here')}"
        elif error.instance is not None:
            yield f"{key(*where)}: {error.message}"
