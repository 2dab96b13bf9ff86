"""Tests that the generated files are up to date. The JSON schema accepts prod and refuses a typing error."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from stacks import schema
from tests.support.prod import PROD, ROOT

VALIDATOR = Draft7Validator(schema.stack_file_schema())


def document() -> Any:
    return yaml.load(PROD.read_text(), yaml.CSafeLoader)


@pytest.mark.parametrize("path", schema.generated_files(ROOT), ids=lambda path: path.name)
def test_what_is_made_from_the_settings_is_fresh(path: Path) -> None:
    assert path.read_text() == schema.generated_files(ROOT)[path], "run `make schema`"


def test_what_stands_under_config_validates_in_a_file_of_its_own() -> None:
    whole = Resource.from_contents(schema.stack_file_schema())
    own = json.loads((ROOT / "docs" / "settings.schema.json").read_text())
    validator = Draft7Validator(own, registry=Registry().with_resource("config.schema.json", whole))
    under_config = document()["config"]
    assert [error.message for error in validator.iter_errors(under_config)] == []
    assert not validator.is_valid(under_config | {"tenant": {}})


@pytest.mark.parametrize("path", [PROD, *sorted((ROOT / "examples").glob("*.yaml"))], ids=lambda path: path.name)
def test_stack_files_of_this_repository_validate(path: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(path.read_text()))] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("gpu-tenancy:resident",), {}),
        (("gpu-tenancy:residents", "frigate", "gpumem_mib"), "3Gi"),
        (("gpu-tenancy:residents", "Frigate"), {"tenant": "frigate", "pool": "t4", "gpumem_mib": 1}),
        (("gpu-tenancy:pools", "t4", "node_selector", "my gpu"), "x"),
        (("gpu-tenancy:gate",), {"interval_seconds": 5}),
    ],
)
def test_a_typo_does_not_validate(path: tuple[str, ...], value: object) -> None:
    config = document()
    target = config["config"]
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    assert not VALIDATOR.is_valid(config)


def test_a_stack_without_pools_does_not_validate() -> None:
    config = document()
    del config["config"]["gpu-tenancy:pools"]
    assert not VALIDATOR.is_valid(config)
    clusters = {"east": {"secret": "east-kubeconfig", "promises": {"nvidia.com/gpu": 1}}}
    config["config"]["gpu-tenancy:queues"]["clusters"] = clusters
    assert VALIDATOR.is_valid(config)
