"""Placement by device: a kube-scheduler of its own, with our extender next to it in the same pod (docs/adr/0014)."""

import hashlib
import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Self

import pulumi
from pydantic import Field, field_validator, model_validator

from components.admission.device import ByDevice
from components.agents.exporter import ExporterSpec, ledger_rule, telemetry_environment
from components.base.agent import METRICS_PORT, Agent, Volume, agent_container, hardened, pod_template
from components.base.identity import Identity, PolicyRule, RoleRef, events_rule
from components.base.manifest import Manifest, component_type, register
from components.base.network import ingress
from components.base.spec import ImageReference, Spec
from components.base.system import ClusterSpec
from components.base.zipapp import Zipapp
from tenancy import names
from tenancy.devices.allocate import Scoring
from tenancy.ledger import ClaimedDevices, Ledger, PlacementMode
from tenancy.names import NVIDIA_DEVICE_DRIVER

_RESOURCES = names.RESOURCE_API.partition("/")[0]
# On the pod's loopback: nobody but the kube-scheduler next to it reaches the extender's verbs.
_VERBS_PORT = 9443
# kube-scheduler's own, for the kubelet's probes.
_HEALTH_PORT = 10259
_TAKEN_PORTS = {_VERBS_PORT: "the extender's own", _HEALTH_PORT: "kube-scheduler's own"}
_CONFIG_KEY = "kube-scheduler.json"
_CERTIFICATES = Volume(
    name="certificates", path="/run/certificates", source={"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
)


class ClaimDriver(StrEnum):
    """Whose devices seats are claims on."""

    GPUMEM = "gpumem"
    NVIDIA = NVIDIA_DEVICE_DRIVER


class ConsumableShares(StrEnum):
    """What NVIDIA's DRA driver was started with (--consumable-shares). With `unlimited`, or a number of shares, a claim
    that names no memory takes none, and so nothing would be kept for seats."""

    DISABLED = "disabled"
    MEMORY = "memory"


class SchedulerSpec(Spec):
    """A scheduler of its own for the pods with gpumem, which places each on one device of a node; or the cluster's own,
    by claims on devices."""

    placement: PlacementMode = Field(
        description="extender: our scheduler extender chooses the device and counts. dra: seats become claims on "
        "devices, and Kubernetes' own allocator counts; no container starts by one without the driver's kubelet plugin."
    )
    driver: ClaimDriver = Field(
        default=ClaimDriver.GPUMEM,
        description="With placement dra, whose devices seats are claims on. gpumem: those that the exporter publishes, "
        "for which there is no kubelet plugin. gpu.nvidia.com: those of NVIDIA's DRA driver, which has one.",
    )
    consumable_shares: ConsumableShares = Field(
        default=ConsumableShares.DISABLED,
        description="With driver gpu.nvidia.com, what that driver was started with. disabled, its default: a seat "
        "takes a whole device. memory (its feature gate ConsumableShares, alpha): seats share devices by MiB.",
    )
    image: ImageReference = Field(
        default="registry.k8s.io/kube-scheduler:v1.36.3", description="kube-scheduler of the cluster's minor version."
    )
    replicas: Annotated[int, Field(ge=1, le=5)] = Field(
        default=2, description="One places pods; the others take over within 20 s."
    )
    scoring: Scoring = Field(
        default=Scoring.BEST_FIT,
        description="best_fit: the device, and the node, where the least memory stays free. fragmentation: where the "
        "least becomes useless to pods like those that run now; it takes longer.",
    )
    measured: bool = Field(
        default=True,
        description="Prefer devices whose measured free memory less the pool's floor is enough, and give no other to a "
        "pod without a seat. A pod within its seat is placed whenever the ledger has room.",
    )
    hold_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        default=60,
        description="How long a pod within its seat is held back at most where the ledger has room and memory in use "
        "keeps it from loading, so that gates close and the watchdog recycles first. 0: not at all.",
    )
    port: Annotated[int, Field(ge=1024, le=65535)] = Field(
        default=9402, description="Of /metrics, and within the pod of /inspect; 9443 and 10259 are taken in its pods."
    )

    @field_validator("port")
    @classmethod
    def _is_free_in_its_pods(cls, port: int) -> int:
        if port in _TAKEN_PORTS:
            raise ValueError(f"is {_TAKEN_PORTS[port]} in the same pod; write another, such as 9402 (got {port})")
        return port

    @model_validator(mode="after")
    def _is_all_of_use(self) -> Self:
        of_claims = {"driver", "consumable_shares"}
        unused = sorted(self.model_fields_set - {"placement"} - of_claims)
        if self.placement is PlacementMode.DRA and unused:
            raise ValueError(f"{', '.join(unused)}: has no use where placement is dra; remove it")
        if self.placement is not PlacementMode.DRA and (unused := sorted(self.model_fields_set & of_claims)):
            raise ValueError(f"{', '.join(unused)}: has no use where placement is extender; remove it")
        if self.driver is not ClaimDriver.NVIDIA and "consumable_shares" in self.model_fields_set:
            raise ValueError("consumable_shares: has no use where driver is gpumem; remove it")
        if not self.measured and "hold_seconds" in self.model_fields_set:
            raise ValueError("hold_seconds: has no use where measured is false; remove it")
        return self

    @property
    def claimed(self) -> ClaimedDevices | None:
        """As the ledger has it."""
        if self.driver is not ClaimDriver.NVIDIA:
            return None
        return ClaimedDevices(driver=str(self.driver), shared=self.consumable_shares is ConsumableShares.MEMORY)


@dataclass(frozen=True, kw_only=True)
class SchedulerArgs:
    """`ledger` says which pools' nodes it places on; `exporter` is who publishes and measures their devices."""

    spec: SchedulerSpec
    cluster: ClusterSpec
    code: Zipapp
    ledger: Ledger
    exporter: ExporterSpec


def by_device(spec: SchedulerSpec, cluster: ClusterSpec, ledger: Ledger) -> ByDevice:
    """What admission must know of it."""
    return ByDevice(
        account=f"system:serviceaccount:{cluster.system_namespace}:{names.SCHEDULER}",
        devices=max(pool.device_count for pool in ledger.shared_pools),
    )


def scheduler_agent(args: SchedulerArgs) -> Agent:
    """The extender. Its account is its pod's, and so kube-scheduler's as well: that alone needs the built-in roles."""
    spec, namespace = args.spec, args.cluster.system_namespace
    measurement = telemetry_environment(namespace, args.exporter) if spec.measured else {}
    return Agent(
        program="extender",
        name=names.SCHEDULER,
        namespace=namespace,
        cluster=args.cluster,
        code=args.code,
        environment={
            "VERBS_PORT": str(_VERBS_PORT),
            "HTTP_PORT": str(spec.port),
            "CERTIFICATES": _CERTIFICATES.path,
            "LEASE": f"{namespace}/{names.SCHEDULER}",
            "SCORING": spec.scoring,
            "HOLD_SECONDS": str(spec.hold_seconds),
            **measurement,
        },
        rules=(
            ledger_rule(namespace),
            PolicyRule(resources=("nodes",), verbs=("list", "watch")),
            PolicyRule(resources=("pods",), verbs=("get", "list", "watch")),
            PolicyRule(resources=("pods/binding",), verbs=("create",)),
            events_rule(),
            PolicyRule(api_groups=(_RESOURCES,), resources=("resourceslices",), verbs=("list", "watch")),
            PolicyRule(
                api_groups=(_RESOURCES,),
                resources=("resourceclaims",),
                verbs=("patch",),
                resource_names=(names.SCHEDULER,),
                namespace=namespace,
            ),
            PolicyRule(
                api_groups=("coordination.k8s.io",),
                resources=("leases",),
                verbs=("get", "list", "watch", "update"),
                resource_names=(names.SCHEDULER,),
                namespace=namespace,
            ),
        ),
        roles=(
            *(RoleRef(name) for name in names.KUBE_SCHEDULER_ROLES),
            RoleRef(names.AUTHENTICATION_READER, "kube-system"),
        ),
        dry_run=False,
        memory_mib=256,
    )


def retry_claim(args: SchedulerArgs) -> Manifest:
    """A claim on nothing. The extender annotates it where a waiting pod would fit by now, for kube-scheduler takes any
    event on a ResourceClaim as a reason to try again."""
    metadata = scheduler_agent(args).metadata
    return {"apiVersion": names.RESOURCE_API, "kind": "ResourceClaim", "metadata": metadata, "spec": {}}


def configuration(args: SchedulerArgs) -> dict[str, Any]:
    """kube-scheduler's own file: one profile, one extender, leadership by a Lease.

    https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/. The sum of a node stays kube-scheduler's
    to check (ignoredByScheduler false): two guards, and its cache of assumed pods stays right. Every node that is left
    is looked at (percentageOfNodesToScore): with a sample, the best device, or the only one, might not be in it. The
    filter leaves one node, the best, and so there is nothing to score.
    """
    certificates = _CERTIFICATES.path
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
                "urlPrefix": f"https://127.0.0.1:{_VERBS_PORT}",
                "filterVerb": "filter",
                "preemptVerb": "preempt",
                "bindVerb": "bind",
                "enableHTTPS": True,
                "tlsConfig": {
                    "caFile": f"{certificates}/ca.crt",
                    "certFile": f"{certificates}/client.crt",
                    "keyFile": f"{certificates}/client.key",
                },
                "httpTimeout": f"{names.EXTENDER_TIMEOUT_SECONDS}s",
                "nodeCacheCapable": True,
                "managedResources": [{"name": args.ledger.names.gpumem, "ignoredByScheduler": False}],
                "ignorable": False,
            }
        ],
    }


def config_map(args: SchedulerArgs) -> Manifest:
    """The configuration, immutable and named by its content, so that a change of it is a rollout."""
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
    """kube-scheduler and the extender, in one pod: whoever leads of the first leads of the second as well."""
    agent, spec = scheduler_agent(args), args.spec
    config = Volume(
        name="config", path="/etc/kube-scheduler", source={"configMap": {"name": config_map(args)["metadata"]["name"]}}
    )
    certify = agent_container(replace(agent, program="certify"), [_CERTIFICATES.mount(read_only=False)])
    template = pod_template(
        agent,
        container={
            "ports": [{"name": METRICS_PORT, "containerPort": spec.port}],
            **_probes(METRICS_PORT, "HTTP", alive="/healthz"),
        },
        pod={
            "initContainers": [certify],
            "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [_apart()]}},
        },
        beside=[_kube_scheduler(spec.image, config)],
        volumes=[_CERTIFICATES, config],
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": agent.metadata,
        "spec": {
            "replicas": spec.replicas,
            "selector": {"matchLabels": selector()},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": template,
        },
    }


def _kube_scheduler(image: str, config: Volume) -> Manifest:
    """Upstream's program as it is; its serving certificate is made in memory."""
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
            "volumeMounts": [config.mount(), _CERTIFICATES.mount()],
            **_probes(_HEALTH_PORT, "HTTPS", alive="/livez"),
        }
    )


def _probes(port: int | str, scheme: str, *, alive: str) -> Manifest:
    def probe(path: str) -> Manifest:
        return {"httpGet": {"path": path, "port": port, "scheme": scheme}, "periodSeconds": 10, "timeoutSeconds": 5}

    return {"livenessProbe": probe(alive), "readinessProbe": probe("/readyz")}


def _apart() -> Manifest:
    term = {"labelSelector": {"matchLabels": selector()}, "topologyKey": "kubernetes.io/hostname"}
    return {"weight": 100, "podAffinityTerm": term}


def selector() -> dict[str, str]:
    """The labels that choose the scheduler's pods within their namespace."""
    return {names.LABEL_NAME: names.SCHEDULER}


def disruption_budget(args: SchedulerArgs) -> Manifest:
    """One at a time: a drained node takes the leader at worst, and another takes over."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": scheduler_agent(args).metadata,
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": selector()}},
    }


def network_policy(args: SchedulerArgs) -> Manifest:
    """Prometheus reaches the one port that only answers questions; the namespace lets nothing else in."""
    return ingress(scheduler_agent(args).metadata, selector(), args.spec.port, args.cluster.scrapers)


class Scheduler(pulumi.ComponentResource):
    """The scheduler's Deployment, with all that it needs. It places on the ledger's nodes, so it depends on Capacity;
    whatever asks for gpumem depends on it."""

    scheduler_name: pulumi.Output[str]

    def __init__(self, name: str, args: SchedulerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Scheduler"), name, args.spec.model_dump(mode="json"), opts)
        identity = Identity(f"{name}-identity", scheduler_agent(args).identity, pulumi.ResourceOptions(parent=self))
        config = register(config_map(args), f"{name}-config", parent=self)
        register(network_policy(args), f"{name}-network-policy", parent=self)
        register(disruption_budget(args), f"{name}-disruption-budget", parent=self)
        needed = [identity, config, register(retry_claim(args), f"{name}-retry-claim", parent=self)]
        declared = register(deployment(args), f"{name}-deployment", parent=self, depends_on=needed)
        self.scheduler_name = declared.urn.apply(lambda _: names.SCHEDULER_NAME)
        self.register_outputs({"schedulerName": self.scheduler_name})
