"""Placement by device: runs a second kube-scheduler, with our extender in the same pod (docs/adr/0014)."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import pulumi
from pydantic import Field

from components.agents.exporter import ledger_rule, telemetry_environment
from components.base.agent import METRICS_PORT, Agent, Volume, hardened, pod_template, probes
from components.base.identity import Identity, PolicyRule, RoleRef, events_rule
from components.base.manifest import Manifest, component_type, register
from components.base.network import ingress
from components.base.spec import ImageReference, Spec
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.devices.allocate import Scoring
from tenancy.ledger import Ledger
from tenancy.seconds import EXTENDER_TIMEOUT_SECONDS

# The extender listens on the pod's loopback address, so that only the kube-scheduler in the same pod can connect.
_VERBS_PORT = 9443
_HEALTH_PORT = 10259  # The port on which the kubelet probes kube-scheduler
_METRICS_PORT = 9402
# One of the two scheduler pods is the leader and places pods. If the leader fails, the other scheduler pod takes over
# within 20 s.
_REPLICAS = 2
# The longest time for which the extender delays a seat's pod while other pods use its memory. During the delay of a
# pod, the demand gate stops on-demand workloads, and the watchdog recycles pods.
_HOLD_SECONDS = 60
_CONFIG_KEY = "kube-scheduler.json"


class SchedulerSpec(Spec):
    """Placement of pods with gpumem. Our scheduler extender chooses the device of a pod, and counts the memory of each
    device.
    """

    image: ImageReference = Field(
        default="registry.k8s.io/kube-scheduler:v1.36.3",
        description="Image of kube-scheduler, in the minor version of the cluster.",
        examples=["registry.k8s.io/kube-scheduler:v1.36.3"],
    )
    scoring: Scoring = Field(
        default=Scoring.BEST_FIT,
        description="With best_fit, the extender prefers the device with the least free memory. With fragmentation, "
        "the extender prefers the device on which the least memory becomes too small for other pods. "
        "fragmentation needs more time for a choice than best_fit.",
    )


@dataclass(frozen=True, kw_only=True)
class SchedulerArgs:
    spec: SchedulerSpec
    cluster: ClusterSpec
    code: Zipapp
    ledger: Ledger


def scheduler_agent(args: SchedulerArgs) -> Agent:
    """Returns the extender. The account also has kube-scheduler's built-in roles, because kube-scheduler in the same
    pod uses this account.
    """
    spec, namespace = args.spec, args.cluster.system_namespace
    return Agent(
        program="extender",
        name=names.SCHEDULER,
        namespace=namespace,
        cluster=args.cluster,
        code=args.code,
        environment={
            "VERBS_PORT": str(_VERBS_PORT),
            "HTTP_PORT": str(_METRICS_PORT),
            "LEASE": f"{namespace}/{names.SCHEDULER}",
            "SCORING": spec.scoring,
            "HOLD_SECONDS": str(_HOLD_SECONDS),
            **telemetry_environment(namespace),
        },
        rules=(
            ledger_rule(namespace),
            PolicyRule("", ("nodes",), ("list", "watch")),
            PolicyRule("", ("pods",), ("list", "watch")),
            PolicyRule("", ("pods/binding",), ("create",)),
            events_rule(),
            PolicyRule(names.RESOURCE_GROUP, ("resourceslices",), ("list", "watch")),
            PolicyRule(
                names.RESOURCE_GROUP,
                ("resourceclaims",),
                ("patch",),
                resource_names=(names.SCHEDULER,),
                namespace=namespace,
            ),
            PolicyRule(
                "coordination.k8s.io",
                ("leases",),
                ("get", "list", "watch", "update"),
                resource_names=(names.SCHEDULER,),
                namespace=namespace,
            ),
        ),
        roles=(
            *(RoleRef(name) for name in names.KUBE_SCHEDULER_ROLES),
            RoleRef(names.AUTHENTICATION_READER, "kube-system"),
        ),
        memory_mib=256,
    )


def retry_claim(args: SchedulerArgs) -> Manifest:
    """Returns an empty ResourceClaim. The extender annotates the empty ResourceClaim when a waiting pod would fit.

    kube-scheduler retries all waiting pods after any event on a ResourceClaim.
    """
    return scheduler_agent(args).declare(names.RESOURCE_API, "ResourceClaim", spec={})


def configuration(args: SchedulerArgs) -> dict[str, Any]:
    """Returns the configuration of kube-scheduler: one profile, one extender, leadership by a Lease.

    Source: https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/

    kube-scheduler also counts the gpumem of each node (ignoredByScheduler: false), so that its cache of assumed pods
    stays correct. The extender gets every feasible node (percentageOfNodesToScore), because a subset might miss the
    best device. The extender's filter leaves one node, so kube-scheduler scores no nodes.
    """
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceLock": "leases",
            "resourceNamespace": args.cluster.system_namespace,
            "resourceName": names.SCHEDULER,
        },
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": names.SCHEDULER_NAME}],
        "extenders": [
            {
                "urlPrefix": f"http://127.0.0.1:{_VERBS_PORT}",
                "filterVerb": "filter",
                "preemptVerb": "preempt",
                "bindVerb": "bind",
                "httpTimeout": f"{EXTENDER_TIMEOUT_SECONDS}s",
                "nodeCacheCapable": True,
                "managedResources": [{"name": args.ledger.names.gpumem, "ignoredByScheduler": False}],
                "ignorable": False,
            }
        ],
    }


def config_map(args: SchedulerArgs) -> Manifest:
    """Returns the configuration as an immutable ConfigMap. The name of this ConfigMap contains a hash of the content,
    so that a change starts a rollout."""
    content = json.dumps(configuration(args), indent=2)
    digest = hashlib.sha256(content.encode()).hexdigest()[:10]
    metadata = scheduler_agent(args).metadata
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, "name": f"{names.SCHEDULER}-{digest}"},
        "data": {_CONFIG_KEY: content},
        "immutable": True,
    }


def deployment(args: SchedulerArgs) -> Manifest:
    """Returns the Deployment with kube-scheduler and the extender in one pod, so that one pod is the leader for the two
    programs."""
    agent, spec = scheduler_agent(args), args.spec
    config = Volume(
        name="config", path="/etc/kube-scheduler", source={"configMap": {"name": config_map(args)["metadata"]["name"]}}
    )
    term = {"labelSelector": {"matchLabels": agent.selector}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"weight": 100, "podAffinityTerm": term}
    template = pod_template(
        agent,
        container={
            "ports": [{"name": METRICS_PORT, "containerPort": _METRICS_PORT}],
            **probes("/healthz", "/readyz", scheme="HTTP"),
        },
        pod={
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
        },
        beside=[_kube_scheduler(spec.image, config)],
        volumes=[config],
    )
    rollout = {
        "replicas": _REPLICAS,
        "selector": {"matchLabels": agent.selector},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": template,
    }
    return agent.declare("apps/v1", "Deployment", spec=rollout)


def _kube_scheduler(image: str, config: Volume) -> Manifest:
    return hardened(
        {
            "name": names.KUBE_SCHEDULER,
            "image": image,
            "command": [
                names.KUBE_SCHEDULER,
                f"--config={config.path}/{_CONFIG_KEY}",
                f"--secure-port={_HEALTH_PORT}",
            ],
            "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
            "volumeMounts": [config.mount()],
            **probes("/livez", "/readyz", _HEALTH_PORT, scheme="HTTPS"),
        }
    )


def disruption_budget(args: SchedulerArgs) -> Manifest:
    """Allows the eviction of one scheduler pod at a time. If a drain evicts the leading pod, the other scheduler pod
    takes over."""
    agent = scheduler_agent(args)
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": agent.selector}}
    return agent.declare("policy/v1", "PodDisruptionBudget", spec=spec)


def network_policy(args: SchedulerArgs) -> Manifest:
    """Allows only Prometheus to connect to the metrics port."""
    agent = scheduler_agent(args)
    return ingress(agent.metadata, agent.selector, _METRICS_PORT, args.cluster.scrapers)


class Scheduler(pulumi.ComponentResource):
    """The scheduler's Deployment. Every component that needs gpumem depends on the scheduler's output."""

    scheduler_name: pulumi.Output[str]

    def __init__(self, name: str, args: SchedulerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Scheduler"), name, args.spec.model_dump(mode="json"), opts)
        identity = Identity(f"{name}-identity", scheduler_agent(args), pulumi.ResourceOptions(parent=self))
        config = register(config_map(args), f"{name}-config", parent=self)
        register(network_policy(args), f"{name}-network-policy", parent=self)
        register(disruption_budget(args), f"{name}-disruption-budget", parent=self)
        needed = [identity, config, register(retry_claim(args), f"{name}-retry-claim", parent=self)]
        declared = register(deployment(args), f"{name}-deployment", parent=self, depends_on=needed)
        self.scheduler_name = declared.urn.apply(lambda _: names.SCHEDULER_NAME)
        self.register_outputs({"schedulerName": self.scheduler_name})
