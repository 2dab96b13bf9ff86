"""The JSON schema is fresh, knows prod, refuses a typo, and says what Pulumi.yaml says."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from stacks import schema
from stacks.settings import StackSettings
from tests.support.prod import PROD, ROOT

VALIDATOR = Draft7Validator(schema.stack_file_schema())


def document() -> Any:
    return yaml.safe_load(PROD.read_text())


def test_the_schema_in_the_docs_is_fresh() -> None:
    fresh = "run `python -m stacks schema > docs/config.schema.json`"
    assert (ROOT / "docs" / "config.schema.json").read_text() == schema.render(), fresh


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(schema.stack_file_schema())


@pytest.mark.parametrize("path", [PROD, *sorted((ROOT / "examples").glob("*.yaml"))], ids=lambda path: path.name)
def test_stack_files_of_this_repository_validate(path: Path) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(path.read_text()))] == []


def test_the_providers_and_pulumis_own_keys_are_left_alone() -> None:
    config = document()
    config["config"]["kubernetes:context"] = "prod"
    config["encryptionsalt"] = "v1:x"
    config["environment"] = ["shared"]
    assert VALIDATOR.is_valid(config)


@pytest.mark.parametrize("part", ["pools", "gate"])
def test_a_bare_key_is_the_projects_and_stands_there_once(part: str) -> None:
    config = document()
    settings = config["config"]
    settings[part] = settings.pop(f"gpu-tenancy:{part}")
    assert VALIDATOR.is_valid(config)
    settings[f"gpu-tenancy:{part}"] = settings[part]
    assert not VALIDATOR.is_valid(config)
    settings[part] = "text"
    del settings[f"gpu-tenancy:{part}"]
    assert not VALIDATOR.is_valid(config)


@pytest.mark.parametrize("key", ["gpu_tenancy:gate", "GPU-TENANCY:gate", "gpu-tenancy:config:gate", "aws:region", ":x"])
def test_a_key_that_nobody_reads_does_not_validate(key: str) -> None:
    config = document()
    config["config"][key] = {}
    assert not VALIDATOR.is_valid(config)
    beside = {**document(), key: {}}
    assert not VALIDATOR.is_valid(beside)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("gpu-tenancy:resident",), {}),
        (("gpu-tenancy:residents", "frigate", "gpumem_gib"), 2),
        (("gpu-tenancy:residents", "frigate", "gpumem_mib"), "3Gi"),
        (("gpu-tenancy:residents", "frigate", "gpumem_mib"), 0),
        (("gpu-tenancy:residents", "Frigate"), {"tenant": "frigate", "pool": "t4", "gpumem_mib": 1}),
        (("gpu-tenancy:pools", "t4", "node_selector", "my gpu"), "x"),
        (("gpu-tenancy:cluster", "resource_domain"), "localhost"),
        (("gpu-tenancy:gate",), {"interval_seconds": 31}),
        (("gpu-tenancy:gate",), None),
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


def project_keys() -> dict[str, Any]:
    """The project's own keys in Pulumi.yaml, without those of the provider."""
    declared = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    return {name: key for name, key in declared.items() if ":" not in name}


def test_the_projects_index_names_the_settings_keys_with_their_descriptions() -> None:
    declared = project_keys()
    fields = StackSettings.model_fields
    assert {name: key["description"] for name, key in declared.items()} == {
        name: field.description for name, field in fields.items()
    }
    assert all(key["type"] == "object" for key in declared.values())


def test_only_required_keys_have_no_default() -> None:
    declared = project_keys()
    required = {name for name, field in StackSettings.model_fields.items() if field.is_required()}
    assert {name for name, key in declared.items() if "default" not in key} == required
    assert all(key["default"] == {} for name, key in declared.items() if name not in required)
