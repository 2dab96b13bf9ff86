import base64

from components.base.system import System, SystemArgs
from tests.support.engine import Graph, names
from tests.support.given import CLUSTER, CODE, NODE_CODE, NODES, SYSTEM, declared


def system(*, node_agents: bool) -> Graph:
    node_code = NODE_CODE if node_agents else None
    return declared(System, "system", SystemArgs(cluster=CLUSTER, code=CODE, node_code=node_code))


def test_it_declares_both_namespaces_with_its_own_code_in_each() -> None:
    graph = system(node_agents=True)
    component = graph.one("System")
    assert names(graph.children(component)) == {
        "system-namespace",
        "system-default-deny",
        "system-code",
        "system-critical-pods",
        "system-node-critical-pods",
        "system-node-default-deny",
        "system-node-namespace",
        "system-node-code",
    }
    for where, name, code in ((SYSTEM, "system-code", CODE), (NODES, "system-node-code", NODE_CODE)):
        config_map = graph.one("ConfigMap", name).inputs
        assert config_map["metadata"]["namespace"] == where
        assert base64.b64decode(config_map["binaryData"]["agents.pyz"]) == code.content
        assert config_map["immutable"] is True
        assert config_map["metadata"]["annotations"]["gpu-tenancy/sha256"] == code.digest
        assert config_map["metadata"]["name"] == f"gpu-tenancy-agents-{code.digest[:10]}"


def test_pods_are_held_to_restricted_and_only_node_agents_are_not() -> None:
    graph = system(node_agents=True)
    enforced = {
        r.inputs["metadata"]["name"]: r.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for r in graph.all("Namespace")
    }
    assert enforced == {SYSTEM: "restricted", NODES: "privileged"}


def test_without_node_agents_there_is_no_privileged_namespace() -> None:
    graph = system(node_agents=False)
    assert graph.one("Namespace").inputs["metadata"]["name"] == SYSTEM
    assert graph.one("ConfigMap").inputs["metadata"]["namespace"] == SYSTEM


def test_nothing_in_either_namespace_may_be_reached_unless_an_agent_says_so() -> None:
    policies = system(node_agents=True).all("NetworkPolicy")
    assert {policy.inputs["metadata"]["namespace"] for policy in policies} == {SYSTEM, NODES}
    for policy in policies:
        (others,) = policy.inputs["spec"]["podSelector"]["matchExpressions"]
        assert (others["key"], others["operator"]) == ("app.kubernetes.io/name", "NotIn")
        assert policy.inputs["spec"]["policyTypes"] == ["Ingress"]
        assert "ingress" not in policy.inputs["spec"]


def test_what_is_in_a_namespace_comes_after_it() -> None:
    graph = system(node_agents=True)
    namespace, nodes = graph.one("Namespace", "system-namespace"), graph.one("Namespace", "system-node-namespace")
    assert graph.depends_on(graph.one("ConfigMap", "system-code"), namespace)
    assert graph.depends_on(graph.one("NetworkPolicy", "system-default-deny"), namespace)
    assert graph.depends_on(graph.one("NetworkPolicy", "system-node-default-deny"), nodes)
    assert graph.depends_on(graph.one("ConfigMap", "system-node-code"), nodes)


def test_its_output_is_the_namespace() -> None:
    graph = system(node_agents=False)
    assert graph.outputs_of(graph.one("System")) == {"namespace": SYSTEM}


def test_pods_of_the_systems_classes_may_run_in_both_namespaces_where_a_cluster_limits_them() -> None:
    quotas = system(node_agents=True).all("ResourceQuota")
    assert {quota.inputs["metadata"]["namespace"] for quota in quotas} == {SYSTEM, NODES}
    for quota in quotas:
        (scope,) = quota.inputs["spec"]["scopeSelector"]["matchExpressions"]
        assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
        assert scope["values"] == ["system-node-critical", "system-cluster-critical"]
