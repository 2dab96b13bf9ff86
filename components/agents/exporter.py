"""The exporter: measures the GPU memory of each pod on each node. The exporter also publishes the node's devices for
the scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from components.admission import resourceslice
from components.admission.policy import put_into_force
from components.base.agent import Agent, Volume, flag, pod_template, ports_and_probes
from components.base.identity import Identity, PolicyRule
from components.base.manifest import Manifest, component_type, register
from components.base.network import ingress, peer
from components.base.spec import Spec
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.ledger import Ledger

_PUBLISHING = PolicyRule(names.RESOURCE_GROUP, ("resourceslices",), ("list", "watch", "create", "patch"))
# NVIDIA's GPU operator sets these labels and values on a node while it replaces the driver or changes MIG partitions.
# While a label has one of these values, programs that use the driver must end, so that the GPU operator can unload the
# kernel module. Since version 26.7, the GPU operator sets the first of the two labels for programs such as our
# exporter. Older versions of the GPU operator set only the second label, which is meant for the device plugin. Sources:
# cmd/driver-manager/main.go of k8s-driver-manager (maybeSetPaused), mig-manager's paused-for-mig-change.
_OPERATOR_LABELS = ("nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.device-plugin")
_PAUSED = ("paused-for-driver-upgrade", "paused-for-mig-change")
# Mounts the node's control groups at the path that NVML uses. Without a mount of the node's control groups, a container
# sees only its own control group.
_GROUPS = Volume(name="cgroups", path=names.CGROUPS, source={"hostPath": {"path": names.CGROUPS, "type": "Directory"}})
# The time between two readings. The other agents ignore a reading that is older than 30 s.
_INTERVAL_SECONDS = 5


class ExporterSpec(Spec):
    """The node agent that measures the GPU memory of each pod."""


@dataclass(frozen=True, kw_only=True)
class ExporterArgs:
    """Holds the exporter's arguments. `code` includes NVML's bindings. With `publish_devices`, the exporter of each
    node publishes the node's devices as a ResourceSlice."""

    cluster: ClusterSpec
    code: Zipapp
    ledger: Ledger
    publish_devices: bool = False


def exporter_agent(args: ExporterArgs) -> Agent:
    """Returns the agent that measures a node's devices, and that reads pods and promises from the API.

    RBAC has no field selectors, so the role covers the pods of all nodes. resourceslice.py limits the ResourceSlices
    that the exporter may write.
    """
    return Agent(
        program="exporter",
        name=names.EXPORTER,
        namespace=names.node_agent_namespace(args.cluster.system_namespace),
        cluster=args.cluster,
        code=args.code,
        environment={
            "PORT": str(names.EXPORTER_PORT),
            "INTERVAL_SECONDS": str(_INTERVAL_SECONDS),
            names.VISIBLE_DEVICES: "all",
            names.DRIVER_CAPABILITIES: "utility",  # The exporter needs NVML only, and no CUDA library.
            "PUBLISH_DEVICES": flag(args.publish_devices),
        },
        rules=(
            PolicyRule(
                "",
                ("configmaps",),
                ("list", "watch"),
                resource_names=(names.LEDGER, names.journal(names.WATCHDOG)),
                namespace=args.cluster.system_namespace,
            ),
            PolicyRule("", ("pods", "nodes"), ("list", "watch")),
            *((_PUBLISHING,) if args.publish_devices else ()),
        ),
        priority_class=names.NODE_CRITICAL,
    )


def telemetry_environment(system_namespace: str) -> dict[str, str]:
    """Returns the environment variables with which an agent finds the exporters."""
    return {
        "EXPORTER_NAMESPACE": names.node_agent_namespace(system_namespace),
        "EXPORTER_PORT": str(names.EXPORTER_PORT),
    }


def ledger_rule(system_namespace: str) -> PolicyRule:
    """Returns the right to read the ledger."""
    return PolicyRule("", ("configmaps",), ("get",), resource_names=(names.LEDGER,), namespace=system_namespace)


def telemetry_rules(system_namespace: str) -> tuple[PolicyRule, ...]:
    """Returns the rights to read the ledger, the nodes and the exporters' pods."""
    nodes = names.node_agent_namespace(system_namespace)
    return (
        ledger_rule(system_namespace),
        PolicyRule("", ("pods",), ("list",), namespace=nodes),
        PolicyRule("", ("nodes",), ("list",)),
    )


def daemon_set(agent: Agent, node_selectors: list[Mapping[str, str]], *, reads_caps: bool = False) -> Manifest:
    """Returns the DaemonSet that runs the exporter on every node that at least one node selector matches. No exporter
    runs on a node while NVIDIA's GPU operator replaces the driver of the node.

    The exporter asks for no nvidia.com/gpu, so that it also runs when all devices are in use. The exporter sees the
    devices through the runtime class. The exporter's pods run in the host's PID
    namespace, because NVML reports the process IDs of this namespace. With `reads_caps`, the exporter's container can
    read the node's control groups. NVML reports the cap of a control group.
    """
    template = pod_template(
        agent,
        container=ports_and_probes(names.EXPORTER_PORT),
        pod={
            "hostPID": True,
            "runtimeClassName": names.GPU_RUNTIME_CLASS,
            "tolerations": [{"key": names.GPU_TAINT, "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _any_of(node_selectors)}},
        },
        volumes=(_GROUPS,) if reads_caps else (),
    )
    return agent.declare(
        "apps/v1", "DaemonSet", spec={"selector": {"matchLabels": agent.selector}, "template": template}
    )


def network_policy(args: ExporterArgs) -> Manifest:
    """Allows Prometheus, the watchdog, the gate, the extender and the board to connect to the exporter."""
    agent = exporter_agent(args)
    ours_by_name = [names.WATCHDOG, names.GATE, names.SCHEDULER, names.BOARD]
    readers = {"key": names.LABEL_NAME, "operator": "In", "values": ours_by_name}
    ours = peer(args.cluster.system_namespace, {"matchExpressions": [readers]})
    return ingress(agent.metadata, agent.selector, names.EXPORTER_PORT, [ours, *args.cluster.scrapers])


def _any_of(node_selectors: list[Mapping[str, str]]) -> Manifest:
    """Returns the node selector terms of a node affinity, one term for each pool. The operator NotIn also matches a
    node without the label, such as a node without NVIDIA's GPU operator."""
    not_paused = [{"key": key, "operator": "NotIn", "values": list(_PAUSED)} for key in _OPERATOR_LABELS]
    terms = [
        {
            "matchExpressions": [
                *({"key": key, "operator": "In", "values": [value]} for key, value in sorted(labels.items())),
                *not_paused,
            ]
        }
        for labels in node_selectors
    ]
    return {"nodeSelectorTerms": terms}


class Exporter(pulumi.ComponentResource):
    """The exporter's DaemonSet. The exporter has no Service, because a Service would choose the exporter of any node.
    Each client connects to the exporter's pod on the node that it asks about."""

    def __init__(self, name: str, args: ExporterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        pools = args.ledger.shared_pools
        super().__init__(component_type("Exporter"), name, {"pools": [pool.name for pool in pools]}, opts)
        agent = exporter_agent(args)
        before: list[pulumi.Resource] = []
        if args.publish_devices:
            policy = resourceslice.exporter_writes(args.ledger.names, agent.namespace)
            before.append(put_into_force(policy, f"{name}-writes", parent=self))
        before.append(register(network_policy(args), f"{name}-network-policy", parent=self))
        before.append(Identity(f"{name}-identity", agent, pulumi.ResourceOptions(parent=self)))
        register(
            daemon_set(
                agent,
                [pool.node_selector for pool in pools],
                reads_caps=any(pool.caps for pool in pools),
            ),
            f"{name}-daemon-set",
            parent=self,
            depends_on=before,
        )
        self.register_outputs({})
