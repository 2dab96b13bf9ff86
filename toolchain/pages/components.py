"""Generates tables of each component's arguments and outputs for the pages of docs/reference/package/.

The part of a page above the line MARK is written by hand. The part of a page below the line MARK is generated. Pulumi's
analyzer reads the arguments and outputs, as for Pulumi's schema. Therefore the names of arguments and outputs are right
in every language.
"""

import pulumi
from pulumi.provider.experimental.analyzer import Analyzer, PropertyDefinition, PropertyType

import gpu_tenancy
from toolchain.pages.markdown import row, table

MARK = "<!-- Below, all is made from the code: make schema -->"
COMPONENTS: dict[str, type[pulumi.ComponentResource]] = {
    "platform": gpu_tenancy.Platform,
    "seated-deployment": gpu_tenancy.SeatedDeployment,
    "seat": gpu_tenancy.Seat,
    "queue": gpu_tenancy.Queue,
}
_WORDS = {
    PropertyType.STRING: "string",
    PropertyType.INTEGER: "whole number",
    PropertyType.NUMBER: "number",
    PropertyType.BOOLEAN: "true or false",
}


def page(name: str, written: str) -> str:
    """Returns the text of the page, with a new part below MARK. `written` is the present text of the page."""
    component = COMPONENTS[name]
    definition = Analyzer("gpu-tenancy").analyze([component])["component_definitions"][component.__name__]
    inputs = [
        row(
            f"`{definition.inputs_mapping[key]}`",
            _kind(each),
            "no" if each.optional else "yes",
            "yes" if each.plain else "no",
            each.description or "",
        )
        for key, each in definition.inputs.items()
    ]
    outputs = [
        row(f"`{definition.outputs_mapping[key]}`", _kind(each), each.description or "")
        for key, each in definition.outputs.items()
    ]
    return f"""{written.partition(MARK)[0]}{MARK}

{" ".join((definition.description or "").split())}

## Arguments

A plain value: it must be known before the program runs, so it cannot be an Output.

{table(("argument", "type", "required", "plain", "meaning"), inputs)}
## Outputs

{table(("output", "type", "meaning"), outputs)}"""


def _kind(each: PropertyDefinition | None) -> str:
    if each is not None and each.type is PropertyType.OBJECT:
        values = _kind(each.additional_properties)
        return "map" if values == "any" else f"map of {values}"
    if each is not None and each.type is PropertyType.ARRAY:
        return f"list of {_kind(each.items)}"
    return _WORDS[each.type] if each is not None and each.type else "any"
