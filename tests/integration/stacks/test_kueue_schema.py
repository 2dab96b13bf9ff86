"""Compares our Kueue objects with the schemas in the pinned chart's CustomResourceDefinitions.

The schemas accept our objects. The test also finds fields of Kueue that none of our settings sets.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
import yaml

from tenancy.names import KUEUE_API
from tests.golden.render import FOLDER
from tests.support.paths import ROOT

CHART = ROOT / ".toolchain" / "charts" / "kueue" / "templates" / "crd"
# All Kueue objects of a stack that uses every setting.
OBJECTS = [
    found["inputs"]
    for found in yaml.load_all((FOLDER / "every.objects.yaml").read_text(), yaml.CSafeLoader)
    if found.get("inputs", {}).get("apiVersion") == KUEUE_API
]
# Maps fields of Kueue that no setting sets to the reason.
NOT_OFFERED = {
    "ClusterQueue.concurrentAdmissionPolicy": "alpha",
    "ClusterQueue.namespaceSelector.matchLabels": "the tenants are listed by name",
    "ResourceFlavor.nodeTaints[].timeAdded": "set by the node controller",
    "ResourceFlavor.tolerations[].tolerationSeconds": "a Job's pods stay",
    "ProvisioningRequestConfig.podSetMergePolicy": "of use to one cloud alone",
    "ProvisioningRequestConfig.podSetUpdates": "of use to one cloud alone",
}


def schema(kind: str) -> dict[str, Any]:
    """Returns the schema of the kind's spec. Raises KeyError if the pinned Kueue does not serve our API version."""
    for path in CHART.glob("*.yaml"):
        text = path.read_text()
        if f"\n    kind: {kind}\n" in text:
            versions = "\n".join(line for line in text[text.index("  versions:") :].splitlines() if "{{" not in line)
            served = {each["name"]: each for each in yaml.load(versions, yaml.CSafeLoader)["versions"]}
            properties = served[KUEUE_API.partition("/")[2]]["schema"]["openAPIV3Schema"]["properties"]
            found: dict[str, Any] = properties.get("spec", {"type": "object"})
            return found
    raise KeyError(kind)


def closed(node: Any) -> Any:
    """Returns a copy of the schema that refuses unknown fields. The API server would silently drop unknown fields."""
    if isinstance(node, list):
        return [closed(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    made = {key: closed(value) for key, value in node.items()}
    if isinstance(node.get("pattern"), str):
        made["pattern"] = node["pattern"].replace("^(?i)", "(?i)^")  # Python only accepts the flag at the beginning
    if isinstance(node.get("properties"), Mapping) and node.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def paths(node: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yields the path of each field in a schema. Keys of maps and items of plain lists are not fields."""
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from paths(child, f"{path}.{name}")
        yield from paths(child.get("items", {}), f"{path}.{name}[]")


def used(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, child in value.items():
            yield f"{path}.{name}"
            yield from used(child, f"{path}.{name}")
    elif isinstance(value, list):
        for child in value:
            yield from used(child, f"{path}[]")


@pytest.mark.parametrize("found", OBJECTS, ids=lambda found: f"{found['kind']}-{found['metadata']['name']}")
def test_kueue_knows_every_field_that_a_stack_declares(found: dict[str, Any]) -> None:
    jsonschema.validate(found.get("spec", {}), closed(schema(found["kind"])))


@pytest.mark.parametrize("kind", sorted({found["kind"] for found in OBJECTS} - {"WorkloadPriorityClass"}))
def test_a_setting_sets_every_field_of_kueue(kind: str) -> None:
    """This test fails if a new version of Kueue has fields that no setting sets."""
    declared = {path for found in OBJECTS if found["kind"] == kind for path in used(found["spec"], kind)}
    skipped = tuple(path for path in NOT_OFFERED if path.startswith(f"{kind}."))
    missing = {path for path in paths(schema(kind), kind) if not path.startswith(skipped or ("-",))} - declared
    assert missing == set()
    assert {path for path in skipped if path not in set(paths(schema(kind), kind))} == set(), "no field of Kueue"


def test_the_stack_declares_every_kind_that_operators_write() -> None:
    kinds = {"AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "ProvisioningRequestConfig", "ResourceFlavor"}
    assert {found["kind"] for found in OBJECTS} == kinds | {"Topology", "WorkloadPriorityClass"}
