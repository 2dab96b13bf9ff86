import base64

from components.base.system import System, SystemArgs
from tests.support.engine import Graph
from tests.support.given import CLUSTER, CODE, NODE_CODE, NODES, SYSTEM, declared


def system(*, node_agents: bool) -> Graph:
    node_code = NODE_CODE if node_agents else None
    return declared(System, "system", SystemArgs(cluster=CLUSTER, code=CODE, node_code=node_code))


def test_each_namespace_has_its_own_code() -> None:
    graph = system(node_agents=True)
    for where, name, code in ((SYSTEM, "system-code", CODE), (NODES, "system-node-code", NODE_CODE)):
        config_map = graph.one("ConfigMap", name).inputs
        assert config_map["metadata"]["namespace"] == where
        assert base64.b64decode(config_map["binaryData"]["agents.pyz"]) == code.content


def test_what_is_in_a_namespace_comes_after_it() -> None:
    graph = system(node_agents=True)
    for prefix in ("system", "system-node"):
        namespace = graph.one("NamespacePatch", f"{prefix}-namespace")
        assert graph.depends_on(graph.one("ConfigMap", f"{prefix}-code"), namespace)
        assert graph.depends_on(graph.one("NetworkPolicy", f"{prefix}-default-deny"), namespace)
