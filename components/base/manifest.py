"""Manifests: plain data, exactly as the API server gets it. `register` makes a Pulumi resource of a manifest."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import pulumi

from tenancy import names
from tenancy.names import labels

Manifest = dict[str, Any]

# Kubernetes refuses changes of immutable fields, but the provider would try to update such fields in place.
_IMMUTABLE: dict[str, list[str]] = {
    "PriorityClass": ["value", "preemptionPolicy"],
    "LocalQueue": ["spec.clusterQueue"],
}
_NAMESPACE = "Namespace"


def component_type(noun: str) -> str:
    """Returns the type token of a component, for instance `gputenancy:index:Capacity`."""
    return f"gputenancy:index:{noun}"


def manifest(
    api_version: str, kind: str, name: str, component: str, namespace: str | None = None, **body: object
) -> Manifest:
    """Returns an object with our labels. Without `namespace` the object is cluster-scoped."""
    metadata: Manifest = {"name": name, "labels": labels(component)}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


def namespace_labels(name: str, labels: Mapping[str, str]) -> Manifest:
    """Returns labels that the stack adds to a namespace. The stack owns no namespace (docs/adr/0034)."""
    return {"apiVersion": "v1", "kind": _NAMESPACE, "metadata": {"name": name, "labels": dict(labels)}}


def description_field(description: str) -> Manifest:
    """Returns the field `description`, or nothing for an empty description."""
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
    other_versions: Sequence[str] = (),
) -> pulumi.CustomResource:
    """Registers the object as the Pulumi resource `name` with the parent `parent`.

    A change of a field in `replace_on_changes`, or of an immutable field, replaces the object: Pulumi deletes the old
    object first. With `patch`, another program owns the object: Pulumi applies only the fields of the manifest, and
    removes these fields on destroy. A namespace is always patched, so that no step of Pulumi deletes one. The patch of
    a namespace that is not there creates it.
    `other_versions` are API versions under which an older stack registered the same object. Without `other_versions`,
    Pulumi would try to create an object that already exists, and would fail.
    """
    api_version, kind = manifest["apiVersion"], manifest["kind"]
    patch = patch or kind == _NAMESPACE
    immutable = [] if patch else [*_IMMUTABLE.get(kind, ()), *replace_on_changes]
    # An earlier program owned its namespaces. With the alias, Pulumi patches such a namespace and does not delete it.
    before = (api_version,) if kind == _NAMESPACE else other_versions
    opts = pulumi.ResourceOptions(
        parent=parent,
        depends_on=list(depends_on),
        replace_on_changes=immutable or None,
        delete_before_replace=True if immutable else None,  # the new object has the same name
        custom_timeouts=custom_timeouts,
        provider=provider,
        aliases=[pulumi.Alias(type_=_type_token(each, kind)) for each in before] or None,
    )
    opts.version = _provider_version()
    token = f"{_type_token(api_version, kind)}{'Patch' if patch else ''}"
    return pulumi.CustomResource(token, name, _marked(manifest, patch=patch), opts)


def identify_cluster(name: str, *, parent: pulumi.Resource) -> None:
    """Puts the uid of kube-system into the state, by a patch without any field. Every cluster has another uid."""
    opts = pulumi.ResourceOptions(parent=parent, version=_provider_version())
    pulumi.CustomResource(names.CLUSTER_TYPE, name, namespace_labels(names.EXEMPT_BY_NAME, {}), opts)


def _marked(manifest: Manifest, *, patch: bool) -> Manifest:
    """Returns the object with its field manager, and with an annotation that names its stack (docs/adr/0034).

    The field manager is the same in each rollout. Therefore a rollout may apply again what a killed rollout applied.
    Pulumi removes a patch by removing all fields of its manager, so no stack may create and patch the same object.
    """
    stack = names.stack_mark(pulumi.get_project(), pulumi.get_stack())
    marks = {names.FIELD_MANAGER: names.field_manager(stack), **({} if patch else {names.STACK: stack})}
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **marks}}}


def client_side_provider(
    name: str, config: Mapping[str, pulumi.Input[str]], *, parent: pulumi.Resource
) -> pulumi.ProviderResource | None:
    """Returns a provider that makes no dry run in a preview, and shows objects as declared (docs/adr/0009).

    `config` is the configuration of the stack's default provider. If `parent` has an explicit provider, returns None.
    The configuration of an explicit provider cannot be read, so a new provider might write to another cluster.
    """
    if parent.get_provider("kubernetes::") is not None:
        return None
    opts = pulumi.ResourceOptions(parent=parent, version=_provider_version())
    return pulumi.ProviderResource("kubernetes", name, {**config, "enableServerSideApply": "false"}, opts)


def _type_token(api_version: str, kind: str) -> str:
    """Returns the type token of the provider's resource. An import of the provider's Python classes would take longer
    than the rest of a preview."""
    group = api_version if "/" in api_version else f"core/{api_version}"
    return f"kubernetes:{group}:{kind}"


@cache
def _provider_version() -> str:
    """Returns the version of the installed package pulumi-kubernetes. If a resource names no version, the engine takes
    any installed plugin."""
    return version("pulumi-kubernetes")
