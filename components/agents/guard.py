"""The guard: makes the kernel kill a disposable pod first on nodes with oversubscribed host memory."""

from dataclasses import dataclass

import pulumi

from components.base.agent import Agent, pod_template, ports_and_probes
from components.base.identity import Identity, PolicyRule, events_rule
from components.base.manifest import Manifest, component_type, register
from components.base.network import ingress
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.host_memory.pool import HostMemoryPool

PORT = 9402
# With SYS_RESOURCE the guard can lower an oom_score_adj below the runtime's value. With DAC_OVERRIDE, the guard can
# change the oom_score_adj of other users' processes.
CAPABILITIES = ("SYS_RESOURCE", "DAC_OVERRIDE")


@dataclass(frozen=True, kw_only=True)
class GuardArgs:
    """Holds the guard's arguments. `pools` has at least one memory pool."""

    cluster: ClusterSpec
    code: Zipapp
    pools: tuple[HostMemoryPool, ...]


def guard_agent(args: GuardArgs, pool: HostMemoryPool) -> Agent:
    """Returns the guard for the pool's nodes. The guard calculates with the same numbers as the policy pack's proof of
    the pool.

    RBAC has no field selectors, so the role covers all nodes and their pods.
    """
    return Agent(
        program="guard",
        name=names.GUARD,
        namespace=names.node_agent_namespace(args.cluster.system_namespace),
        cluster=args.cluster,
        code=args.code,
        environment={
            "PORT": str(PORT),
            "PROTECTED": ",".join(pool.protected),
            "ALLOCATABLE_MIB": str(pool.allocatable_mib),
            "VICTIM_REQUEST_MIB": str(pool.victim_request_mib),
        },
        rules=(
            PolicyRule("", ("pods",), ("list", "watch")),
            PolicyRule("", ("nodes",), ("get",)),
            events_rule(),
        ),
        priority_class=names.NODE_CRITICAL,
        capabilities=CAPABILITIES,
    )


def daemon_set(agent: Agent, pool: HostMemoryPool) -> Manifest:
    """Returns the DaemonSet that runs the guard on every node of the pool, and that tolerates every taint. The guard
    sees the host's processes, and mounts no path of the host.

    The guard's PriorityClass protects it from eviction and gives it the lowest oom_score_adj.
    """
    template = pod_template(
        agent,
        container=ports_and_probes(PORT),
        pod={
            "hostPID": True,
            "nodeSelector": dict(pool.node_selector),
            "tolerations": [{"operator": "Exists"}],
        },
    )
    own = {names.LABEL_HOST_MEMORY_POOL: pool.name}
    metadata = {"labels": {**template["metadata"]["labels"], **own}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {**agent.metadata, "name": names.guard(pool.name)},
        "spec": {
            "selector": {"matchLabels": {**agent.selector, **own}},
            "template": {**template, "metadata": metadata},
        },
    }


def network_policy(agent: Agent) -> Manifest:
    """Allows only Prometheus to connect to the guards of all pools."""
    return ingress(agent.metadata, agent.selector, PORT, agent.cluster.scrapers)


class Guard(pulumi.ComponentResource):
    """The guard's DaemonSets, one for each pool, with one shared ServiceAccount."""

    def __init__(self, name: str, args: GuardArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Guard"), name, {"pools": [pool.name for pool in args.pools]}, opts)
        first = guard_agent(args, args.pools[0])
        identity = Identity(f"{name}-identity", first, pulumi.ResourceOptions(parent=self))
        reached = register(network_policy(first), f"{name}-network-policy", parent=self)
        for pool in args.pools:
            declared = daemon_set(guard_agent(args, pool), pool)
            register(declared, f"{name}-{pool.name}", parent=self, depends_on=[identity, reached])
        self.register_outputs({})
