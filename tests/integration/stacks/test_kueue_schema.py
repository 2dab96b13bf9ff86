"""Compares our Kueue objects with the schemas of the pinned Kueue. The test also finds fields that none of our settings
sets.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from components.base.spec import Spec
from components.queues.nodes import FlavorSpec, TopologySpec
from components.queues.spec import ClusterQueueSpec, FlavorFungibilitySpec, PreemptionSpec
from tenancy.names import KUEUE_API
from tests.golden.render import FOLDER
from tests.support.paths import ROOT

CHART = ROOT / ".toolchain" / "charts" / "kueue" / "templates" / "crd"
# All Kueue objects of a stack with every setting.
OBJECTS = [
    found["inputs"]
    for found in yaml.load_all((FOLDER / "every.objects.yaml").read_text(), yaml.CSafeLoader)
    if found.get("inputs", {}).get("apiVersion") == KUEUE_API
]
# Maps each field that no setting sets to the reason.
NOT_OFFERED = {
    "ClusterQueue.concurrentAdmissionPolicy": "alpha",
    "ClusterQueue.namespaceSelector.matchLabels": "the tenants are listed by name",
    "ResourceFlavor.nodeTaints[].timeAdded": "set by the node controller",
    "ResourceFlavor.tolerations[].tolerationSeconds": "a Job's pods stay",
    "MultiKueueCluster.clusterSource.clusterProfileRef": "alpha",
    "MultiKueueConfig.quotaManagement": "alpha",
    "ProvisioningRequestConfig.podSetMergePolicy": "of use to one cloud alone",
    "ProvisioningRequestConfig.podSetUpdates": "of use to one cloud alone",
}


# Maps the message of each CEL rule to a mistake and to our own error message.
BORROWS = {"l4": {"cpu": {"nominal": 1, "borrowing_limit": 1}}}
MISTAKES: dict[str, tuple[type[Spec], dict[str, Any], str]] = {
    "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor": (
        FlavorFungibilitySpec,
        {"preference": "BorrowingOverPreemption"},
        "needs TryNextFlavor",
    ),
    "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never": (
        PreemptionSpec,
        {"borrow_within_cohort": {"policy": "LowerPriority"}},
        "needs LowerPriority or Any in reclaim_within_cohort",
    ),
    "flavors must have the same number of resources as the coveredResources": (
        ClusterQueueSpec,
        {"quotas": {"a": {"cpu": {"nominal": 1}}, "b": {"cpu": {"nominal": 1}, "memory": {"nominal": 1}}}},
        "must list the same resources",
    ),
    "borrowingLimit must be nil when cohort is empty": (ClusterQueueSpec, {"quotas": BORROWS}, "cohort"),
    "at least one nodeLabel is required when topology is set": (
        FlavorSpec,
        {"topology_name": "racks"},
        "needs a pool or node_labels",
    ),
    "must be unique": (TopologySpec, {"levels": ["rack", "rack"]}, "names a label twice"),
    "the kubernetes.io/hostname label can only be used at the lowest level of topology": (
        TopologySpec,
        {"levels": ["kubernetes.io/hostname", "rack"]},
        "must be the last level",
    ),
}
# CEL rules that no setting can break, with the reasons.
KEPT = {
    "field is immutable": "a LocalQueue is replaced; the description of levels names the rule",
    "nodeLabels are immutable when topologyName is set": "the description of topology_name names the rule",
    "tolerations are immutable when topologyName is set": "the description of topology_name names the rule",
    "topologyName is immutable when topologyName is set": "the description of topology_name names the rule",
    "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'": "the setting has these values",
    "supported toleration values: 'Equal'(default), 'Exists'": "no setting",
    "operator must be Exists when 'key' is empty, which means 'match all values and all keys'": "a key is required",
    "effect must be 'NoExecute' when 'tolerationSeconds' is set": "no setting",
    "a value must be empty when 'operator' is 'Exists'": "the operator follows from the value",
    "exactly one of the fields in [kubeConfig clusterProfileRef] must be set": "a worker cluster always has kubeConfig",
}


def schema(kind: str) -> dict[str, Any]:
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
    if isinstance(node, list):
        return [closed(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    made = {key: closed(value) for key, value in node.items()}
    if isinstance(node.get("pattern"), str):
        # Python allows the flag (?i) only at the start of a regular expression.
        made["pattern"] = node["pattern"].replace("^(?i)", "(?i)^")
    if isinstance(node.get("properties"), Mapping) and node.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def paths(node: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from paths(child, f"{path}.{name}")
        yield from paths(child.get("items", {}), f"{path}.{name}[]")


def rules(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        yield from (rule["message"] for rule in node.get("x-kubernetes-validations", ()))
    for child in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
        yield from rules(child)


def used(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, child in value.items():
            yield f"{path}.{name}"
            yield from used(child, f"{path}.{name}")
    elif isinstance(value, list):
        for child in value:
            yield from used(child, f"{path}[]")


def unset(kind: str, found: Mapping[str, Any]) -> set[str]:
    declared = {path for each in OBJECTS if each["kind"] == kind for path in used(each["spec"], kind)}
    skipped = tuple(path for path in NOT_OFFERED if path.startswith(f"{kind}."))
    return {path for path in paths(found, kind) if not path.startswith(skipped or ("-",))} - declared


@pytest.mark.parametrize("found", OBJECTS, ids=lambda found: f"{found['kind']}-{found['metadata']['name']}")
def test_kueue_knows_every_field_that_a_stack_declares(found: dict[str, Any]) -> None:
    jsonschema.validate(found.get("spec", {}), closed(schema(found["kind"])))


@pytest.mark.parametrize("kind", sorted({found["kind"] for found in OBJECTS} - {"WorkloadPriorityClass"}))
def test_a_setting_sets_every_field_of_kueue(kind: str) -> None:
    assert unset(kind, schema(kind)) == set()
    skipped = {path for path in NOT_OFFERED if path.startswith(f"{kind}.")}
    assert skipped - set(paths(schema(kind), kind)) == set(), "no field of Kueue"


def test_our_settings_keep_every_rule_of_kueue() -> None:
    kinds = {found["kind"] for found in OBJECTS}
    assert {message for kind in kinds for message in rules(schema(kind))} == MISTAKES.keys() | KEPT.keys()


@pytest.mark.parametrize("message", MISTAKES)
def test_settings_that_break_a_rule_of_kueue_are_refused(message: str) -> None:
    spec, values, refused = MISTAKES[message]
    with pytest.raises(ValidationError, match=refused):
        spec.model_validate(values)
