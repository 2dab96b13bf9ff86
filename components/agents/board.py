"""The board: a read-only web page about GPU memory, for the operator's own ingress."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pulumi
from pydantic import Field

from components.agents.exporter import telemetry_rules
from components.base.agent import Agent, flag, pod_template, probes
from components.base.identity import Identity, PolicyRule
from components.base.manifest import Manifest, component_type, register
from components.base.network import ingress, peer
from components.base.spec import DnsLabel, Labels, Spec
from components.base.system import ClusterSpec, code_config_map
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.frameworks import FRAMEWORKS, FrameworkName

_PORT, _PORT_NAME = 9403, "board"


class IngressSpec(Spec):
    """The pods of the ingress controller or the proxy that serves the board to people."""

    namespace: DnsLabel = Field(description="Namespace of the ingress controller.", examples=["ingress-nginx"])
    pod_labels: Labels = Field(
        min_length=1,
        description="Labels of the ingress controller's pods.",
        examples=[{"app.kubernetes.io/name": "ingress-nginx"}],
    )


class BoardSpec(Spec):
    """A read-only web page about GPU memory. The ingress decides which people may open the page."""

    ingress: IngressSpec = Field(description="The pods that may connect to the board. All other pods may not.")
    show_pods: bool = Field(
        default=False,
        description="false: the page has sums without the names of pods and of waiting work. true: every reader of "
        "the page sees the pods of all tenants.",
    )


@dataclass(frozen=True, kw_only=True)
class BoardArgs:
    """Holds the arguments. `frameworks` are the kinds of work that Kueue queues."""

    spec: BoardSpec
    cluster: ClusterSpec
    code: Zipapp
    frameworks: Sequence[FrameworkName] = ()


def board_agent(args: BoardArgs) -> Agent:
    """Returns the board. The board has more memory than other agents, because it reads whole pods. Only people read
    the board, so it has the default priority.
    """
    return Agent(
        program="board",
        name=names.BOARD,
        namespace=args.cluster.system_namespace,
        cluster=args.cluster,
        code=args.code,
        environment={"PORT": str(_PORT), "SHOW_PODS": flag(args.spec.show_pods)},
        rules=tuple(_rules(args)),
        memory_mib=512,
        priority_class=None,
    )


def _rules(args: BoardArgs) -> Iterator[PolicyRule]:
    system = args.cluster.system_namespace
    yield from telemetry_rules(system)
    journals = tuple(map(names.journal, (names.WATCHDOG, names.GATE)))
    yield PolicyRule("", ("configmaps",), ("get",), resource_names=journals, namespace=system)
    yield PolicyRule("batch", ("cronjobs",), ("get", "list"), namespace=system)
    yield PolicyRule("apps", ("daemonsets",), ("list",), namespace=names.node_agent_namespace(system))
    yield PolicyRule("", ("pods", "events"), ("list",))
    yield PolicyRule("apps", ("deployments",), ("get", "list"))
    yield PolicyRule("apps", ("replicasets",), ("list",))
    yield PolicyRule(names.RESOURCE_GROUP, ("resourceslices",), ("list",))
    if args.frameworks:
        yield PolicyRule(names.KUEUE_GROUP, ("clusterqueues", "workloads"), ("list",))
    for framework in (FRAMEWORKS[name] for name in sorted(args.frameworks) if name is not FrameworkName.POD):
        yield PolicyRule(framework.group, (framework.resource,), ("get",))


def deployment(args: BoardArgs) -> Manifest:
    agent = board_agent(args)
    container = {
        "ports": [{"name": _PORT_NAME, "containerPort": _PORT}],
        **probes("/healthz", "/healthz", _PORT_NAME),
    }
    template = pod_template(agent, container=container)
    return agent.declare(
        "apps/v1", "Deployment", spec={"replicas": 1, "selector": {"matchLabels": agent.selector}, "template": template}
    )


def service(args: BoardArgs) -> Manifest:
    """Returns the Service that an Ingress can name."""
    agent = board_agent(args)
    ports = [{"name": "http", "port": 80, "targetPort": _PORT_NAME}]
    return agent.declare("v1", "Service", spec={"selector": agent.selector, "ports": ports})


def network_policy(args: BoardArgs) -> Manifest:
    """Allows only the ingress controller to connect to the board."""
    agent, source = board_agent(args), args.spec.ingress
    return ingress(agent.metadata, agent.selector, _PORT, [peer(source.namespace, {"matchLabels": source.pod_labels})])


class Board(pulumi.ComponentResource):
    """The board's Deployment, with its code, its account and its Service."""

    def __init__(self, name: str, args: BoardArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Board"), name, args.spec.model_dump(), opts)
        needed = [
            Identity(f"{name}-identity", board_agent(args), pulumi.ResourceOptions(parent=self)),
            *(
                register(code_config_map(code, args.cluster.system_namespace), f"{name}-code", parent=self)
                for code in args.cluster.shipped(args.code)
            ),
            register(network_policy(args), f"{name}-network-policy", parent=self),
        ]
        register(service(args), f"{name}-service", parent=self)
        register(deployment(args), f"{name}-deployment", parent=self, depends_on=needed)
        self.register_outputs({})
