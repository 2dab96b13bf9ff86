"""The exporter: GPU memory, measured on each node, and the node's devices for those that place by device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pulumi
from pydantic import Field

from components.admission import resourceslice
from components.admission.policy import binding
from components.base.agent import Agent, Volume, flag, pod_template, serving
from components.base.identity import Identity, PolicyRule
from components.base.manifest import Manifest, component_type, register
from components.base.network import ingress, peer
from components.base.spec import Seconds, Spec
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.ledger import Ledger

_PUBLISHING = PolicyRule(
    api_groups=(names.RESOURCE_API.partition("/")[0],),
    resources=("resourceslices",),
    verbs=("list", "watch", "create", "patch"),
)
# Labels by which NVIDIA's GPU operator holds clients of the driver off a node, and what they say while it replaces the
# driver or divides its devices: its own pods go by them, so that the kernel's module can be unloaded. The first is for
# clients such as ours (from operator 26.7 on), the second is the device plugin's, which older ones set too. Sources:
# cmd/driver-manager/main.go of k8s-driver-manager (maybeSetPaused), mig-manager's paused-for-mig-change.
_OPERATOR_LABELS = ("nvidia.com/gpu.deploy.client", "nvidia.com/gpu.deploy.device-plugin")
_PAUSED = ("paused-for-driver-upgrade", "paused-for-mig-change")


# The node's own, over the one that a container has of itself alone. The path is the one that NVML knows.
_GROUPS = Volume(name="cgroups", path=names.CGROUPS, source={"hostPath": {"path": names.CGROUPS, "type": "Directory"}})
_CLAIM = "devices"
_BY_CLAIM = {"resourceClaims": [{"name": _CLAIM, "resourceClaimTemplateName": names.EXPORTER_CLAIM}]}


class ExporterSpec(Spec):
    """The node agent that measures GPU memory by pod."""

    port: Annotated[int, Field(ge=1024, le=65535)] = 9401
    interval_seconds: Seconds = Field(
        default=5, le=15, description="Between two readings; those who act believe none that is older than 30 s."
    )


@dataclass(frozen=True, kw_only=True)
class ExporterArgs:
    """`code` carries NVML's bindings; `ledger` says which nodes are measured: those of the pools that share memory.
    `publish_devices`: each node's devices are published as its ResourceSlice."""

    spec: ExporterSpec
    cluster: ClusterSpec
    code: Zipapp
    ledger: Ledger
    publish_devices: bool = False


def exporter_agent(args: ExporterArgs) -> Agent:
    """The agent that reads the node's devices; of the API it reads whose the processes are, and what was promised.

    No role can hold it to its own node and that node's pods: RBAC knows no field selectors. What it may publish,
    device_slices.py limits.
    """
    return Agent(
        program="exporter",
        name=names.EXPORTER,
        namespace=names.node_agent_namespace(args.cluster.system_namespace),
        cluster=args.cluster,
        code=args.code,
        environment={
            "PORT": str(args.spec.port),
            "INTERVAL_SECONDS": str(args.spec.interval_seconds),
            names.VISIBLE_DEVICES: "all",
            names.DRIVER_CAPABILITIES: "utility",  # NVML and nothing that computes
            "PUBLISH_DEVICES": flag(args.publish_devices),
        },
        rules=(
            PolicyRule(
                resources=("configmaps",),
                verbs=("list", "watch"),
                resource_names=(names.LEDGER, names.journal(names.WATCHDOG)),
                namespace=args.cluster.system_namespace,
            ),
            PolicyRule(resources=("pods", "nodes"), verbs=("list", "watch")),
            *((_PUBLISHING,) if args.publish_devices else ()),
        ),
        dry_run=False,
        priority_class=names.NODE_CRITICAL,
    )


def telemetry_environment(system_namespace: str, exporter: ExporterSpec) -> dict[str, str]:
    """Where an agent finds the exporters."""
    return {
        "EXPORTER_NAMESPACE": names.node_agent_namespace(system_namespace),
        "EXPORTER_PORT": str(exporter.port),
    }


def ledger_rule(system_namespace: str) -> PolicyRule:
    """What an agent needs to read the ledger."""
    return PolicyRule(
        resources=("configmaps",), verbs=("get",), resource_names=(names.LEDGER,), namespace=system_namespace
    )


def telemetry_rules(system_namespace: str) -> tuple[PolicyRule, ...]:
    """What an agent must read to know which device is whose: the ledger, the nodes, the exporters' pods."""
    nodes = names.node_agent_namespace(system_namespace)
    return (
        ledger_rule(system_namespace),
        PolicyRule(resources=("pods",), verbs=("list",), namespace=nodes),
        PolicyRule(resources=("nodes",), verbs=("list",)),
    )


def device_claim(namespace: str) -> Manifest:
    """All devices of the node, taking nothing of them, ailing ones as well: as NVIDIA's operator has its own exporter
    see them (manifests/state-dcgm-exporter), where it brings no runtime class."""
    request = {
        "name": _CLAIM,
        "exactly": {
            "deviceClassName": names.NVIDIA_DEVICE_CLASS,
            "allocationMode": "All",
            "adminAccess": True,
            "tolerations": [{"operator": "Exists"}],
        },
    }
    return {
        "apiVersion": names.RESOURCE_API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": names.EXPORTER_CLAIM, "namespace": namespace, "labels": names.labels(names.EXPORTER)},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }


def daemon_set(
    agent: Agent,
    port: int,
    node_selectors: list[Mapping[str, str]],
    *,
    reads_caps: bool = False,
    claims_devices: bool = False,
) -> Manifest:
    """The exporter on every node that one of the selectors matches.

    It asks for no nvidia.com/gpu: it must run when all are taken, and sees the devices through the runtime class, or
    by a claim (`claims_devices`). The host's process table is where NVML's process ids mean something. While NVIDIA's
    operator replaces the driver it goes: an open NVML holds the kernel's module. `reads_caps`: NVML is asked by control
    group what the driver holds containers to, and opens the directory.
    """
    template = pod_template(
        agent,
        container=serving(port),
        pod={
            "hostPID": True,
            **(_BY_CLAIM if claims_devices else {"runtimeClassName": names.GPU_RUNTIME_CLASS}),
            "tolerations": [{"key": names.GPU_TAINT, "operator": "Exists"}],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _any_of(node_selectors)}},
        },
        volumes=(_GROUPS,) if reads_caps else (),
    )
    if claims_devices:
        template["spec"]["containers"][0]["resources"]["claims"] = [{"name": _CLAIM}]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": agent.metadata,
        "spec": {"selector": {"matchLabels": selector()}, "template": template},
    }


def selector() -> dict[str, str]:
    """The labels that choose the exporter's pods within their namespace."""
    return {names.LABEL_NAME: names.EXPORTER}


def network_policy(args: ExporterArgs) -> Manifest:
    """Who acts on the measurements reads them, and Prometheus."""
    readers = {"key": names.LABEL_NAME, "operator": "In", "values": [names.WATCHDOG, names.GATE, names.SCHEDULER]}
    ours = peer(args.cluster.system_namespace, {"matchExpressions": [readers]})
    return ingress(exporter_agent(args).metadata, selector(), args.spec.port, [ours, *args.cluster.scrapers])


def _any_of(node_selectors: list[Mapping[str, str]]) -> Manifest:
    """NotIn matches a node without the label, too: there is no operator."""
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
    """The exporter's DaemonSet. It has no Service: one address before several nodes would answer for any of them, so
    the watchdog, the gate and Prometheus go to the pods."""

    daemon_set: pulumi.Output[str]

    def __init__(self, name: str, args: ExporterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        pools = args.ledger.shared_pools
        super().__init__(component_type("Exporter"), name, {"pools": [pool.name for pool in pools]}, opts)
        agent = exporter_agent(args)
        before: list[pulumi.Resource] = []
        if args.publish_devices:
            policy = resourceslice.exporter_writes(args.ledger.names, agent.namespace)
            guard = register(policy, f"{name}-writes", parent=self)
            before.append(register(binding(policy), f"{name}-writes-binding", parent=self, depends_on=[guard]))
        before.append(register(network_policy(args), f"{name}-network-policy", parent=self))
        before.append(Identity(f"{name}-identity", agent.identity, pulumi.ResourceOptions(parent=self)))
        claims_devices = args.ledger.claimed is not None
        if claims_devices:
            template = device_claim(agent.namespace)
            before.append(register(template, f"{name}-claim", parent=self, replace_on_changes=["spec"]))
        declared = register(
            daemon_set(
                agent,
                args.spec.port,
                [pool.node_selector for pool in pools],
                reads_caps=any(pool.caps for pool in pools),
                claims_devices=claims_devices,
            ),
            f"{name}-daemon-set",
            parent=self,
            depends_on=before,
        )
        self.daemon_set = declared.urn.apply(lambda _: agent.name)
        self.register_outputs({"daemonSet": self.daemon_set})
