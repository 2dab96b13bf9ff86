"""The journal: a ConfigMap in which an agent keeps its acts across runs. The stack declares no data; only the agent
writes."""

from components.base.agent import Agent
from components.base.identity import PolicyRule
from components.base.manifest import Manifest
from tenancy import names


def journal(agent: Agent) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": agent.metadata | {"name": names.journal(agent.name)}}


def journal_rule(name: str, namespace: str) -> PolicyRule:
    """Returns the right of the agent of that name to write its journal."""
    return PolicyRule("", ("configmaps",), ("get", "patch"), resource_names=(names.journal(name),), namespace=namespace)
