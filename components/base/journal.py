"""The journal: a ConfigMap in which an agent stores its acts for its next runs. The stack declares an empty ConfigMap,
and only the agent writes its data."""

from components.base.agent import Agent
from components.base.identity import PolicyRule
from components.base.manifest import Manifest
from tenancy import names


def journal_config_map(agent: Agent) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": agent.metadata | {"name": names.journal(agent.name)}}


def journal_rule(name: str, namespace: str) -> PolicyRule:
    """Returns the right of an agent to read and write its own journal."""
    return PolicyRule("", ("configmaps",), ("get", "patch"), resource_names=(names.journal(name),), namespace=namespace)
