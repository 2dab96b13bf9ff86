"""Kueue itself, from its Helm chart."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pulumi
import pulumi_kubernetes as k8s
import yaml
from pydantic import Field, field_validator

from components.base.manifest import Manifest, component_type, manifest, register
from components.base.spec import ChartVersion, DnsLabel, ResourceName, Spec, StringForm
from tenancy.frameworks import FrameworkName
from tenancy.kueue_version import QUOTAS_HOLD_SINCE, enforces_quotas
from tenancy.names import KUEUE, POD_SECURITY_ENFORCE, QUEUE_TENANT

# The chart in the registry, for versions without a copy in the checkout, and the repository of the released image.
REGISTRY_CHART = "oci://registry.k8s.io/kueue/charts/kueue"
_IMAGE = "registry.k8s.io/kueue/kueue"
_READY_SECONDS = 600  # On a slow network, the first pull of the image may take this long.


Duration = Annotated[str, StringForm("a duration such as 30m or 1h30m", r"(?:[0-9]+(?:\.[0-9]+)?(?:h|m|s))+")]


class RequeuingStrategySpec(Spec):
    """The order and the waiting times in which an evicted Job returns to its queue."""

    timestamp: Literal["Eviction", "Creation"] = Field(
        default="Eviction",
        description="The queue sorts an evicted Job by the time of its eviction or by the time of its creation.",
    )
    backoff_limit_count: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Kueue deactivates the Job after this number of returns to the queue. Default: never.",
        examples=[5],
    )
    backoff_base_seconds: Annotated[int, Field(ge=1)] = Field(
        default=60, description="Time before the first return. Each further time is twice as long.", examples=[60]
    )
    backoff_max_seconds: Annotated[int, Field(ge=1)] = Field(
        default=3600, description="The longest time before a return.", examples=[3600]
    )


class WaitForPodsReadySpec(Spec):
    """The times after which Kueue evicts an admitted Job with pods that are not ready. For example, the pods may fit no
    node."""

    timeout: Duration = Field(
        default="30m", description="Time in which all pods of an admitted Job must become ready.", examples=["10m"]
    )
    recovery_timeout: Duration = Field(
        default="30m", description="Time in which a failed pod of a running Job must be ready again.", examples=["5m"]
    )
    block_admission: bool = Field(
        default=False, description="true: Kueue admits the next Job only when all pods of the last one are ready."
    )
    requeuing_strategy: RequeuingStrategySpec | None = Field(
        default=None,
        description="Order and waiting times in which an evicted Job returns to its queue. Default: Kueue's defaults.",
    )


class FairSharingConfigSpec(Spec):
    """The rules by which the queues and child cohorts of a cohort share idle quota by weight."""

    preemption_strategies: list[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]] = Field(
        default=["LessThanOrEqualToFinalShare", "LessThanInitialShare"],
        min_length=1,
        max_length=2,
        description="Conditions under which a Job may preempt a Job of a queue with a larger share. Kueue tries "
        "these conditions in this order.",
        examples=[["LessThanInitialShare"]],
    )


class AdmissionFairSharingSpec(Spec):
    """The rules by which Kueue orders LocalQueues by their past use, in ClusterQueues with admission_scope."""

    usage_half_life_time: Duration = Field(
        default="168h", description="Time after which past use counts half.", examples=["24h"]
    )
    usage_sampling_interval: Duration = Field(
        default="5m", description="Time between two samples of the use.", examples=["1m"]
    )
    resource_weights: dict[ResourceName, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict,
        description="Weight of one unit of each resource. Default: 1.",
        examples=[{"nvidia.com/gpu": 10, "cpu": 1}],
    )


class WorkloadRetentionSpec(Spec):
    """The times after which Kueue deletes Workloads that are no longer needed."""

    after_finished: Duration | None = Field(
        default=None,
        description="Time after which Kueue deletes a finished Workload. Default: never.",
        examples=["24h"],
    )
    after_deactivated_by_kueue: Duration | None = Field(
        default=None,
        description="Time after which Kueue deletes a Workload that it deactivated, together with its Job. Default: "
        "never.",
        examples=["168h"],
    )


class KueueSpec(Spec):
    """Kueue itself, from its Helm chart. Leave this key out if the cluster has Kueue already."""

    version: ChartVersion = Field(
        description="Version of chart and image: 0.18.6, or 0.19.2 or later (docs/adr/0002).", examples=["0.19.2"]
    )
    namespace: DnsLabel = Field(
        default="kueue-system",
        description="Namespace of Kueue. The stack creates this namespace.",
        examples=["kueue-system"],
    )
    exclude_resource_prefixes: list[str] = Field(
        default=["cpu", "memory", "ephemeral-storage"],
        description="Prefixes of resource names that Kueue does not count.",
        examples=[["example.org/"]],
    )
    wait_for_pods_ready: WaitForPodsReadySpec = Field(
        default=WaitForPodsReadySpec(), description="Evicts an admitted Job if its pods do not become ready in time."
    )
    fair_sharing: FairSharingConfigSpec | None = Field(
        default=None,
        description="Sharing of idle quota by weight, among queues and cohorts. Default: first come, first served.",
    )
    admission_fair_sharing: AdmissionFairSharingSpec | None = Field(
        default=None, description="Order of LocalQueues by their past use. Default: first come, first served."
    )
    retention: WorkloadRetentionSpec = Field(
        default=WorkloadRetentionSpec(),
        description="Times after which Kueue deletes Workloads (Kueue's objectRetentionPolicies).",
    )

    @field_validator("version")
    @classmethod
    def _keeps_to_its_quotas(cls, version: str) -> str:
        if not enforces_quotas(version):
            raise ValueError(f"has quotas that can be bypassed; write {QUOTAS_HOLD_SINCE} (got {version!r})")
        return version


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The chart of Kueue: a folder, or the address in a registry with a version."""

    address: str
    version: str | None = None


@dataclass(frozen=True, kw_only=True)
class KueueArgs:
    """Holds the arguments. With `manages_all`, Kueue also queues the work of queue tenants that names no queue."""

    spec: KueueSpec
    chart: Chart
    frameworks: Sequence[FrameworkName]
    manages_all: bool


def namespace(name: str) -> Manifest:
    made = manifest("v1", "Namespace", name, "kueue")
    made["metadata"]["labels"][POD_SECURITY_ENFORCE] = "restricted"
    return made


def configuration(args: KueueArgs) -> dict[str, Any]:
    """Returns Kueue's Configuration (config.kueue.x-k8s.io/v1beta2): the chart's default with our changes.

    The chart uses `managedJobsNamespaceSelector` as the namespaceSelector of every webhook for Jobs. Kueue's webhooks
    for Jobs fail closed. So only labelled namespaces depend on Kueue, and other namespaces can create Jobs while Kueue
    is down.
    """
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "webhook": {"port": 9443},
        "internalCertManagement": {"enable": True},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Workload.kueue.x-k8s.io": 10,
                "LocalQueue.kueue.x-k8s.io": 5,
                "ClusterQueue.kueue.x-k8s.io": 5,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": 300, "burst": 500},
        "waitForPodsReady": _camel(args.spec.wait_for_pods_ready.model_dump(exclude_none=True)),
        "manageJobsWithoutQueueName": args.manages_all,
        "managedJobsNamespaceSelector": {"matchLabels": {QUEUE_TENANT: "true"}},
        "integrations": {"frameworks": sorted(str(each) for each in args.frameworks)},
        "resources": {"excludeResourcePrefixes": args.spec.exclude_resource_prefixes},
        **_optional(args.spec),
    }


def _optional(spec: KueueSpec) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if spec.fair_sharing is not None:
        found["fairSharing"] = _camel(spec.fair_sharing.model_dump())
    if spec.admission_fair_sharing is not None:
        shared = spec.admission_fair_sharing
        found["admissionFairSharing"] = _camel(shared.model_dump(exclude={"resource_weights"}))
        if shared.resource_weights:
            found["admissionFairSharing"]["resourceWeights"] = dict(sorted(shared.resource_weights.items()))
    if retained := spec.retention.model_dump(exclude_none=True):
        found["objectRetentionPolicies"] = {"workloads": _camel(retained)}
    return found


def _camel(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings under Kueue's names: `after_finished` is `afterFinished`."""
    return {
        re.sub(r"_([a-z])", lambda match: match[1].upper(), name): _camel(value) if isinstance(value, dict) else value
        for name, value in fields.items()
    }


def values(args: KueueArgs) -> dict[str, Any]:
    """Returns the chart's values. The values name the released image, because the chart in the release's source code
    names a staging image."""
    return {
        "enableCertManager": False,
        "enableKueueViz": False,
        "controllerManager": {
            "manager": {
                "image": {"repository": _IMAGE, "tag": f"v{args.spec.version}", "pullPolicy": "IfNotPresent"},
            },
        },
        "managerConfig": {
            "controllerManagerConfigYaml": yaml.safe_dump(configuration(args), sort_keys=False),
        },
    }


class Kueue(pulumi.ComponentResource):
    """Kueue's release. Resources that depend on this component wait until Kueue's webhooks respond."""

    def __init__(self, name: str, args: KueueArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Kueue"), name, {"spec": args.spec.model_dump(mode="json")}, opts)
        home = register(namespace(args.spec.namespace), f"{name}-namespace", parent=self)
        k8s.helm.v3.Release(
            f"{name}-release",
            k8s.helm.v3.ReleaseArgs(
                name=KUEUE,
                namespace=args.spec.namespace,
                chart=args.chart.address,
                version=args.chart.version,
                values=values(args),
                timeout=_READY_SECONDS,
            ),
            pulumi.ResourceOptions(parent=self, depends_on=[home]),
        )
        self.register_outputs({})
