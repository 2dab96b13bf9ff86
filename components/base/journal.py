"""The ConfigMap in which an agent keeps a record across its runs: declared empty, written by the agent alone."""

from components.base.agent import Agent
from components.base.identity import PolicyRule
from components.base.manifest import Manifest
from tenancy import names


def journal(agent: Agent) -> Manifest:
    """Without data: what the agent wrote is not the program's to undo."""
    name = names.journal(agent.name)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": agent.metadata | {"name": name}}


def journal_rule(name: str, namespace: str) -> PolicyRule:
    """What the agent of that name needs to keep its journal."""
    return PolicyRule(
        resources=("configmaps",),
        verbs=("get", "patch"),
        resource_names=(names.journal(name),),
        namespace=namespace,
    )
