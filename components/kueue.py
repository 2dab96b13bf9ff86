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
from components.base.spec import ChartVersion, DnsLabel, LabelValue, ResourceName, Spec, StringForm
from tenancy.frameworks import FrameworkName
from tenancy.kueue_version import QUOTAS_HOLD_SINCE, enforces_quotas
from tenancy.names import KUEUE, POD_SECURITY_ENFORCE, QUEUE_TENANT

# The address of the chart for a version without a copy in the checkout, and the repository of the released image.
REGISTRY_CHART = "oci://registry.k8s.io/kueue/charts/kueue"
_IMAGE = "registry.k8s.io/kueue/kueue"
_READY_SECONDS = 600  # On a slow network, the first pull of Kueue's image can take ten minutes.


Duration = Annotated[str, StringForm("a duration such as 30m or 1h30m", r"(?:[0-9]+(?:\.[0-9]+)?(?:h|m|s))+")]


class RequeuingStrategySpec(Spec):
    """The order in which evicted Jobs return to their queue, and the time before each return."""

    timestamp: Literal["Eviction", "Creation"] = Field(
        default="Eviction",
        description="The queue sorts an evicted Job by the time of its eviction or by the time of its creation.",
    )
    backoff_limit_count: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="Number of returns to the queue after which Kueue deactivates an evicted Job. Default: never.",
        examples=[5],
    )
    backoff_base_seconds: Annotated[int, Field(ge=1)] = Field(
        default=60,
        description="Time before the first return of an evicted Job to the queue. The time doubles with each further "
        "return.",
        examples=[60],
    )
    backoff_max_seconds: Annotated[int, Field(ge=1)] = Field(
        default=3600, description="The longest time before an evicted Job returns to the queue.", examples=[3600]
    )


class WaitForPodsReadySpec(Spec):
    """The times after which Kueue evicts an admitted Job with pods that are not ready. For example, a pod of the Job
    fits no node."""

    timeout: Duration = Field(
        default="30m", description="Time in which all pods of an admitted Job must become ready.", examples=["10m"]
    )
    recovery_timeout: Duration = Field(
        default="30m", description="Time in which a failed pod of a running Job must be ready again.", examples=["5m"]
    )
    block_admission: bool = Field(
        default=False, description="true: Kueue admits the next Job only when all pods of the previous Job are ready."
    )
    requeuing_strategy: RequeuingStrategySpec | None = Field(
        default=None,
        description="Order and waiting times in which an evicted Job returns to its queue. Default: Kueue's defaults.",
    )


class FairSharingConfigSpec(Spec):
    """The rules by which the queues and child cohorts of a cohort share idle quota."""

    preemption_strategies: list[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]] = Field(
        default=["LessThanOrEqualToFinalShare", "LessThanInitialShare"],
        min_length=1,
        max_length=2,
        description="Conditions under which a Job may preempt a Job of a queue with a larger share. Kueue tries the "
        "conditions in the given order.",
        examples=[["LessThanInitialShare"]],
    )


class AdmissionFairSharingSpec(Spec):
    """The rules for ClusterQueues with admission_scope, where Kueue orders LocalQueues by their past use."""

    usage_half_life_time: Duration = Field(
        default="168h",
        description="Half-life of a queue's past use. After one half-life, past use counts only half.",
        examples=["24h"],
    )
    usage_sampling_interval: Duration = Field(
        default="5m", description="Time between two samples of a queue's use.", examples=["1m"]
    )
    resource_weights: dict[ResourceName, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict,
        description="Weight of one unit of each resource in a queue's use. Default: 1.",
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


class MultiKueueSpec(Spec):
    """The way in which Kueue dispatches Jobs to worker clusters."""

    origin: LabelValue = Field(
        default="multikueue",
        min_length=1,
        description="Name of the manager cluster in the labels of its objects on worker clusters. If several manager "
        "clusters use one worker cluster, each needs its own name.",
        examples=["site-a"],
    )
    gc_interval: Duration = Field(
        default="1m",
        description="Time between two clean-ups of objects on worker clusters that the manager cluster no longer "
        "needs.",
        examples=["1m"],
    )
    worker_lost_timeout: Duration = Field(
        default="15m",
        description="Time for which Kueue waits for a worker cluster that it cannot reach. After this time, Kueue "
        "evicts the Jobs that run in the lost worker cluster.",
        examples=["5m"],
    )
    dispatcher_name: Literal[
        "kueue.x-k8s.io/multikueue-dispatcher-all-at-once", "kueue.x-k8s.io/multikueue-dispatcher-incremental"
    ] = Field(
        default="kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
        description="With all-at-once, Kueue offers a Job to all worker clusters of its queue, and the first "
        "worker cluster that admits the Job gets the Job. With incremental, Kueue offers a Job to the first three "
        "`clusters` of its queue, then to three more.",
    )


class KueueSpec(Spec):
    """Kueue itself, from its Helm chart. Leave out the key `kueue` if the cluster has Kueue already."""

    version: ChartVersion = Field(
        description="Version of chart and image: 0.18.6, or 0.19.2 or later (docs/adr/0002).", examples=["0.19.2"]
    )
    namespace: DnsLabel = Field(
        default="kueue-system",
        description="Namespace of Kueue, which the stack creates.",
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

    multi_kueue: MultiKueueSpec | None = Field(
        default=None,
        description="Dispatch of Jobs to the worker clusters in queues.clusters. Default: Kueue's defaults.",
        examples=[{"origin": "site-a"}],
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
    """Holds the arguments. With `manages_all`, Kueue also queues a queue tenant's work if the work names no queue."""

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
    for Jobs fail closed. While Kueue is down, Jobs can still be created in namespaces without the label.
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
    if spec.multi_kueue is not None:
        found["multiKueue"] = _camel(spec.multi_kueue.model_dump())
    if retained := spec.retention.model_dump(exclude_none=True):
        found["objectRetentionPolicies"] = {"workloads": _camel(retained)}
    return found


def _camel(fields: Mapping[str, Any]) -> dict[str, Any]:
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
    """Kueue's release. Resources that depend on Kueue wait until Kueue's webhooks respond."""

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
