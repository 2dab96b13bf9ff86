"""Tests that the schemas of Kubernetes, Kueue and the kinds that Kueue queues accept the manifests of prod and of the
examples.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import utils

from stacks.platform import build as build_platform
from stacks.settings import load_file
from tests.support.engine import Graph, build
from tests.support.paths import ROOT

KUBERNETES = "1.36"
CRDS = ROOT / ".toolchain" / "charts" / "kueue" / "templates" / "crd"
FRAMEWORKS = ROOT / ".toolchain" / "frameworks"
WORK = sorted((ROOT / "examples" / "kueue-demo" / "work").glob("*.yaml"))
# The toolchain does not contain the CRDs of the Prometheus Operator.
JUDGED_ELSEWHERE = {"monitoring.coreos.com/v1", "monitoring.coreos.com/v1alpha1"}


@pytest.fixture(scope="module")
def prod() -> Graph:
    settings = load_file(ROOT / "Pulumi.prod.yaml")
    return build(lambda: build_platform(settings))


@cache
def kueue_schema(kind: str, version: str) -> dict[str, Any]:
    for path in CRDS.glob("*.yaml"):
        text = path.read_text()
        if f"    kind: {kind}\n" not in text:
            continue
        text = re.sub(r"{{-? ?/\*.*?\*/ ?-?}}", "", text, flags=re.DOTALL)
        crd = yaml.load("\n".join(line for line in text.splitlines() if "{{" not in line), yaml.CSafeLoader)
        if crd["spec"]["names"]["kind"] != kind:
            continue
        return schema_of(crd, version)
    raise LookupError(f"Kueue's chart has no CRD for {kind}")


@cache
def frameworks() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """Maps the group and the kind to the CRD of each kind of another project that Kueue queues."""
    found = [each for file in FRAMEWORKS.glob("*/*.yaml") for each in yaml.load_all(file.read_text(), yaml.CSafeLoader)]
    crds = [each for each in found if each and each["kind"] == "CustomResourceDefinition"]
    return {(crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd for crd in crds}


def schema_of(crd: Mapping[str, Any], version: str) -> dict[str, Any]:
    served = next(v for v in crd["spec"]["versions"] if v["name"] == version)
    schema: dict[str, Any] = closed(served["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    has_fields = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    if has_fields and "apiVersion" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        result.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        result.pop("type", None)
    return result


def judge(manifest: Mapping[str, Any]) -> None:
    group, _, version = manifest["apiVersion"].rpartition("/")
    if group == "kueue.x-k8s.io":
        jsonschema.Draft202012Validator(kueue_schema(manifest["kind"], version)).validate(dict(manifest))
    elif crd := frameworks().get((group, manifest["kind"])):
        jsonschema.Draft202012Validator(schema_of(crd, version)).validate(dict(manifest))
    else:
        judged = kubernetes_validate.validate(dict(manifest), KUBERNETES, strict=True)
        assert judged == KUBERNETES


def test_every_manifest_of_prod_passes_its_judge(prod: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    # kubernetes_validate reads the definitions of all kinds again for each object.
    monkeypatch.setattr(utils, "schema_contents", cache(utils.schema_contents))
    manifests = [m for m in prod.objects() if m["apiVersion"] not in JUDGED_ELSEWHERE]
    assert len(manifests) > 60
    refused = dict(refusals(manifests))
    assert refused == {}


@pytest.mark.parametrize("file", WORK, ids=lambda file: file.stem)
def test_every_field_of_an_example_of_queued_work_is_known(file: Path) -> None:
    if not FRAMEWORKS.is_dir():
        pytest.skip("the kinds of other projects are not there: `make integration` takes them out of Go modules")
    assert dict(refusals([*yaml.safe_load_all(file.read_text())])) == {}


def refusals(manifests: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for manifest in manifests:
        try:
            judge(manifest)
        except jsonschema.ValidationError as error:
            yield f"{manifest['kind']}/{manifest['metadata']['name']}", f"{error.json_path}: {error.message}"
