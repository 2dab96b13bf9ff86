"""MultiKueue: Kueue of a manager cluster dispatches work to worker clusters.

Source: apis/kueue/v1beta2/multikueue_types.go and pkg/controller/admissionchecks/multikueue of sigs.k8s.io/kueue.
"""

from collections.abc import Iterable, Sequence

from pydantic import Field

from components.base.identity import Account, PolicyRule
from components.base.manifest import Manifest, manifest
from components.base.spec import ObjectName, ResourceName, Spec
from components.queues.quotas import NonNegative
from tenancy.frameworks import Framework
from tenancy.names import KUEUE, KUEUE_API, KUEUE_GROUP, KUEUE_MULTI_KUEUE, multi_kueue_check

_READS = ("get", "list", "watch")


class WorkerClusterSpec(Spec):
    """A MultiKueueCluster: a worker cluster, to which this cluster's Kueue dispatches work."""

    secret: ObjectName = Field(
        description="Name of a Secret in Kueue's namespace. The key `kubeconfig` of the Secret holds the kubeconfig of "
        "the worker cluster. The stack does not declare the Secret.",
        examples=["east-kubeconfig"],
    )
    promises: dict[ResourceName, NonNegative] = Field(
        min_length=1,
        description="Number of devices of each kind that the worker cluster's queues keep for work of the manager "
        "cluster. A preview compares the promises of all worker clusters with the quotas of the queues that "
        "dispatch work.",
        examples=[{"nvidia.com/gpu": 8}],
    )


def multi_kueue_cluster(name: str, spec: WorkerClusterSpec) -> Manifest:
    source = {"kubeConfig": {"location": spec.secret, "locationType": "Secret"}}
    return manifest(KUEUE_API, "MultiKueueCluster", name, "queues", spec={"clusterSource": source})


def multi_kueue_config(queue: str, clusters: Sequence[str]) -> Manifest:
    """Returns the MultiKueueConfig of a ClusterQueue. The order of the clusters has a meaning, because the incremental
    dispatcher tries the first clusters first."""
    return manifest(
        KUEUE_API, "MultiKueueConfig", multi_kueue_check(queue), "queues", spec={"clusters": list(clusters)}
    )


def admission_check(queue: str) -> Manifest:
    """Returns the AdmissionCheck that dispatches the work of a ClusterQueue."""
    name = multi_kueue_check(queue)
    parameters = {"apiGroup": KUEUE_GROUP, "kind": "MultiKueueConfig", "name": name}
    spec = {"controllerName": KUEUE_MULTI_KUEUE, "parameters": parameters}
    return manifest(KUEUE_API, "AdmissionCheck", name, "queues", spec=spec)


def manager_account(name: str, namespace: str, frameworks: Iterable[Framework], tenants: Iterable[str]) -> Account:
    """Returns the account that a manager cluster uses on this worker cluster, with the rights that Kueue needs there.

    Kueue watches the objects of all namespaces. In the namespaces of queue tenants, Kueue also creates, changes and
    deletes its copies of objects and of their Workloads.
    """
    kinds = [(each.group, each.resource) for each in frameworks]
    every = [(KUEUE_GROUP, "workloads"), *sorted(kinds)]
    rules = [PolicyRule(group, (resource,), _READS) for group, resource in every]
    for tenant in sorted(tenants):
        for group, resource in every:
            rules.append(PolicyRule(group, (resource,), ("create", "update", "patch", "delete"), namespace=tenant))
        rules.append(PolicyRule(KUEUE_GROUP, ("workloads/status",), ("get", "update", "patch"), namespace=tenant))
    return Account(program=KUEUE, name=name, namespace=namespace, rules=tuple(rules))
