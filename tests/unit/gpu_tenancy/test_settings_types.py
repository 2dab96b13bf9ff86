"""Tests that the types of Pulumi contain every setting."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpu_tenancy.plugin.provider import PACKAGE, Host
from gpu_tenancy.plugin.settings_types import UntranslatableError, with_settings
from stacks.schema import settings_schema

SETTINGS = settings_schema()
HERE = f"#/types/{PACKAGE}:index:"


@pytest.fixture(scope="module")
def package() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Host("0.0.0").schema)
    return read


def kind(package: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = package["types"][f"{PACKAGE}:index:{name}"]
    return found


def test_each_key_of_each_spec_is_a_typed_property_with_its_description(package: Mapping[str, Any]) -> None:
    specs = {"Settings": SETTINGS, **SETTINGS["$defs"]}
    for name, spec in specs.items():
        for key, value in spec.get("properties", {}).items():
            typed = kind(package, name)["properties"][key]
            assert typed["plain"] is True
            assert typed["description"].startswith(" ".join(value["description"].split()))
        passed = spec.get("propertyNames", {}).get("enum", ())
        assert kind(package, name).get("properties", {}).keys() == {*spec.get("properties", {}), *passed}
        if name != "Settings":
            assert kind(package, name).get("required", []) == spec.get("required", [])


def test_maps_lists_unions_and_choices_keep_their_shape(package: Mapping[str, Any]) -> None:
    settings, queue = kind(package, "Settings")["properties"], kind(package, "ClusterQueueSpec")["properties"]
    assert settings["pools"]["additionalProperties"] == {"$ref": f"{HERE}PoolSpec", "plain": True}
    assert queue["quotas"]["additionalProperties"]["additionalProperties"]["$ref"] == f"{HERE}QuotaSpec"
    assert queue["admission_checks"]["items"]["$ref"] == f"{HERE}QueueCheckSpec"
    nominal = kind(package, "QuotaSpec")["properties"]["nominal"]
    assert [each["type"] for each in nominal["oneOf"]] == ["integer", "string"]
    assert [each["value"] for each in kind(package, "Mode")["enum"]] == ["observe", "enforce"]
    assert queue["preemption"]["$ref"] == "pulumi.json#/Any"
    assert {"name": "BatchJob", "value": "batch/job"} in kind(package, "FrameworkName")["enum"]


@pytest.mark.parametrize("unknown", [{"anyOf": [{"type": "string"}]}, {"type": "object"}, {"type": "null"}])
def test_a_shape_without_a_type_of_pulumi_is_an_error(package: Mapping[str, Any], unknown: dict[str, Any]) -> None:
    changed = {**SETTINGS, "properties": {"strange": unknown}}
    with pytest.raises(UntranslatableError, match="SettingsStrange: has no type of Pulumi"):
        with_settings(package, changed)
