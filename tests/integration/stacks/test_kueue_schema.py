"""Compares our Kueue objects, and the schemas that the product has, with the schemas of the pinned Kueue."""

from typing import Any

import jsonschema
import pytest
import yaml

from tenancy.names import KUEUE_API
from tests.golden.render import FOLDER
from toolchain import kueue_crds

# All Kueue objects of a stack with every setting.
OBJECTS = [
    found["inputs"]
    for found in yaml.load_all((FOLDER / "every.objects.yaml").read_text(), yaml.CSafeLoader)
    if found.get("inputs", {}).get("apiVersion") == KUEUE_API
]


def test_the_schemas_of_the_passed_fields_are_those_of_the_chart() -> None:
    assert kueue_crds.FILE.read_text() == kueue_crds.text(), "run `make schema`"


@pytest.mark.parametrize("found", OBJECTS, ids=lambda found: f"{found['kind']}-{found['metadata']['name']}")
def test_kueue_knows_every_field_that_a_stack_declares(found: dict[str, Any]) -> None:
    jsonschema.validate(found.get("spec", {}), kueue_crds.closed(kueue_crds.spec_schema(found["kind"])))
