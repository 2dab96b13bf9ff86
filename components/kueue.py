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
from components.base.spec import ChartVersion, DnsLabel, Form, ResourceName, Spec
from tenancy.frameworks import FrameworkName
from tenancy.kueue_version import QUOTAS_HOLD_SINCE, quotas_hold
from tenancy.names import KUEUE, POD_SECURITY_ENFORCE, QUEUE_TENANT

# The registry's chart, for versions of which there is no copy here, and the released image.
REGISTRY_CHART = "oci://registry.k8s.io/kueue/charts/kueue"
_IMAGE = "registry.k8s.io/kueue/kueue"
_READY_SECONDS = 600  # The first pull of the image may take this long on a slow line.


Duration = Annotated[str, Form("a duration such as 30m or 1h30m", r"(?:[0-9]+(?:\.[0-9]+)?(?:h|m|s))+")]


class RequeuingStrategySpec(Spec):
    """The return of an evicted Job to its queue."""

    timestamp: Literal["Eviction", "Creation"] = Field(
        default="Eviction", description="The time that gives its place in the queue."
    )
    backoff_limit_count: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="After so many returns it is deactivated; default: never.", examples=[5]
    )
    backoff_base_seconds: Annotated[int, Field(ge=1)] = Field(
        default=60, description="The first wait; each next one is twice as long.", examples=[60]
    )
    backoff_max_seconds: Annotated[int, Field(ge=1)] = Field(
        default=3600, description="The longest wait.", examples=[3600]
    )


class WaitForPodsReadySpec(Spec):
    """The eviction of an admitted Job whose pods are not ready, for instance because no node has room."""

    timeout: Duration = Field(default="30m", description="For all pods of a Job to become ready.", examples=["10m"])
    recovery_timeout: Duration = Field(
        default="30m", description="For a pod to be ready again after it failed.", examples=["5m"]
    )
    block_admission: bool = Field(default=False, description="true: one Job at a time becomes ready.")
    requeuing_strategy: RequeuingStrategySpec | None = Field(
        default=None, description="The return of an evicted Job to its queue; default: Kueue's own."
    )


class FairSharingConfigSpec(Spec):
    """Shares of what is idle by weight, among the queues and cohorts of a cohort."""

    preemption_strategies: list[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]] = Field(
        default=["LessThanOrEqualToFinalShare", "LessThanInitialShare"],
        min_length=1,
        max_length=2,
        description="When a Job may preempt one of a queue with a larger share; tried in this order.",
        examples=[["LessThanInitialShare"]],
    )


class AdmissionFairSharingSpec(Spec):
    """The order among LocalQueues by their use, for ClusterQueues with admission_scope."""

    usage_half_life_time: Duration = Field(default="168h", description="Use so long ago counts half.", examples=["24h"])
    usage_sampling_interval: Duration = Field(default="5m", description="How often the use is taken.", examples=["1m"])
    resource_weights: dict[ResourceName, Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict,
        description="What a unit of a resource counts; default: 1 of each.",
        examples=[{"nvidia.com/gpu": 10, "cpu": 1}],
    )


class WorkloadRetentionSpec(Spec):
    """The end of Workloads that nobody needs any more."""

    after_finished: Duration | None = Field(
        default=None, description="A finished Workload is deleted after so long; default: never.", examples=["24h"]
    )
    after_deactivated_by_kueue: Duration | None = Field(
        default=None,
        description="A Workload that Kueue deactivated is deleted with its Job after so long; default: never.",
        examples=["168h"],
    )


class KueueSpec(Spec):
    """Kueue itself, from its Helm chart. Leave the key out where Kueue is installed already."""

    version: ChartVersion = Field(
        description="Chart and image; 0.18.6, 0.19.2 or later (docs/adr/0002).", examples=["0.19.2"]
    )
    namespace: DnsLabel = Field(
        default="kueue-system", description="Namespace of Kueue. The stack creates it.", examples=["kueue-system"]
    )
    exclude_resource_prefixes: list[str] = Field(
        default=["cpu", "memory", "ephemeral-storage"],
        description="Resources that the queues do not count.",
        examples=[["example.org/"]],
    )
    wait_for_pods_ready: WaitForPodsReadySpec = Field(
        default=WaitForPodsReadySpec(), description="Evicts an admitted Job that fits its quota and no node."
    )
    fair_sharing: FairSharingConfigSpec | None = Field(
        default=None,
        description="Shares by weight among queues and cohorts; default: first come, first served.",
    )
    admission_fair_sharing: AdmissionFairSharingSpec | None = Field(
        default=None, description="Order by use among LocalQueues; default: first come, first served."
    )
    retention: WorkloadRetentionSpec = Field(
        default=WorkloadRetentionSpec(), description="When Kueue deletes Workloads (objectRetentionPolicies)."
    )

    @field_validator("version")
    @classmethod
    def _keeps_to_its_quotas(cls, version: str) -> str:
        if not quotas_hold(version):
            raise ValueError(f"has quotas that can be bypassed; write {QUOTAS_HOLD_SINCE} (got {version!r})")
        return version


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A folder with the chart, or a registry's address and the version to take."""

    address: str
    version: str | None = None


@dataclass(frozen=True, kw_only=True)
class KueueArgs:
    """Holds the arguments. With `manages_all`, Kueue holds back work of queue tenants that names no queue."""

    spec: KueueSpec
    chart: Chart
    frameworks: Sequence[FrameworkName]
    manages_all: bool


def namespace(name: str) -> Manifest:
    made = manifest("v1", "Namespace", name, "kueue")
    made["metadata"]["labels"][POD_SECURITY_ENFORCE] = "restricted"
    return made


def configuration(args: KueueArgs) -> dict[str, Any]:
    """Kueue's Configuration, config.kueue.x-k8s.io/v1beta2: the chart's own default with our changes.

    The chart makes `managedJobsNamespaceSelector` the selector of every webhook on Jobs, and these fail closed. So only
    labelled namespaces opt in, and all other Jobs keep running while Kueue is down.
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
    """Settings by Kueue's own names: `after_finished` is `afterFinished`."""
    return {
        re.sub(r"_([a-z])", lambda match: match[1].upper(), name): _camel(value) if isinstance(value, dict) else value
        for name, value in fields.items()
    }


def values(args: KueueArgs) -> dict[str, Any]:
    """The chart's values, with the released image: the chart in the release's source names a staging image."""
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
    """Kueue's release. Its dependents wait until its webhooks answer."""

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
