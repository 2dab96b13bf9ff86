"""The ConfigMap in which an agent keeps a record across its runs: declared empty, written by the agent alone."""

from components.agent import Agent
from components.identity import Rule
from components.manifest import Manifest
from tenancy import names


def journal(agent: Agent) -> Manifest:
    """Without data: what the agent wrote is not the program's to undo."""
    name = names.journal(agent.name)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": agent.metadata | {"name": name}}


def journal_rule(name: str, namespace: str) -> Rule:
    """What the agent of that name needs to keep its journal."""
    return Rule(
        resources=("configmaps",),
        verbs=("get", "patch"),
        resource_names=(names.journal(name),),
        namespace=namespace,
    )
