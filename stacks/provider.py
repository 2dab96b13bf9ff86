"""Defines the configuration of the stack's Kubernetes provider, which Pulumi reads from the stack file."""

import pulumi

# With this key, the Kubernetes provider changes a ConfigMap in place and does not replace it.
CHANGE_CONFIG_MAPS = "kubernetes:enableConfigMapMutable"
# The keys of the Kubernetes provider that select the cluster and its address.
REACHES = (
    "alwaysRender",
    "cluster",
    "clusterIdentifier",
    "context",
    "deleteUnreachable",
    "kubeClientSettings",
    "kubeconfig",
    "renderYamlToDirectory",
    "skipUpdateUnreachable",
)


def changes_config_maps() -> bool:
    """Returns True if the stack's provider changes a ConfigMap in place."""
    namespace, _, name = CHANGE_CONFIG_MAPS.partition(":")
    return pulumi.Config(namespace).get(name) == "true"


def provider() -> dict[str, pulumi.Input[str]]:
    """Returns the configuration with which the stack's provider reaches its cluster."""
    config = pulumi.Config("kubernetes")
    given = {key: config.get_secret(key) if key == "kubeconfig" else config.get(key) for key in REACHES}
    return {key: value for key, value in given.items() if value is not None}
