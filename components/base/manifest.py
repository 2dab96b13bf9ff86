"""Render, then register: a manifest is plain data, exactly what the API server gets; `register` gives it a parent."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import pulumi

Manifest = dict[str, Any]

# Fields that Kubernetes refuses to change and the provider does not know as such: a change plans a replacement.
_IMMUTABLE: dict[str, list[str]] = {
    "PriorityClass": ["value", "preemptionPolicy"],
    "LocalQueue": ["spec.clusterQueue"],
}


def component_type(noun: str) -> str:
    """The type token of a component, for instance `gputenancy:index:Capacity`."""
    return f"gputenancy:index:{noun}"


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
) -> pulumi.CustomResource:
    """Registers the object that `manifest` describes as the Pulumi resource `name`, a child of `parent`.

    A change of one of `replace_on_changes` plans a replacement, as does one of a field that Kubernetes holds immutable;
    the old object goes first.
    `provider` is None for the stack's default one. A `patch` applies what the manifest says to an object that is
    somebody else's, and takes it back when it goes.
    """
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    immutable = [*_IMMUTABLE.get(kind, ()), *replace_on_changes]
    opts = pulumi.ResourceOptions(
        parent=parent,
        depends_on=list(depends_on),
        replace_on_changes=immutable or None,
        delete_before_replace=True if immutable else None,  # the name stays the same, or comes back
        custom_timeouts=custom_timeouts,
        provider=provider,
    )
    opts.version = _provider_version()
    token = f"{_type_token(api_version, kind)}{'Patch' if patch else ''}"
    return pulumi.CustomResource(token, name, dict(manifest), opts)


def client_side(
    name: str, config: Mapping[str, pulumi.Input[str]], *, parent: pulumi.Resource
) -> pulumi.ProviderResource | None:
    """A provider that previews an object as it is declared, without a dry run (docs/adr/0009), and is otherwise as
    `config` says, the stack's own. None where `parent` has a provider of its own: what that one was given cannot be
    read, and another would write to another cluster."""
    if parent.get_provider("kubernetes::") is not None:
        return None
    opts = pulumi.ResourceOptions(parent=parent, version=_provider_version())
    return pulumi.ProviderResource("kubernetes", name, {**config, "enableServerSideApply": "false"}, opts)


def _type_token(api_version: str, kind: str) -> str:
    """The provider's token. Its Python classes send the same request; importing them takes longer than all the rest of
    a preview's program, and for Kueue's kinds there are none."""
    group = api_version if "/" in api_version else f"core/{api_version}"
    return f"kubernetes:{group}:{kind}"


@cache
def _provider_version() -> str:
    """What the provider's own classes ask for; a bare resource would get whichever plugin is there."""
    return version("pulumi-kubernetes")
