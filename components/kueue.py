"""Kueue itself, from its Helm chart."""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml
from pydantic import Field, field_validator

from components.base.manifest import Manifest, component_type, register
from components.base.spec import ChartVersion, DnsLabel, Spec
from tenancy.names import KUEUE, KUEUE_IMAGE, POD_SECURITY_ENFORCE, QUEUE_TENANT, labels

_COMPONENT = "kueue"
_READY_SECONDS = 600  # a first pull of the image on a slow line


def _is_bypassable(version: str) -> bool:
    """Before 0.18.6, and in 0.19.0 and 0.19.1, a Workload gets past its ClusterQueue's quota (docs/adr/0002)."""
    release = tuple(int(part) for part in version.split("."))
    return release < (0, 18, 6) or (0, 19, 0) <= release < (0, 19, 2)


class KueueSpec(Spec):
    """Kueue itself, from its Helm chart. Leave the key out where Kueue is installed already."""

    version: ChartVersion = Field(description="Chart and image; 0.18.6, 0.19.2 or later (docs/adr/0002).")
    namespace: DnsLabel = "kueue-system"
    exclude_resource_prefixes: list[str] = Field(
        default=["cpu", "memory", "ephemeral-storage"], description="Resources that the queues do not count."
    )

    @field_validator("version")
    @classmethod
    def _keeps_to_its_quotas(cls, version: str) -> str:
        if _is_bypassable(version):
            raise ValueError(f"has quotas that can be bypassed; write 0.18.6, 0.19.2 or later (got {version!r})")
        return version


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Where the chart is: a folder (no version of its own), or a registry's address and the version to take."""

    address: str
    version: str | None = None


@dataclass(frozen=True, kw_only=True)
class KueueArgs:
    spec: KueueSpec
    chart: Chart


def namespace(spec: KueueSpec) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": spec.namespace, "labels": {**labels(_COMPONENT), POD_SECURITY_ENFORCE: "restricted"}},
    }


def configuration(spec: KueueSpec) -> dict[str, Any]:
    """Kueue's Configuration, config.kueue.x-k8s.io/v1beta2: the chart's own default but for what we decide.

    The chart turns `managedJobsNamespaceSelector` into the namespaceSelector of every webhook on Jobs, which fails
    closed: opting in by label keeps our agents' CronJobs, and everybody else's Jobs, running while Kueue is down.
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
        # Evicts an admitted Job whose pods find no place: the quota fits, no node does.
        "waitForPodsReady": {"timeout": "30m", "recoveryTimeout": "30m", "blockAdmission": False},
        "manageJobsWithoutQueueName": False,
        "managedJobsNamespaceSelector": {"matchLabels": {QUEUE_TENANT: "true"}},
        "integrations": {"frameworks": ["batch/job"]},
        "resources": {"excludeResourcePrefixes": spec.exclude_resource_prefixes},
    }


def values(spec: KueueSpec) -> dict[str, Any]:
    """The chart's values. The chart in the release's source names a staging image; this is the released one."""
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
    """Installs Kueue; who depends on it waits until its webhooks answer."""

    namespace: pulumi.Output[str]

    def __init__(self, name: str, args: KueueArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(component_type("Kueue"), name, {"spec": args.spec.model_dump(mode="json")}, opts)
        home = register(namespace(args.spec), f"{name}-namespace", parent=self)
        release = k8s.helm.v3.Release(
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
        self.namespace = release.urn.apply(lambda _: args.spec.namespace)
        self.register_outputs({"namespace": self.namespace})
