"""The JSON schema is fresh, knows prod, refuses a typo, and says what Pulumi.yaml says."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from stacks import schema
from stacks.settings import StackSettings
from tests.support.prod import PROD, ROOT

VALIDATOR = Draft7Validator(schema.stack_file_schema())


def document() -> Any:
    return yaml.safe_load(PROD.read_text())


@pytest.mark.parametrize(("name", "parts"), [("config", False), ("parts", True)])
def test_the_schema_in_the_docs_is_fresh(name: str, parts: bool) -> None:
    assert (ROOT / "docs" / f"{name}.schema.json").read_text() == schema.render(parts=parts), "run `make schema`"


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(schema.stack_file_schema())
    Draft7Validator.check_schema(schema.parts_file_schema())


def parts_validator() -> Draft7Validator:
    """An editor finds the schema of the stack file next to that of the parts."""
    whole = Resource.from_contents(schema.stack_file_schema())
    return Draft7Validator(schema.parts_file_schema(), registry=Registry().with_resource("config.schema.json", whole))


def test_what_stands_under_config_validates_in_a_file_of_its_own() -> None:
    validator, under_config = parts_validator(), document()["config"]
    assert [error.message for error in validator.iter_errors(under_config)] == []
    assert validator.is_valid({"tenants": {"team-a": {}}, "gpu-tenancy:residents": {}})
    for wrong in (
        {"tenants": {"Team": {}}},
        {"tenant": {}},
        {"files": ["a.yaml"]},
        {"kubernetes:context": "x"},
        {"config": under_config},
        {"tenants": {}, "gpu-tenancy:tenants": {}},
    ):
        assert not validator.is_valid(wrong), wrong


@pytest.mark.parametrize(
    ("files", "right"),
    [
        (["stacks.d/prod", "a..b/c.yaml"], True),
        (["/etc"], False),
        (["../x"], False),
        (["a/../../x"], False),
        (["a/.."], False),
        ([""], False),
        ("stacks.d", False),
    ],
)
def test_with_files_even_pools_may_stand_elsewhere(files: Any, right: bool) -> None:
    assert VALIDATOR.is_valid({"config": {"gpu-tenancy:files": files}}) is right
    assert not VALIDATOR.is_valid({"config": {"files": files, "gpu-tenancy:files": files}})


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
    kinds = {name: key["type"] for name, key in declared.items()}
    assert kinds == {name: "array" if name == "files" else "object" for name in fields}


def test_whatever_is_left_out_is_left_to_the_settings_which_look_into_files_as_well() -> None:
    assert all(key["default"] == ([] if name == "files" else {}) for name, key in project_keys().items())
