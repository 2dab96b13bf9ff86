"""The guard: on nodes whose memory is oversubscribed, the kernel kills a disposable pod first."""

from dataclasses import dataclass

import pulumi

from components.base.agent import Agent, pod_template, serving
from components.base.identity import Identity, PolicyRule, events_rule
from components.base.manifest import Manifest, component_type, register
from components.base.network import ingress
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.host_memory.pool import HostMemoryPool

PORT = 9402
# SYS_RESOURCE: to go below the oom_score_adj that the runtime set. DAC_OVERRIDE: of processes of other users.
CAPABILITIES = ("SYS_RESOURCE", "DAC_OVERRIDE")


@dataclass(frozen=True, kw_only=True)
class GuardArgs:
    """`pools` are those with the guard on, at least one; `code` is in the namespace of the node agents."""

    cluster: ClusterSpec
    code: Zipapp
    pools: tuple[HostMemoryPool, ...]


def guard_agent(args: GuardArgs, pool: HostMemoryPool) -> Agent:
    """The agent on the pool's nodes, with the numbers that the pool is proven with.

    Of the API it reads which pods it protects, and tells them. No role can hold it to its own node's pods: RBAC knows
    no field selectors.
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
            "TOTAL_MIB": str(pool.totals_mib[0]),
            "VICTIM_OOM_SCORE_ADJ": str(pool.least_victim_adj),
        },
        rules=(
            PolicyRule(resources=("pods",), verbs=("list", "watch")),
            events_rule(),
        ),
        dry_run=False,
        priority_class=names.NODE_CRITICAL,
        capabilities=CAPABILITIES,
    )


def daemon_set(agent: Agent, pool: HostMemoryPool) -> Manifest:
    """The guard on every node of the pool, whatever its taints: it must be where those are whom it protects.

    Its class keeps it from being evicted, and its own oom_score_adj below everybody's. The host's process table is
    where it finds the processes; it mounts nothing of the host.
    """
    template = pod_template(
        agent,
        container=serving(PORT),
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
            "selector": {"matchLabels": {names.LABEL_NAME: names.GUARD, **own}},
            "template": {**template, "metadata": metadata},
        },
    }


def network_policy(agent: Agent) -> Manifest:
    """Prometheus alone reads what the guards of all pools serve."""
    return ingress(agent.metadata, {names.LABEL_NAME: names.GUARD}, PORT, agent.cluster.scrapers)


class Guard(pulumi.ComponentResource):
    """A DaemonSet on each pool, all under one identity."""

    daemon_sets: pulumi.Output[list[str]]

    def __init__(self, name: str, args: GuardArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Guard"), name, {"pools": [pool.name for pool in args.pools]}, opts)
        agents = [(pool, guard_agent(args, pool)) for pool in args.pools]
        _, first = agents[0]
        identity = Identity(f"{name}-identity", first.identity, pulumi.ResourceOptions(parent=self))
        reached = register(network_policy(first), f"{name}-network-policy", parent=self)
        declared = [
            register(daemon_set(agent, pool), f"{name}-{pool.name}", parent=self, depends_on=[identity, reached])
            for pool, agent in agents
        ]
        made = [names.guard(pool.name) for pool in args.pools]
        self.daemon_sets = pulumi.Output.all(*(found.urn for found in declared)).apply(lambda _: made)
        self.register_outputs({"daemonSets": self.daemon_sets})
