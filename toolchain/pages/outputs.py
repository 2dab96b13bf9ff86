"""Generates docs/reference/outputs.md: the outputs of a stack, with the values of the template's stack as examples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pulumi.provider.experimental.analyzer import Analyzer

from gpu_tenancy import Platform
from toolchain.pages.markdown import MADE, row, table

OBJECTS = "tests/golden/template.objects.yaml"
# Outputs for which the page has a sentence in place of an example.
_ELSEWHERE: Mapping[str, str] = {"seating_chart": "`make chart` prints it."}
_HEAD = f"""# Outputs

{MADE}

Other Pulumi programs read the outputs of a stack by a StackReference. The example values are those of a stack that
`make new-stack` creates.
"""


def page(root: Path) -> str:
    """Returns the text of the page of outputs. `root` is the folder of the checkout."""
    definition = Analyzer("gpu-tenancy").analyze([Platform])["component_definitions"]["Platform"]
    texts = {
        name: definition.outputs[key].description or ""
        for key, name in definition.outputs_mapping.items()
        if key in definition.outputs
    }
    *_, last = yaml.load_all((root / OBJECTS).read_text(), Loader=yaml.CSafeLoader)
    rows = [row(f"[`{name}`](#{name})", texts.get(name, "")) for name in last["outputs"]]
    return (
        "\n".join([_HEAD, table(("output", "meaning"), rows), *map(_example, last["outputs"].items())]).rstrip() + "\n"
    )


def _example(output: tuple[str, Any]) -> str:
    name, value = output
    shown = _ELSEWHERE.get(name) or f"```yaml\n{yaml.safe_dump(value, sort_keys=False).rstrip()}\n```"
    return f"## {name}\n\n{shown}\n"
