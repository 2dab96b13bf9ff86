"""The ConfigMap in which an agent keeps its acts across runs: declared without data, written by the agent alone."""

from components.base.agent import Agent
from components.base.identity import PolicyRule
from components.base.manifest import Manifest
from tenancy import names


def journal(agent: Agent) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": agent.metadata | {"name": names.journal(agent.name)}}


def journal_rule(name: str, namespace: str) -> PolicyRule:
    """The right of the agent of that name to keep its journal."""
    return PolicyRule("", ("configmaps",), ("get", "patch"), resource_names=(names.journal(name),), namespace=namespace)
