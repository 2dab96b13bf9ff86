"""Which nodes a pool chooses."""

from collections.abc import Mapping


def matches(node_selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node with these labels has every label of the selector, as a pod's nodeSelector is read."""
    return all(labels.get(key) == value for key, value in node_selector.items())
