"""Kueue itself, from its Helm chart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml
from pydantic import Field, field_validator

from components.base.manifest import Manifest, component_type, namespace_labels, register
from components.base.passed import PassedSpec
from components.base.spec import ChartVersion, DnsLabel
from tenancy.frameworks import FrameworkName
from tenancy.kueue_version import QUOTAS_HOLD_SINCE, enforces_quotas
from tenancy.names import KUEUE, POD_SECURITY_ENFORCE, QUEUE_TENANT, labels

# The address of the chart for a version without a copy in the checkout, and the repository of the released image.
REGISTRY_CHART = "oci://registry.k8s.io/kueue/charts/kueue"
_IMAGE = "registry.k8s.io/kueue/kueue"
_READY_SECONDS = 600  # On a slow network, the first pull of Kueue's image can take ten minutes.


# Our defaults in parts of Kueue's Configuration that the stack passes through.
_PODS_READY: dict[str, Any] = {"timeout": "30m", "recoveryTimeout": "30m", "blockAdmission": False}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
    "admissionFairSharing": {"usageHalfLifeTime": "168h"},
}


class KueueSpec(PassedSpec):
    """Kueue itself, from its Helm chart. Leave out the key `kueue` if the cluster has Kueue already."""

    kind = "Configuration"
    defaults = "By default, `admission_fair_sharing.usage_half_life_time` is 168h."

    version: ChartVersion = Field(
        description="Version of chart and image: 0.18.6, or 0.19.2 or later (docs/adr/0002).", examples=["0.19.2"]
    )
    namespace: DnsLabel = Field(
        default="kueue-system",
        description="Namespace of Kueue.",
        examples=["kueue-system"],
    )
    exclude_resource_prefixes: list[str] = Field(
        default=["cpu", "memory", "ephemeral-storage"],
        description="Prefixes of resource names that Kueue does not count.",
        examples=[["example.org/"]],
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
    return namespace_labels(name, {**labels(KUEUE), POD_SECURITY_ENFORCE: "restricted"})


def configuration(args: KueueArgs) -> dict[str, Any]:
    """Returns Kueue's Configuration (config.kueue.x-k8s.io/v1beta2): the chart's default with our changes.

    The chart uses `managedJobsNamespaceSelector` as the namespaceSelector of every webhook for Jobs. Kueue's webhooks
    for Jobs fail closed. While Kueue is down, Jobs can still be created in namespaces without the label.
    """
    passed = args.spec.passed()
    passed |= {part: {**default, **passed[part]} for part, default in _DEFAULTS.items() if part in passed}
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
        "waitForPodsReady": {**_PODS_READY, **passed.pop("waitForPodsReady", {})},
        "manageJobsWithoutQueueName": args.manages_all,
        "managedJobsNamespaceSelector": {"matchLabels": {QUEUE_TENANT: "true"}},
        "integrations": {"frameworks": sorted(str(each) for each in args.frameworks)},
        "resources": {"excludeResourcePrefixes": args.spec.exclude_resource_prefixes},
        **passed,
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
