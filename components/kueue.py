"""Kueue itself, from its Helm chart."""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml
from pydantic import Field, field_validator

from components.base.manifest import Manifest, component_type, manifest, register
from components.base.spec import ChartVersion, DnsLabel, Spec
from tenancy.names import KUEUE, KUEUE_IMAGE, POD_SECURITY_ENFORCE, QUEUE_TENANT

_READY_SECONDS = 600  # a first pull of the image on a slow line


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

    @field_validator("version")
    @classmethod
    def _keeps_to_its_quotas(cls, version: str) -> str:
        release = tuple(int(part) for part in version.split("."))
        if release < (0, 18, 6) or (0, 19, 0) <= release < (0, 19, 2):
            raise ValueError(f"has quotas that can be bypassed; write 0.18.6, 0.19.2 or later (got {version!r})")
        return version


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A folder with the chart, or a registry's address and the version to take."""

    address: str
    version: str | None = None


@dataclass(frozen=True, kw_only=True)
class KueueArgs:
    spec: KueueSpec
    chart: Chart


def namespace(name: str) -> Manifest:
    made = manifest("v1", "Namespace", name, "kueue")
    made["metadata"]["labels"][POD_SECURITY_ENFORCE] = "restricted"
    return made


def configuration(spec: KueueSpec) -> dict[str, Any]:
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
        # Evicts an admitted Job that fits its quota and no node.
        "waitForPodsReady": {"timeout": "30m", "recoveryTimeout": "30m", "blockAdmission": False},
        "manageJobsWithoutQueueName": False,
        "managedJobsNamespaceSelector": {"matchLabels": {QUEUE_TENANT: "true"}},
        "integrations": {"frameworks": ["batch/job"]},
        "resources": {"excludeResourcePrefixes": spec.exclude_resource_prefixes},
    }


def values(spec: KueueSpec) -> dict[str, Any]:
    """The chart's values, with the released image: the chart in the release's source names a staging image."""
    return {
        "enableCertManager": False,
        "enableKueueViz": False,
        "controllerManager": {
            "manager": {
                "image": {"repository": KUEUE_IMAGE, "tag": f"v{spec.version}", "pullPolicy": "IfNotPresent"},
            },
        },
        "managerConfig": {
            "controllerManagerConfigYaml": yaml.safe_dump(configuration(spec), sort_keys=False),
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
                values=values(args.spec),
                timeout=_READY_SECONDS,
            ),
            pulumi.ResourceOptions(parent=self, depends_on=[home]),
        )
        self.register_outputs({})
