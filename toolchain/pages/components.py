"""docs/reference/package/: a table of each component's arguments and outputs, from its own types and texts.

A page is written by hand above the mark, and generated below it. Arguments and outputs are read as Pulumi reads them
for its schema, so that the page is right for every language.
"""

import pulumi
from pulumi.provider.experimental.analyzer import Analyzer, PropertyDefinition, PropertyType

import gpu_tenancy

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
    """Returns the page with the part below the mark generated from the code."""
    component = COMPONENTS[name]
    definition = Analyzer("gpu-tenancy").analyze([component])["component_definitions"][component.__name__]
    inputs = [
        _row(definition.inputs_mapping[key], each, "no" if each.optional else "yes", "yes" if each.plain else "no")
        for key, each in definition.inputs.items()
    ]
    outputs = [_row(definition.outputs_mapping[key], each) for key, each in definition.outputs.items()]
    made = [
        MARK,
        "",
        _line(definition.description),
        "",
        "## Arguments",
        "",
        "Plain: the value must be known before the program runs, so it cannot be an Output.",
        "",
        "| argument | type | required | plain | meaning |",
        "|---|---|---|---|---|",
        *inputs,
        "",
        "## Outputs",
        "",
        "| output | type | meaning |",
        "|---|---|---|",
        *outputs,
        "",
    ]
    return f"{written.partition(MARK)[0]}{chr(10).join(made)}"


def _row(name: str, each: PropertyDefinition, *more: str) -> str:
    return f"| {' | '.join([f'`{name}`', _kind(each), *more, _line(each.description)])} |"


def _kind(each: PropertyDefinition | None) -> str:
    if each is not None and each.type is PropertyType.OBJECT:
        values = _kind(each.additional_properties)
        return "map" if values == "any" else f"map of {values}"
    if each is not None and each.type is PropertyType.ARRAY:
        return f"list of {_kind(each.items)}"
    return _WORDS[each.type] if each is not None and each.type else "any"


def _line(text: str | None) -> str:
    return " ".join((text or "").split())
