"""Render, then register: a manifest is plain data, exactly what the API server gets; `register` gives it a parent."""

import re
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s

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
) -> pulumi.CustomResource:
    """Registers the object that `manifest` describes as the Pulumi resource `name`, a child of `parent`.

    A change of one of `replace_on_changes` plans a replacement, as does one of a field that Kubernetes holds immutable.
    """
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    immutable = [*_IMMUTABLE.get(kind, ()), *replace_on_changes]
    opts = pulumi.ResourceOptions(
        parent=parent,
        depends_on=list(depends_on),
        replace_on_changes=immutable or None,
        delete_before_replace=True if immutable else None,  # the name stays the same
        custom_timeouts=custom_timeouts,
    )
    typed = _typed_class(api_version, kind)
    if typed is not None:
        body = {_snake(key): value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
        return cast(pulumi.CustomResource, typed(name, opts=opts, **body))
    # Not the provider's CustomResource: in Python it takes metadata and spec alone, and Kueue's classes have more.
    opts.version = _provider_version()
    return pulumi.CustomResource(f"kubernetes:{api_version}:{kind}", name, dict(manifest), opts)


@cache
def _provider_version() -> str:
    """What the provider's own classes ask for; a bare resource would get whichever plugin is there."""
    return version("pulumi-kubernetes")


def _typed_class(api_version: str, kind: str) -> Any:
    """The provider's own class of a built-in kind, by its module's name; None for a custom resource."""
    group, _, version = api_version.rpartition("/")
    module = getattr(k8s, group.partition(".")[0] or "core", None)
    return getattr(getattr(module, version, None), kind, None)


def _snake(key: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: f"_{letter.group().lower()}", key)
