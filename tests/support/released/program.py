"""Declares what the last release's program declared, under the same URNs.

The recorded objects are older than the field manager of the stack, which each of them gets here.
"""

from importlib.metadata import version
from typing import Any

import pulumi

from tenancy import names
from tests.support.released.objects import PROVIDER, resources


def managed(inputs: dict[str, Any]) -> dict[str, Any]:
    if "metadata" not in inputs:
        return inputs
    metadata = inputs["metadata"]
    manager = names.field_manager(names.stack_mark(pulumi.get_project(), pulumi.get_stack()))
    annotations = {**(metadata.get("annotations") or {}), names.FIELD_MANAGER: manager}
    return {**inputs, "metadata": {**metadata, "annotations": annotations}}


made: dict[str, pulumi.Resource] = {}
for each in resources():
    name, timeouts = each["urn"].rpartition("::")[2], each.get("customTimeouts")
    options = pulumi.ResourceOptions(
        parent=made.get(each["parent"]),
        depends_on=[made[urn] for urn in each.get("dependencies", ())],
        custom_timeouts=timeouts and pulumi.CustomTimeouts(**{verb: f"{s}s" for verb, s in timeouts.items()}),
        replace_on_changes=each.get("replaceOnChanges"),
        delete_before_replace=bool(each.get("replaceOnChanges")),  # they keep their names
        version=version("pulumi-kubernetes") if each.get("custom") else None,
    )
    provider = made.get(each["provider"])
    if isinstance(provider, pulumi.ProviderResource):
        options.provider = provider
    if each["type"].startswith(PROVIDER):
        made[each["urn"]] = pulumi.ProviderResource(each["type"].removeprefix(PROVIDER), name, each["inputs"], options)
    elif each.get("custom"):
        made[each["urn"]] = pulumi.CustomResource(each["type"], name, managed(each["inputs"]), options)
    else:
        made[each["urn"]] = pulumi.ComponentResource(each["type"], name, each.get("inputs"), options)
