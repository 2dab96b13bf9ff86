"""Render, then register: a manifest is plain data, exactly as the API server gets it; `register` gives it a parent."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import pulumi

from tenancy.names import STACK, labels

Manifest = dict[str, Any]

# Kubernetes holds these fields immutable, and the provider would try to change them in place.
_IMMUTABLE: dict[str, list[str]] = {
    "PriorityClass": ["value", "preemptionPolicy"],
    "LocalQueue": ["spec.clusterQueue"],
}


def component_type(noun: str) -> str:
    """Returns the type token of a component, for instance `gputenancy:index:Capacity`."""
    return f"gputenancy:index:{noun}"


def manifest(
    api_version: str, kind: str, name: str, component: str, namespace: str | None = None, **body: object
) -> Manifest:
    """Returns an object with our labels, in a namespace or cluster-wide."""
    metadata: Manifest = {"name": name, "labels": labels(component)}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def description_field(description: str) -> Manifest:
    """Returns the field of a class that has a description."""
    return {"description": description} if description else {}


def register(
    manifest: Manifest,
    name: str,
    *,
    parent: pulumi.Resource,
    depends_on: Sequence[pulumi.Resource] = (),
    replace_on_changes: Sequence[str] = (),
    custom_timeouts: pulumi.CustomTimeouts | None = None,
    provider: pulumi.ProviderResource | None = None,
    patch: bool = False,
    retain: bool = False,
    other_versions: Sequence[str] = (),
) -> pulumi.CustomResource:
    """Registers the object as the Pulumi resource `name`, a child of `parent`.

    A change of a field in `replace_on_changes`, or of an immutable field, replaces the object; the old one goes first.
    With `patch` the object belongs to somebody else: only these fields are applied, and removed again at the end. With
    `retain` the object stays in the cluster when it leaves the stack. Under one of `other_versions` of its API it is
    the same resource. Otherwise Pulumi would create an object that is there, and fail.
    """
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    immutable = [] if patch else [*_IMMUTABLE.get(kind, ()), *replace_on_changes]
    opts = pulumi.ResourceOptions(
        parent=parent,
        depends_on=list(depends_on),
        replace_on_changes=immutable or None,
        delete_before_replace=True if immutable else None,  # the name stays the same, or comes back
        custom_timeouts=custom_timeouts,
        provider=provider,
        retain_on_delete=True if retain else None,
        aliases=[pulumi.Alias(type_=_type_token(each, kind)) for each in other_versions] or None,
    )
    opts.version = _provider_version()
    token = f"{_type_token(api_version, kind)}{'Patch' if patch else ''}"
    return pulumi.CustomResource(token, name, dict(manifest) if patch else _marked(manifest), opts)


def _marked(manifest: Manifest) -> Manifest:
    """Returns the object with the name of its stack. Another stack that applies the object gets a conflict from the API
    server (docs/adr/0034)."""
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), STACK: f"{pulumi.get_project()}/{pulumi.get_stack()}"}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def client_side(
    name: str, config: Mapping[str, pulumi.Input[str]], *, parent: pulumi.Resource
) -> pulumi.ProviderResource | None:
    """Returns a provider that previews objects as declared, without a dry run (docs/adr/0009).

    `config` is the configuration of the stack's own provider. Returns None if `parent` has a provider: its
    configuration cannot be read, so a new provider could write to another cluster.
    """
    if parent.get_provider("kubernetes::") is not None:
        return None
    opts = pulumi.ResourceOptions(parent=parent, version=_provider_version())
    return pulumi.ProviderResource("kubernetes", name, {**config, "enableServerSideApply": "false"}, opts)


def _type_token(api_version: str, kind: str) -> str:
    """Returns the provider's type. Importing the provider's Python classes would take longer than all other work of a
    preview."""
    group = api_version if "/" in api_version else f"core/{api_version}"
    return f"kubernetes:{group}:{kind}"


@cache
def _provider_version() -> str:
    """Returns the version that the provider's Python classes ask for. Without a version the engine takes any installed
    plugin."""
    return version("pulumi-kubernetes")
