"""Tests `python -m stacks render` with Pulumi's real engine and its Kubernetes provider."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tenancy import quantity
from tenancy.names import EXEMPT_BY_NAME
from tests.golden import render as golden
from tests.support.paths import ROOT
from tests.support.workspace import Workspace

# Annotations for deployment tools, and the name of the stack, which the golden objects have from another project.
OTHERS = ("argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "pulumi.com/", "gpu-tenancy/stack")


def test_the_files_are_the_objects_of_the_program_and_kueues_chart(space: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = (str(ROOT / ".venv" / "bin" / "python"), "-m", "stacks", "render", "--stack", "prod", "--out", str(out))
    outcome = space.run(*command, cwd=space.project)
    assert outcome.code == 0, outcome.text
    files = [*out.glob("[0-9]-*/*.yaml"), *out.glob("0-never-delete/*.kept")]
    assert f"{len(files)} objects are written to {out}" in outcome.text
    found = {path: yaml.load(path.read_text(), yaml.CSafeLoader) for path in files}
    of_the_chart = {path for path in files if path.parent.name == "2-kueue"}
    assert any(path.name.startswith("deployment_kueue-system") for path in of_the_chart)
    written = [golden.stable(each) for path, each in found.items() if path not in of_the_chart]
    resources = yaml.load_all((golden.FOLDER / "prod.objects.yaml").read_text(), yaml.CSafeLoader)
    declared = [each["inputs"] for each in resources if is_rendered(each.get("inputs", {}))]
    assert by_name(written) == by_name(declared)


def is_rendered(inputs: Mapping[str, Any]) -> bool:
    """The patch of kube-system has no field, and is only for Pulumi's state."""
    return inputs.get("metadata", {"name": EXEMPT_BY_NAME})["name"] != EXEMPT_BY_NAME


def by_name(manifests: list[Any]) -> Mapping[str, Any]:
    """Maps each object's kind, namespace and name to the object without the annotations in OTHERS."""
    named = {}
    for each in manifests:
        metadata = dict(each["metadata"])
        annotations = {n: text for n, text in metadata.pop("annotations", {}).items() if not n.startswith(OTHERS)}
        metadata["annotations"] = annotations
        same = {**each, "metadata": metadata}
        if same.get("globalDefault") is False:  # the provider leaves it out
            del same["globalDefault"]
        if hard := same.get("spec", {}).get("hard"):  # the provider writes 100000 as 100k
            same["spec"] = {**same["spec"], "hard": {name: quantity.parse(amount) for name, amount in hard.items()}}
        named[f"{each['kind']} {metadata.get('namespace', '')}/{metadata['name']}"] = same
    return named
