"""A tenant: the labels of its namespace, a quota with the sum of its seats, and the roles of its groups."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pulumi
from pydantic import Field

from components.base.identity import RBAC_GROUP, group_subject
from components.base.manifest import Manifest, component_type, manifest, namespace_labels, register
from components.base.spec import Count, Mib, MostCpus, MostHostMemory, PeopleName, PoolKey, Spec, TenantKey
from tenancy.choices import Mode, PodSecurity
from tenancy.names import (
    POD_SECURITY_AUDIT,
    POD_SECURITY_ENFORCE,
    POD_SECURITY_WARN,
    PROJECT,
    QUEUE_TENANT,
    SEATS,
    Names,
)
from tenancy.quantity import canonical

_COMPONENT = "tenant"


class Role(StrEnum):
    """Names two of Kubernetes' user-facing roles."""

    VIEW = "view"
    EDIT = "edit"


class TenantSpec(Spec):
    """A tenant. The key of a tenant is the name of the tenant's namespace."""

    mode: Mode | None = Field(
        default=None,
        description="observe: the tenant gets no quota, and Pod Security only warns. Default: the stack's mode.",
        examples=["enforce"],
    )
    groups: dict[PeopleName, Role] = Field(
        default_factory=dict,
        description="Maps a group of the identity provider to its role in the namespace: view or edit.",
        examples=[{"team-a": "edit"}],
    )
    pod_security: PodSecurity = Field(
        default=PodSecurity.BASELINE,
        description="Level of the Pod Security Standards for the tenant's pods. A privileged pod can control its "
        "whole node with every GPU.",
        examples=["restricted"],
    )


class ResidentSpec(Spec):
    """An always-on workload with a seat."""

    tenant: TenantKey
    pool: PoolKey
    gpumem_mib: Mib = Field(description="Budget of one replica on each of its devices.")
    replicas: Count = Field(default=1, description="Number of replicas. Each replica has the whole budget.")
    devices_per_pod: Count = Field(
        default=1,
        description="Number of devices of each replica. The devices are on the same node, and the replica has its "
        "budget on each device.",
        examples=[2],
    )
    cpus: MostCpus = None
    host_memory_mib: MostHostMemory = None


class UnbudgetedSpec(Spec):
    """A declared workload that uses a device without a budget. The admission policies allow the pods of such a
    workload."""

    tenant: TenantKey
    pool: PoolKey
    measured_mib: Mib = Field(
        description="Measured use of the workload on one device. The pool's reserve covers the workload's use."
    )
    gpus: Count = Field(
        default=1,
        description="Total nvidia.com/gpu that the workload's pods may request. The tenant's ResourceQuota includes "
        "the workload's gpus.",
    )
    cpus: MostCpus = None
    host_memory_mib: MostHostMemory = None


@dataclass(frozen=True, kw_only=True)
class TenantArgs:
    """Holds the arguments. `gpumem_mib` and `gpu_count` are the largest totals that the tenant's pods may request, for
    its seats and its queues.

    `gpus` maps each resource of the device plugin, such as nvidia.com/gpu, to its maximum in the tenant's quota.
    `queue_labels` are the namespace labels that an installed Kueue needs. If `observed`, the tenant gets no quota, and
    Pod Security only warns.
    """

    tenant: str
    spec: TenantSpec
    names: Names
    gpumem_mib: int
    gpu_count: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    has_queue: bool
    queue_labels: Mapping[str, str] = field(default_factory=dict)
    observed: bool = False


def namespace(tenant: str, args: TenantArgs) -> Manifest:
    """Returns the labels of the namespace, for the tenant's Pod Security level and, for a queue tenant, for Kueue."""
    queue = {**args.queue_labels, QUEUE_TENANT: "true"} if args.has_queue else {}
    kinds = (POD_SECURITY_WARN, POD_SECURITY_AUDIT) if args.observed else (POD_SECURITY_ENFORCE,)
    return namespace_labels(tenant, {**queue, **dict.fromkeys(kinds, str(args.spec.pod_security))})


def quota(tenant: str, args: TenantArgs) -> Manifest:
    """Returns the ResourceQuota. For a tenant without seats and queues, the values of the quota are "0".

    The stack declares no LimitRange for gpumem. In a LimitRange, a maximum of gpumem for a Container would also be the
    default of every container. A LimitRange with a maximum for a Pod would refuse every pod without gpumem
    (plugin/pkg/admission/limitranger).
    """
    hard = {
        args.names.requests_gpumem: canonical(args.gpumem_mib),
        args.names.requests_gpu_count: canonical(args.gpu_count),
        **{f"requests.{resource}": canonical(most) for resource, most in sorted(args.gpus.items())},
    }
    return manifest("v1", "ResourceQuota", SEATS, _COMPONENT, tenant, spec={"hard": hard})


def role_binding(tenant: str, role: Role, groups: Iterable[str]) -> Manifest:
    """Returns the binding of groups to a ClusterRole in the tenant's namespace. Each role has its own RoleBinding,
    because a roleRef is immutable."""
    role_ref = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": str(role)}
    subjects = [group_subject(group) for group in groups]
    return manifest(
        f"{RBAC_GROUP}/v1", "RoleBinding", f"{PROJECT}-{role}", _COMPONENT, tenant, roleRef=role_ref, subjects=subjects
    )


def groups_by_role(groups: Mapping[str, Role]) -> dict[Role, list[str]]:
    """Maps each role to its groups, sorted by name. Roles without a group are left out of the map."""
    return {role: sorted(g for g, r in groups.items() if r is role) for role in Role if role in groups.values()}


class Tenant(pulumi.ComponentResource):
    """The labels of a tenant's namespace, its quota, and the roles of its groups."""

    def __init__(self, name: str, args: TenantArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        props = {"spec": args.spec.model_dump(mode="json"), "gpumemMib": args.gpumem_mib, "hasQueue": args.has_queue}
        super().__init__(component_type("Tenant"), name, props, opts)
        before = [register(namespace(args.tenant, args), f"{name}-namespace", parent=self)]
        if not args.observed:
            register(quota(args.tenant, args), f"{name}-quota", parent=self, depends_on=before)
        for role, groups in groups_by_role(args.spec.groups).items():
            register(role_binding(args.tenant, role, groups), f"{name}-{role}", parent=self, depends_on=before)
        self.register_outputs({})
